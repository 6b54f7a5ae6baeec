"""A GPU fleet that can be scraped: nodes, GPUs, and pods under load, without a GPU or a cluster."""
