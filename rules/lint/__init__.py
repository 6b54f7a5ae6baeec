"""Findings about a rules file that loads but does not do what its author expects."""
