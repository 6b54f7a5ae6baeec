"""X.509 certificates: parse, issue, verify and rotate. Does no I/O.

Pure except for random keys and serial numbers. Every function raises only `CertificateError`.
"""
