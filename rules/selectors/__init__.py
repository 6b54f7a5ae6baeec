"""Label and field selectors, parsed and matched as in Kubernetes."""
