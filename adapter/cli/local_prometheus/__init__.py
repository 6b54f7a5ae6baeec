"""Finds or downloads a Prometheus, and runs it on this machine."""
