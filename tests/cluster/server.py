"""The adapter as a process, behind the aggregator and with the rights of manifests/base."""

from __future__ import annotations


class Server:
    port: int
    url: str

    @property
    def log(self) -> str:
        raise NotImplementedError

    def start(self) -> None:
        """Returns once every APIService is Available."""
        raise NotImplementedError

    def stop(self) -> None:
        """As an upgrade ends it."""
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError
