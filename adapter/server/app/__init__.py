"""Composition root: builds every part from the settings and wires them together."""
