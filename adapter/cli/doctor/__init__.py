"""What looks at an installation from outside: the checks of `doctor`, and `explain`."""
