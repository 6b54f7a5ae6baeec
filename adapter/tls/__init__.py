"""Serving certificates: TLS contexts, certificate files, issuing and publishing."""
