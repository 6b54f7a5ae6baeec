from __future__ import annotations

import base64
import datetime as dt

import pytest
import yaml
from cryptography import x509

from adapter import __main__ as program
from certs import secret
from certs.bundle import Bundle
from tests.certificates import Holder

NAMES = ("gpu-metrics-adapter.ns.svc", "gpu-metrics-adapter.ns", "gpu-metrics-adapter")


@pytest.fixture(autouse=True)
def namespace(monkeypatch):
    monkeypatch.setenv("POD_NAMESPACE", "ns")


def run(*argv):
    return program.main(["certs", "issue", *argv])


def test_the_secret_goes_to_standard_output_and_is_what_the_adapter_reads(capsys):
    assert run() == 0

    shown = capsys.readouterr()
    document = yaml.safe_load(shown.out)
    state = secret.read(document)
    assert document["metadata"]["name"] == "gpu-metrics-adapter-tls"
    assert document["metadata"]["namespace"] == "ns"
    assert state.serving.names[:3] == NAMES
    assert base64.b64encode(state.ca_bundle).decode() in shown.err
    assert "good for gpu-metrics-adapter.ns.svc, " in shown.err
    assert "PRIVATE" not in shown.err


def test_the_names_and_the_times_are_those_asked_for(capsys):
    asked = ("--service-name=other", "--service-namespace=x", "--secret-name=y", "--days=3")
    assert run(*asked, "--ca-days=9", "--host=a.test", "--host=10.0.0.1") == 0

    document = yaml.safe_load(capsys.readouterr().out)
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


def test_without_a_pods_namespace_it_is_that_of_the_manifests(capsys, monkeypatch):
    monkeypatch.delenv("POD_NAMESPACE")

    assert run() == 0

    assert "namespace: gpu-metrics-adapter\n" in capsys.readouterr().out


def test_a_folder_gets_each_part_as_a_file(tmp_path, capsys):
    folder = tmp_path / "new" / "folder"

    assert run(f"--out={folder}") == 0

    assert capsys.readouterr().out == ""
    read = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(read) == {"ca.crt", "ca.key", "tls.crt", "tls.key", "secret.yaml", "caBundle"}
    assert base64.b64decode(read["caBundle"]) == read["ca.crt"]
    bundle = Bundle.parse(read["tls.crt"], read["tls.key"])
    assert secret.read(yaml.safe_load(read["secret.yaml"])).serving.chain == bundle.chain
    for name in ("ca.key", "tls.key", "secret.yaml"):
        assert (folder / name).stat().st_mode & 0o077 == 0


def test_a_key_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "ca.key").write_text("precious")

    assert run(f"--out={tmp_path}") == 1

    assert f"{tmp_path} has ca.key already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["ca.key"]


def test_a_ca_that_there_is_issues_again(tmp_path, capsys):
    run(f"--out={tmp_path / 'first'}")
    files = (
        f"--ca-cert-file={tmp_path / 'first/ca.crt'}",
        f"--ca-key-file={tmp_path / 'first/ca.key'}",
    )

    assert run(*files, f"--out={tmp_path / 'second'}") == 0

    for name, same in (("ca.crt", True), ("tls.crt", False)):
        both = [(tmp_path / folder / name).read_bytes() for folder in ("first", "second")]
        assert (both[0] == both[1]) is same
    chain = x509.load_pem_x509_certificates((tmp_path / "second/tls.crt").read_bytes())
    chain[0].verify_directly_issued_by(chain[1])


def test_what_is_in_the_way_is_told(tmp_path, capsys):
    holder = Holder("no-ca", ca=False)
    certificate, key = tmp_path / "a", tmp_path / "b"
    certificate.write_bytes(holder.pem)
    key.write_bytes(holder.bundle.key_pem)
    told = []

    for argv in (
        [f"--ca-cert-file={certificate}"],
        [f"--ca-cert-file={certificate}", f"--ca-key-file={key}"],
        ["--ca-cert-file=/none", f"--ca-key-file={key}"],
        ["--host=ä"],
    ):
        assert run(*argv) == 1
        told.append(capsys.readouterr().err.strip())

    assert told[0] == "--ca-cert-file and --ca-key-file need each other"
    assert told[1] == "CN=no-ca is not a CA"
    assert "No such file or directory: '/none'" in told[2]
    assert told[3].startswith("cannot issue a certificate for host 'ä'")


@pytest.mark.parametrize("argv", [["--days=0"], ["--days=x"], ["--day=3"]])
def test_a_wrong_command_line_is_refused(argv):
    with pytest.raises(SystemExit) as ended:
        run(*argv)

    assert ended.value.code == 2
