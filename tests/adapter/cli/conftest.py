"""The program in an empty folder."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from adapter.cli import program


class Ended(NamedTuple):
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of the output."""
        return self.out.splitlines()


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Run the program, which gets the folder `tmp_path` as its working directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Ended:
        code = program.main(list(map(str, arguments)))
        return Ended(code, *capsys.readouterr())

    return run
