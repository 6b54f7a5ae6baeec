"""Which metrics exist: series names and labels, listed periodically from Prometheus."""
