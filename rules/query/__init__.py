"""Catalog of metrics, plans with the PromQL of one request, and aggregation of samples to values.

Pure: relists and queries are the callers' task.
"""
