"""The program: `gpu-metrics-adapter [COMMAND] [FLAGS]`; `serve` when no command is named.

So a Deployment that runs the original with `args: [/adapter, --secure-port=6443]` works as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adapter.commands import COMMANDS, serve


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; gives the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in {"-h", "--help", "help"}:
        print("usage: gpu-metrics-adapter [COMMAND] [FLAGS]\n")
        for command in COMMANDS.values():
            print(f"  {command.NAME:<8} {command.SUMMARY}")
        print("\n`COMMAND --help` tells a command's own flags; those of serve:\n")
        return serve.main(["--help"])
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]].main(arguments[1:])
    return serve.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
