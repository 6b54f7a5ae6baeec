"""What the values of metrics are: queries that requests share, and their results."""
