"""Serving certificates: bytes in, bytes out.

Everything here is pure but for the randomness of keys. `CertificateError` is the only error.
"""
