"""Clients of Prometheus and of the Kubernetes API."""
