"""`certs issue`: issues a CA and a serving certificate, for an adapter without rights to Secrets.

It replaces the original's `gencerts.sh`, and needs neither openssl nor cfssl.
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

_SERVICE = "gpu-metrics-adapter"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PRIVATE = ("ca.key", "tls.key", "secret.yaml")

_NEXT_STEPS = """
The Secret also contains the key of the CA. An adapter that may update the Secret renews the
certificate and publishes the caBundle. To store the Secret:

  kubectl apply --server-side --force-conflicts --field-manager=certs-issue -f secret.yaml

If the adapter uses tls.crt and tls.key with --tls-cert-file and --tls-private-key-file instead,
publish the caBundle in each APIService yourself:

  kubectl patch apiservice v1beta1.custom.metrics.k8s.io --type=merge \\
    -p '{{"spec":{{"insecureSkipTLSVerify":null,"caBundle":"{bundle}"}}}}'
"""


def main(argv: Sequence[str]) -> int:
    """Return 0 for success, 1 if nothing can be issued; exit with 2 for invalid arguments."""
    options = _parser().parse_args(argv)
    try:
        state = _issue(options)
        files = _files(state, options)
        if options.out is None:
            print(files["secret.yaml"].decode(), end="")
        else:
            _write(options.out, files)
    except CertificateError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    for certificate, noun in zip(state.serving.chain, ("certificate", "CA"), strict=True):
        subject = certificate.subject.rfc4514_string()
        print(f"{noun} {subject}, valid until {certificate.not_valid_after_utc}", file=sys.stderr)
    print(f"DNS names: {', '.join(state.serving.names)}", file=sys.stderr)
    print(_NEXT_STEPS.format(bundle=files["caBundle"].decode()), file=sys.stderr, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-metrics-adapter certs",
        description="Issue certificates for the adapter.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="issue")
    issue = commands.add_parser(
        "issue",
        help="issue a CA, a serving certificate and their Secret",
        description="Issue a CA and a serving certificate for the DNS names of a Service, with "
        "ECDSA keys on P-256. The Secret is printed to standard output as YAML, everything else to "
        "standard error.",
        allow_abbrev=False,
    )
    issue.add_argument(
        "--service-name",
        default=_SERVICE,
        metavar="NAME",
        help="name of the Service (default %(default)s)",
    )
    issue.add_argument(
        "--service-namespace",
        default=os.environ.get("POD_NAMESPACE") or _SERVICE,
        metavar="NAMESPACE",
        help=f"namespace of the Service and the Secret (default: $POD_NAMESPACE, else {_SERVICE})",
    )
    issue.add_argument(
        "--secret-name",
        metavar="NAME",
        help="name of the Secret (default: the name of the Service and -tls)",
    )
    issue.add_argument(
        "--host",
        action="append",
        default=[],
        help="additional DNS name or IP address in the certificate; repeatable",
    )
    issue.add_argument(
        "--days",
        type=_days,
        default=365,
        help="validity of the certificate in days (default %(default)s)",
    )
    issue.add_argument(
        "--ca-days",
        type=_days,
        default=1825,
        help="validity of the CA in days (default %(default)s)",
    )
    issue.add_argument(
        "--ca-cert-file",
        type=Path,
        metavar="FILE",
        help="PEM file with an existing CA that issues the certificate",
    )
    issue.add_argument(
        "--ca-key-file", type=Path, metavar="FILE", help="PEM file with the key of that CA"
    )
    issue.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write ca.crt, ca.key, tls.crt, tls.key, secret.yaml and caBundle to this directory "
        "instead of standard output",
    )
    return parser


def _days(text: str) -> int:
    days = int(text) if text.isdecimal() else 0
    if not 0 < days < 36500:
        raise argparse.ArgumentTypeError(f"{text}: must be between 1 and 36499 days")
    return days


def _issue(options: argparse.Namespace) -> State:
    now = dt.datetime.now(dt.UTC)
    name = options.service_name
    if bool(options.ca_cert_file) != bool(options.ca_key_file):
        raise CertificateError("--ca-cert-file and --ca-key-file must be given together")
    if options.ca_cert_file:
        authority = Authority.parse(
            options.ca_cert_file.read_bytes(), options.ca_key_file.read_bytes()
        )
    else:
        authority = Authority.create(name, now=now, valid=dt.timedelta(days=options.ca_days))
    hosts = (*serving_certificate.policy(name, options.service_namespace).hosts, *options.host)
    valid = dt.timedelta(days=options.days)
    return State(
        authority=authority, serving=authority.issue(hosts, name=name, now=now, valid=valid)
    )


def _files(state: State, options: argparse.Namespace) -> Mapping[str, bytes]:
    document = secret.document(
        state,
        name=options.secret_name or serving_certificate.secret_name(options.service_name),
        namespace=options.service_namespace,
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
    """Write all files, or none if one of them exists: no key is overwritten.

    A symbolic link exists, whatever it points to, so that no key is written elsewhere.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if existing := [name for name in files if os.path.lexists(folder / name)]:
        raise CertificateError(
            f"{folder}: {', '.join(existing)} already exists; use another directory"
        )
    for name, content in files.items():
        mode = 0o600 if name in _PRIVATE else 0o644
        with os.fdopen(os.open(folder / name, _NEW_FILE, mode), "wb") as file:
            file.write(content)
