"""Authentication and authorization of requests, delegated to the Kubernetes API server."""
