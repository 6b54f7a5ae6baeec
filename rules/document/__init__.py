"""Parses rules files: YAML to nodes (`yaml`), nodes to values (`schema`), values to `config`."""
