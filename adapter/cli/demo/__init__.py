"""Simulated GPU fleet: nodes, GPUs and pods, with exporters that a real Prometheus scrapes.

The production image does not contain this package.
"""
