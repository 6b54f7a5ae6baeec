"""Pages for the browser of an operator."""
