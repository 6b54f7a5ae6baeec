"""Keep a GPU busy for a share of the time: `python load.py` with PyTorch, until its input ends.

Each line of the input is a new share, 0 to 1, and a number of GiB to hold: `0.5 20`.
"""

import select
import sys
import time

import torch

WINDOW = 0.1
"""Seconds in which the GPU is busy for the share, then idle; the driver's samples are longer."""
GIB = 1 << 30


def main() -> None:
    """Run until the input ends."""
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    share, held = 0.0, None
    while True:
        end = time.monotonic() + WINDOW
        if select.select([sys.stdin], [], [], 0)[0]:
            if not (line := sys.stdin.readline()):
                return
            share, gibibytes = map(float, line.split())
            del held
            torch.cuda.empty_cache()
            held = torch.zeros(int(gibibytes * GIB), device="cuda", dtype=torch.uint8)
        busy = time.monotonic() + WINDOW * share
        while time.monotonic() < busy:
            torch.mm(matrix, matrix)
            torch.cuda.synchronize()
        time.sleep(max(0.0, end - time.monotonic()))


if __name__ == "__main__":
    main()
