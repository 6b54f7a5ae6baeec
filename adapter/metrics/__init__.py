"""Which metrics exist and what their values are, as Prometheus reports them."""
