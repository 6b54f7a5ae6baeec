"""Conversion of prometheus-adapter installations and KEDA ScaledObjects; without I/O."""
