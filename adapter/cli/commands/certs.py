"""`certs issue`: issues a CA and a serving certificate, for an adapter without rights to Secrets.

It replaces the original's `gencerts.sh`, and needs neither openssl nor cfssl.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from adapter import settings
from adapter.files import read_file
from adapter.settings.flag import FlagGroup, flag
from adapter.settings.flag_types import FILE, STRING, integer, repeated
from certs import secret
from certs.bundle import CertificateError
from certs.issue import Authority
from certs.renew import CertificatePolicy, SharedKeys
from rules.findings import Finding
from rules.metrics_apis import CUSTOM

_SERVICE = "gpu-metrics-adapter"
_MAX_DAYS = 36499
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PRIVATE = ("ca.key", "tls.key", "secret.yaml")

_NEXT_STEPS = """
The Secret also contains the key of the CA. An adapter that may update the Secret renews the
certificate and publishes the caBundle. To store the Secret:

  kubectl apply --server-side --force-conflicts --field-manager=certs-issue -f secret.yaml

If the adapter uses tls.crt and tls.key with --tls-cert-file and --tls-private-key-file instead,
publish the caBundle in each APIService yourself:

  kubectl patch apiservice {apiservice} --type=merge \\
    -p '{{"spec":{{"insecureSkipTLSVerify":null,"caBundle":"{bundle}"}}}}'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Issue(FlagGroup):
    """What is issued, and where it is written."""

    TITLE = "Flags"

    service: str = flag("service-name", STRING, "Name of the Service.", default=_SERVICE)
    namespace: str = flag(
        "service-namespace",
        STRING,
        f"Namespace of the Service and the Secret. Without it `$POD_NAMESPACE`, else {_SERVICE}.",
    )
    secret: str = flag(
        "secret-name", STRING, "Name of the Secret. Without it that of the Service and -tls."
    )
    hosts: tuple[str, ...] = flag(
        "host", repeated("name", str), "Additional DNS name or IP address in the certificate."
    )
    days: int = flag(
        "days", integer(1, _MAX_DAYS), "Validity of the certificate in days.", default="365"
    )
    ca_days: int = flag(
        "ca-days", integer(1, _MAX_DAYS), "Validity of the CA in days.", default="1825"
    )
    ca_cert_file: str | None = flag(
        "ca-cert-file", FILE, "PEM file with an existing CA that issues the certificate."
    )
    ca_key_file: str | None = flag("ca-key-file", FILE, "PEM file with the key of that CA.")
    out: str | None = flag(
        "out",
        FILE,
        "Directory for ca.crt, ca.key, tls.crt, tls.key, secret.yaml and caBundle, instead of "
        "standard output.",
    )

    def problems(self) -> Iterable[Finding]:
        """Yield a problem if the CA is incomplete."""
        if (self.ca_cert_file is None) != (self.ca_key_file is None):
            yield Finding(fact="--ca-cert-file and --ca-key-file must be given together")


_COMMAND = settings.CommandSpec(
    name="certs issue",
    help=f"""Usage: gpu-metrics-adapter certs issue [FLAGS]

Issues a CA and a serving certificate for the DNS names of a Service, with ECDSA keys on P-256. The
Secret is printed to standard output as YAML, everything else to standard error.

{settings.flag_help(_Issue)}""",
    groups=(_Issue,),
    arguments=("issue",),
)


def main(argv: Sequence[str]) -> int:
    """Return 0 for success, 1 if nothing can be issued. Raises UsageError, HelpRequested."""
    line = _COMMAND.parse(argv)
    if line.positional != ("issue",):
        raise _COMMAND.error(line.positional[0], "expected issue")
    (options,) = line.groups
    try:
        state = _issue(options)
        files = _files(state, options)
        if options.out is None:
            print(files["secret.yaml"].decode(), end="")
        else:
            _write(Path(options.out), files)
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
    bundle = files["caBundle"].decode()
    steps = _NEXT_STEPS.format(apiservice=CUSTOM.apiservices[0], bundle=bundle)
    print(steps, file=sys.stderr, end="")
    return 0


def _issue(options: _Issue) -> SharedKeys:
    now = dt.datetime.now(dt.UTC)
    name = options.service
    if options.ca_cert_file and options.ca_key_file:
        certificate, key = Path(options.ca_cert_file), Path(options.ca_key_file)
        authority = Authority.parse(read_file(certificate), read_file(key))
    else:
        authority = Authority.create(name, now=now, valid=dt.timedelta(days=options.ca_days))
    hosts = (*CertificatePolicy.of_service(name, _namespace(options)).hosts, *options.hosts)
    valid = dt.timedelta(days=options.days)
    return SharedKeys(
        authority=authority, serving=authority.issue(hosts, name=name, now=now, valid=valid)
    )


def _namespace(options: _Issue) -> str:
    return options.namespace or os.environ.get("POD_NAMESPACE") or _SERVICE


def _files(state: SharedKeys, options: _Issue) -> Mapping[str, bytes]:
    document = secret.document(
        state,
        name=options.secret or secret.name_of(options.service),
        namespace=_namespace(options),
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
