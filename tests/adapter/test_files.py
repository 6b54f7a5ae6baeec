"""Files that are read up to a limit: devices, pipes and files that grow included."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from adapter import errors, files
from adapter.clients import kubeconfig
from adapter.clients.credentials import Credentials, ReloadingClientContext, read_secret
from adapter.server.cluster.manifests import FileObjects
from adapter.settings import RulesSource, rule_files
from rules.errors import ConfigError

ZERO = Path("/dev/zero")


def test_a_file_of_the_limit_is_read_and_a_larger_one_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 70_000)

    assert files.read_file(file, 70_000) == b"x" * 70_000
    with pytest.raises(OSError, match="is larger than 68 KiB, the limit for it"):
        files.read_file(file, 69_999)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_bytes(b"")
    of_before = os.stat_result((0o100644, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: of_before)
    file.write_bytes(b"x" * 11)

    with pytest.raises(OSError, match="is larger than"):
        files.read_file(file, 10)


def test_a_device_without_end_is_refused_and_an_empty_one_is_empty():
    with pytest.raises(OSError, match="is larger than 4 MiB, the limit for it"):
        files.read_file(ZERO)
    assert files.read_file("/dev/null") == b""


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(OSError, match="is a pipe: use a regular file"):
        files.read_file(pipe)


def test_commands_read_a_pipe_to_its_end_but_not_beyond_the_limit(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def read(size: int) -> bytes:
        def write() -> None:
            with open(pipe, "wb", buffering=0) as file:  # noqa: PTH123 - a pipe
                file.writelines(b"x" * 1000 for _ in range(size))

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            return files.read_file(pipe, 100_000, pipes=True)
        finally:
            writer.join(10)

    assert len(read(100)) == 100_000
    with pytest.raises(OSError, match="is larger than"):
        read(101)


def test_a_folder_and_a_missing_file_are_refused_as_by_the_system(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.read_file(tmp_path / "none")


def large(folder: Path, size: int) -> Path:
    """Return a file that takes no space."""
    path = folder / "large"
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.mark.parametrize("path", [ZERO, None], ids=["device", "1 GB"])
def test_every_file_of_the_settings_has_a_limit(tmp_path, path):
    path = path or large(tmp_path, 1 << 30)

    with pytest.raises(ConfigError, match=f"{path}: error: cannot be read: is larger than 4 MiB"):
        rule_files.load((RulesSource(kind="config", name=str(path)),))
    with pytest.raises(errors.Broken, match=f"{path}: is larger than 64 MiB"):
        FileObjects([path])
    with pytest.raises(errors.Unreachable, match=f"{path}: .*is larger than 4 MiB"):
        asyncio.run(kubeconfig.load(str(path)))
    with pytest.raises(errors.Unreachable, match=f"{path}: is larger than 64 KiB"):
        read_secret(path)
    for field in ("ca_file", "certificate_file"):
        with pytest.raises(errors.Unreachable, match=f"{path}: is larger than 4 MiB"):
            ReloadingClientContext(Credentials(**{field: str(path)}))
