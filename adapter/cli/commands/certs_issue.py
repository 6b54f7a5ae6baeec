"""Issues what `certs issue` prints or writes."""

from __future__ import annotations

import base64
import datetime as dt
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from adapter.cli.commands.certs import SERVICE, Issue
from adapter.files import read_file
from certs import secret
from certs.bundle import CertificateError
from certs.issue import Authority
from certs.renew import CertificatePolicy, SharedKeys
from rules.metrics_apis import CUSTOM

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


def run(options: Issue) -> int:
    """Print or write the files; return 0 for success, 1 if nothing can be issued."""
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


def _issue(options: Issue) -> SharedKeys:
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


def _namespace(options: Issue) -> str:
    return options.namespace or os.environ.get("POD_NAMESPACE") or SERVICE


def _files(state: SharedKeys, options: Issue) -> Mapping[str, bytes]:
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
