"""Serving TLS: contexts, cipher suites, certificate files, own certificates, APIServices."""
