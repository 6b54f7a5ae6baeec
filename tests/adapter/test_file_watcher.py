from __future__ import annotations

import logging

import pytest

from adapter.files import FileWatcher


class LoadError(Exception):
    pass


class Loader:
    """Joins the two lines of files `a` and `b`, which must be equal."""

    def __init__(self, folder):
        self.paths = folder / "a", folder / "b"
        self.loads = 0

    def write(self, *texts):
        for path, text in zip(self.paths, texts, strict=False):
            path.write_text(text)

    def load(self):
        self.loads += 1
        try:
            a, b = (path.read_text() for path in self.paths)
        except OSError as error:
            raise LoadError(f"{error.filename}: {error.strerror}") from error
        if a != b:
            raise LoadError(f"{a} is not {b}")
        return a

    def watch(self, **options):
        return FileWatcher(
            *self.paths, load=self.load, failure=LoadError, fallback="the old one stays", **options
        )


@pytest.fixture
def loader(tmp_path):
    loader = Loader(tmp_path)
    loader.write("one", "one")
    return loader


def test_value_is_loaded_again_only_after_a_change(loader):
    watcher = loader.watch()

    assert (watcher.poll(), watcher.value, loader.loads) == (False, "one", 1)
    loader.write("two", "two")

    assert (watcher.poll(), watcher.value, loader.loads) == (True, "two", 2)
    assert not watcher.poll()


def test_first_load_raises(loader):
    loader.write("two")

    with pytest.raises(LoadError, match="two is not one"):
        loader.watch()


def test_half_a_change_is_logged_once_and_keeps_the_value(loader, caplog):
    watcher = loader.watch()
    loader.write("two")

    assert [watcher.poll(), watcher.poll()] == [False, False]
    assert watcher.value == "one"
    assert caplog.record_tuples == [
        ("adapter.files", logging.WARNING, "two is not one; the old one stays")
    ]
    loader.write("two", "two")

    assert (watcher.poll(), watcher.value) == (True, "two")


def test_missing_file_is_logged_once_and_keeps_the_value(loader, caplog):
    watcher = loader.watch()
    loader.paths[1].unlink()

    assert [watcher.poll(), watcher.poll()] == [False, False]
    assert watcher.value == "one"
    (record,) = caplog.records
    assert record.getMessage().endswith("b: No such file or directory; the old one stays")


def test_current_polls_at_most_once_per_max_age(loader):
    now = 100.0
    watcher = loader.watch(max_age=60.0, monotonic=lambda: now)
    loader.write("two", "two")

    now += 59.0
    assert watcher.current() == "one"
    now += 1.0
    assert watcher.current() == "two"
    loader.write("three", "three")
    assert watcher.current() == "two"


def test_volume_whose_directory_link_is_swapped_is_noticed(tmp_path):
    """The kubelet updates a mounted Secret by swapping the link `..data`."""
    for folder, text in (("..1", "one"), ("..2", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "file").symlink_to("..data/file")
    path = tmp_path / "file"
    watcher = FileWatcher(path, load=path.read_text, failure=LoadError, fallback="")

    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    assert (watcher.poll(), watcher.value) == (True, "two")
