"""`python -m adapter.settings` prints the README's section on flags."""

from __future__ import annotations

import sys

from adapter.settings.printed import markdown

if __name__ == "__main__":
    sys.stdout.write(markdown())
