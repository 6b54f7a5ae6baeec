"""Server of the Kubernetes custom and external metrics APIs, backed by Prometheus."""

__version__ = "0.1.0"
