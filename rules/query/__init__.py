"""From a catalog of metrics and a request to PromQL, and from samples to values."""
