"""Which log lines count as warnings about the adapter."""

from __future__ import annotations

import pytest

from tests.citizenship.klog import LogFile, all_warnings

E = "E1121 10:00:00.000000       1 handler.go:1] "


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (f"{E}v1beta1.custom.metrics.k8s.io failed with: bad status", True),
        (f"W{E[1:]}external.metrics.k8s.io/v1beta1: stale", True),
        (f"{E}loading OpenAPI spec failed", True),
        (f"I{E[1:]}v1beta1.custom.metrics.k8s.io is Available", False),
        (f"{E}etcd is slow", False),
        ("Error: not klog's, custom.metrics.k8s.io", False),
    ],
)
def test_warnings_and_errors_about_the_adapter_count(tmp_path, line, counts):
    path = tmp_path / "kube-apiserver.log"
    path.write_text(f"{line}\n")

    assert all_warnings([LogFile(name="api", path=path)]) == ([f"api: {line}"] if counts else [])


def test_earlier_lines_are_skipped(tmp_path):
    path = tmp_path / "log"
    path.write_text(f"{E}openapi: early\n")
    log = LogFile(name="api", path=path)

    log.skip_to_end()
    with path.open("a") as file:
        file.write(f"{E}openapi: late\n")

    assert all_warnings([log]) == [f"api: {E}openapi: late"]
