"""Reading a rules file: YAML, scalars, schema and the frozen configuration."""
