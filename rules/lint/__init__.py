"""Warnings about rules files that load but do not do what their author expects."""
