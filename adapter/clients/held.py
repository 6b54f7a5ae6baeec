"""Limit of the bytes of all responses that are being read, with a part for each Prometheus.

`prometheus` counts the bytes, and fails a response for which there is no room.
"""

from __future__ import annotations

MAX_HELD = 32 << 20
"""Maximum bytes of all responses that are being read. Parsed, they take 4 times as much memory, and
14 times if every name is as short as possible, which is still below the limit of 768 MiB."""


class Held:
    """Limit that clients share.

    Half of it is divided equally among the clients. So one whose responses arrive slowly does not
    make those of the others fail.
    """

    def __init__(self) -> None:
        self._shares: list[Share] = []

    @property
    def bytes(self) -> int:
        """Bytes of the responses that all clients are reading."""
        return sum(each.bytes for each in self._shares)

    def share(self) -> Share:
        """Return the share of one more client."""
        share = Share(self._shares)
        self._shares.append(share)
        return share


class Share:
    """Bytes of the responses that one client is reading; `every` has those of all clients."""

    def __init__(self, every: list[Share]) -> None:
        self.bytes = 0
        self._every = every

    @property
    def has_room(self) -> bool:
        """Whether they are within the client's own part, or all are within the common half."""
        own = MAX_HELD // (2 * len(self._every))
        beyond = sum(max(0, each.bytes - own) for each in self._every)
        return self.bytes <= own or beyond <= MAX_HELD // 2
