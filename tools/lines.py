"""Print the lines of Python by room: `python -m tools.lines`, or `make lines`.

Counts the files that git tracks; recordings and other data are not counted.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
WINGS = ("adapter/server", "adapter/cli", "tests/adapter/server", "tests/adapter/cli")
"""Folders whose rooms are one level deeper."""
PARTS = {"source": ("adapter", "rules", "certs"), "tests": ("tests",), "tools": ("tools",)}


def tracked() -> tuple[Path, ...]:
    """Return the tracked Python files, relative to the repository."""
    command = ("git", "ls-files", "-z", "*.py")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(Path(name) for name in listed.split("\0") if name)


def room(file: Path) -> str:
    """Return the room of a file, such as `adapter/server/api`, or the folder of flat files."""
    folders = file.parent.parts
    for depth in (2, 3, 4):
        name = "/".join(folders[:depth])
        if name not in WINGS and name != "tests/adapter":
            return name
    return "/".join(folders)


def count(files: Iterable[Path]) -> Counter[str]:
    """Return the number of lines of each room."""
    lines: Counter[str] = Counter()
    for file in files:
        lines[room(file)] += (ROOT / file).read_text().count("\n")
    return lines


def main() -> None:
    """Print each part with its rooms."""
    lines = count(tracked())
    for part, folders in PARTS.items():
        rooms = {name: each for name, each in lines.items() if name.split("/")[0] in folders}
        print(f"{sum(rooms.values()):7}  {part}: {', '.join(folders)}")
        for name, each in sorted(rooms.items()):
            print(f"{each:7}    {name}")


if __name__ == "__main__":
    main()
