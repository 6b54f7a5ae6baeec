"""`certs issue`: an authority and a certificate by hand, where the adapter may not make them.

It does what the original's `gencerts.sh` did with openssl and cfssl, without either.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from adapter.tls import serving_certificate
from certs import secret
from certs.bundle import CertificateError
from certs.issue import Authority
from certs.renew import State

NAME = "certs"
SUMMARY = "make a CA, a serving certificate, its Secret and the caBundle: certs issue"

_SERVICE = "gpu-metrics-adapter"
_PRIVATE = ("ca.key", "tls.key", "secret.yaml")

_NEXT = """
The Secret holds the key of the CA as well, so that an adapter that may read it goes on from there:
it renews the certificate, and publishes the caBundle by itself. For one that serves tls.crt and
tls.key with --tls-cert-file and --tls-private-key-file, do that by hand, for each APIService:

  kubectl patch apiservice v1beta1.custom.metrics.k8s.io --type=merge \\
    -p '{{"spec":{{"insecureSkipTLSVerify":null,"caBundle":"{bundle}"}}}}'
"""


def main(argv: Sequence[str]) -> int:
    """0 if it was made, 1 if something is in the way, 2 for a wrong command line."""
    asked = _parser().parse_args(argv)
    try:
        state = _issue(asked)
        files = _files(state, asked)
        if asked.out is None:
            print(files["secret.yaml"].decode(), end="")
        else:
            _write(asked.out, files)
    except (CertificateError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    for certificate, what in zip(state.serving.chain, ("certificate", "CA"), strict=True):
        subject = certificate.subject.rfc4514_string()
        print(f"{what} {subject}, until {certificate.not_valid_after_utc}", file=sys.stderr)
    print(f"good for {', '.join(state.serving.names)}", file=sys.stderr)
    print(_NEXT.format(bundle=files["caBundle"].decode()), file=sys.stderr, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"gpu-metrics-adapter {NAME}", description=SUMMARY, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="issue")
    issue = commands.add_parser(
        "issue",
        description="Make a CA and a certificate for a Service's DNS names, ECDSA on P-256. The "
        "Secret goes to standard output as YAML, everything else to standard error.",
        allow_abbrev=False,
    )
    issue.add_argument(
        "--service-name", default=_SERVICE, metavar="NAME", help="of the Service (%(default)s)"
    )
    issue.add_argument(
        "--service-namespace",
        default=os.environ.get("POD_NAMESPACE") or _SERVICE,
        metavar="NAMESPACE",
        help="of the Service and the Secret ($POD_NAMESPACE, else %(default)s)",
    )
    issue.add_argument("--secret-name", metavar="NAME", help="of the Secret (SERVICE-tls)")
    issue.add_argument(
        "--host",
        action="append",
        default=[],
        help="a further name or address that the certificate is for; repeatable",
    )
    issue.add_argument("--days", type=_days, default=365, help="of the certificate (%(default)s)")
    issue.add_argument("--ca-days", type=_days, default=1825, help="of the CA (%(default)s)")
    issue.add_argument(
        "--ca-cert-file", type=Path, metavar="FILE", help="issue from this CA, not from a new one"
    )
    issue.add_argument("--ca-key-file", type=Path, metavar="FILE", help="the key of that CA")
    issue.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write ca.crt, ca.key, tls.crt, tls.key, secret.yaml and caBundle there instead",
    )
    return parser


def _days(text: str) -> int:
    days = int(text)
    if not 0 < days < 36500:
        raise ValueError(text)
    return days


def _issue(asked: argparse.Namespace) -> State:
    now = dt.datetime.now(dt.UTC)
    name = asked.service_name
    if bool(asked.ca_cert_file) != bool(asked.ca_key_file):
        raise CertificateError("--ca-cert-file and --ca-key-file need each other")
    if asked.ca_cert_file:
        authority = Authority.parse(asked.ca_cert_file.read_bytes(), asked.ca_key_file.read_bytes())
    else:
        authority = Authority.create(name, now=now, valid=dt.timedelta(days=asked.ca_days))
    hosts = (*serving_certificate.policy(name, asked.service_namespace).hosts, *asked.host)
    valid = dt.timedelta(days=asked.days)
    return State(
        authority=authority, serving=authority.issue(hosts, name=name, now=now, valid=valid)
    )


def _files(state: State, asked: argparse.Namespace) -> Mapping[str, bytes]:
    document = secret.document(
        state,
        name=asked.secret_name or serving_certificate.secret_name(asked.service_name),
        namespace=asked.service_namespace,
    )
    return {
        "ca.crt": state.authority.pem,
        "ca.key": state.authority.key_pem,
        "tls.crt": state.serving.chain_pem,
        "tls.key": state.serving.key_pem,
        "secret.yaml": yaml.safe_dump(document, sort_keys=False).encode(),
        "caBundle": base64.b64encode(state.ca_bundle),
    }


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """All of them or, where one of them exists, none: a key is not overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    if existing := [name for name in files if (folder / name).exists()]:
        raise CertificateError(f"{folder} has {', '.join(existing)} already; name another folder")
    for name, content in files.items():
        (folder / name).touch(mode=0o600 if name in _PRIVATE else 0o644)
        (folder / name).write_bytes(content)
