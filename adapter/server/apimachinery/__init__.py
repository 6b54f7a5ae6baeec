"""Kubernetes over HTTP: request info, content negotiation, encodings, Status."""
