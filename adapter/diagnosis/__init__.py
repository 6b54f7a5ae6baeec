"""Diagnosis of an installation from outside: what `doctor` and `explain` request and find."""
