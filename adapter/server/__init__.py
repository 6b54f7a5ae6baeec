"""What runs in the cluster: the API server and what it evaluates, watches and serves."""
