"""Authentication and authorization of callers, as kube-apiserver delegates them."""
