"""Label and field selectors, parsed and matched as Kubernetes does."""
