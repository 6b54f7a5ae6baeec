"""Programs that are no tests, and what they share with tests. They are not shipped."""
