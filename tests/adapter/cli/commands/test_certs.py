"""`certs issue`: certificates, files and errors."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import os

import pytest
import yaml
from cryptography import x509

from certs import secret
from certs.bundle import Bundle
from tools.certificates import Holder

NAMES = ("gpu-metrics-adapter.ns.svc", "gpu-metrics-adapter.ns", "gpu-metrics-adapter")


@pytest.fixture(autouse=True)
def namespace(monkeypatch):
    monkeypatch.setenv("POD_NAMESPACE", "ns")


@pytest.fixture
def run(cli):
    return functools.partial(cli, "certs", "issue")


def test_the_secret_is_printed_in_the_form_that_the_adapter_reads(run):
    captured = run()

    document = yaml.safe_load(captured.out)
    state = secret.read(document)
    assert captured.code == 0
    assert document["metadata"]["name"] == "gpu-metrics-adapter-tls"
    assert document["metadata"]["namespace"] == "ns"
    assert state.serving.names[:3] == NAMES
    assert base64.b64encode(state.ca_bundle).decode() in captured.err
    assert "DNS names: gpu-metrics-adapter.ns.svc, " in captured.err
    assert "PRIVATE" not in captured.err


def test_names_and_validity_come_from_the_flags(run):
    names = ("--service-name=other", "--service-namespace=x", "--secret-name=y", "--days=3")
    ended = run(*names, "--ca-days=9", "--host=a.test", "--host=10.0.0.1")

    document = yaml.safe_load(ended.out)
    state = secret.read(document)
    assert (document["metadata"]["name"], document["metadata"]["namespace"]) == ("y", "x")
    assert state.serving.names == (
        "other.x.svc",
        "other.x",
        "other",
        "other.x.svc.cluster.local",
        "a.test",
    )
    now = dt.datetime.now(dt.UTC)
    for certificate, days in zip(state.serving.chain, (3, 9), strict=True):
        left = certificate.not_valid_after_utc - now
        assert dt.timedelta(days=days, minutes=-1) < left <= dt.timedelta(days=days)


def test_the_default_namespace_is_that_of_the_manifests(run, monkeypatch):
    monkeypatch.delenv("POD_NAMESPACE")

    assert "namespace: gpu-metrics-adapter\n" in run().out


def test_out_writes_each_part_to_a_file(tmp_path, run):
    folder = tmp_path / "new" / "folder"

    code, output, _ = run(f"--out={folder}")

    assert (code, output) == (0, "")
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(contents) == {"ca.crt", "ca.key", "tls.crt", "tls.key", "secret.yaml", "caBundle"}
    assert base64.b64decode(contents["caBundle"]) == contents["ca.crt"]
    bundle = Bundle.parse(contents["tls.crt"], contents["tls.key"])
    assert secret.read(yaml.safe_load(contents["secret.yaml"])).serving.chain == bundle.chain
    for name in ("ca.key", "tls.key", "secret.yaml"):
        assert (folder / name).stat().st_mode & 0o077 == 0


def test_a_key_is_not_overwritten(tmp_path, run):
    (tmp_path / "ca.key").write_text("precious")

    code, _, error = run(f"--out={tmp_path}")

    assert (code, f"{tmp_path}: ca.key already exists" in error) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["ca.key"]


def test_a_symbolic_link_is_not_followed(tmp_path, run):
    folder, target = tmp_path / "folder", tmp_path / "target"
    folder.mkdir()
    (folder / "tls.key").symlink_to(target)

    code, _, error = run(f"--out={folder}")

    assert (code, f"{folder}: tls.key already exists" in error) == (1, True)
    assert [path.name for path in folder.iterdir()] == ["tls.key"]
    assert not target.exists()


def test_a_symbolic_link_that_appears_later_is_not_followed(tmp_path, run, monkeypatch):
    (tmp_path / "tls.key").symlink_to(tmp_path / "target")
    monkeypatch.setattr(os.path, "lexists", lambda path: False)

    code, _, error = run(f"--out={tmp_path}")

    assert (code, f"{tmp_path / 'tls.key'}: File exists" in error) == (1, True)
    assert not (tmp_path / "target").exists()


def test_an_existing_ca_issues_another_certificate(tmp_path, run):
    run(f"--out={tmp_path / 'first'}")
    files = (
        f"--ca-cert-file={tmp_path / 'first/ca.crt'}",
        f"--ca-key-file={tmp_path / 'first/ca.key'}",
    )

    assert run(*files, f"--out={tmp_path / 'second'}").code == 0

    for name, same in (("ca.crt", True), ("tls.crt", False)):
        both = [(tmp_path / folder / name).read_bytes() for folder in ("first", "second")]
        assert (both[0] == both[1]) is same
    chain = x509.load_pem_x509_certificates((tmp_path / "second/tls.crt").read_bytes())
    chain[0].verify_directly_issued_by(chain[1])


def test_errors_name_their_cause(tmp_path, run):
    holder = Holder("no-ca", ca=False)
    certificate, key = tmp_path / "a", tmp_path / "b"
    certificate.write_bytes(holder.pem)
    key.write_bytes(holder.bundle.key_pem)
    together = "--ca-cert-file and --ca-key-file must be given together\n"

    code, _, error = run(f"--ca-cert-file={certificate}")
    assert (code, error.startswith(together)) == (2, True)
    for argv, message in (
        ([f"--ca-cert-file={certificate}", f"--ca-key-file={key}"], "CN=no-ca is not a CA\n"),
        (["--ca-cert-file=/none", f"--ca-key-file={key}"], "/none: No such file or directory\n"),
        (["--host=ä"], "cannot issue a certificate for host 'ä'"),
    ):
        code, _, error = run(*argv)
        assert (code, error.startswith(message)) == (1, True)


@pytest.mark.parametrize("argument", ["--days=0", "--days=x", "--day=3"])
def test_an_invalid_command_line_is_refused(argument, run):
    assert run(argument).code == 2
