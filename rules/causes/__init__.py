"""Causes of missing metrics, from the rules and the last relist."""
