"""`certs issue`: issues a CA and a serving certificate, for an adapter without rights to Secrets.

It replaces the original's `gencerts.sh`, and needs neither openssl nor cfssl.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.settings.flag import FILE, STRING, FlagGroup, flag, integer, repeated
from rules.findings import Finding

SERVICE = "gpu-metrics-adapter"
_MAX_DAYS = 36499


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue(FlagGroup):
    """What is issued, and where it is written."""

    TITLE = "Flags"

    service: str = flag("service-name", STRING, "Name of the Service.", default=SERVICE)
    namespace: str = flag(
        "service-namespace",
        STRING,
        f"Namespace of the Service and the Secret. Without it `$POD_NAMESPACE`, else {SERVICE}.",
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


COMMAND = settings.CommandSpec(
    name="certs issue",
    help=f"""Usage: gpu-metrics-adapter certs issue [FLAGS]

Issues a CA and a serving certificate for the DNS names of a Service, with ECDSA keys on P-256. The
Secret is printed to standard output as YAML, everything else to standard error.

{settings.flag_help(Issue)}""",
    groups=(Issue,),
    arguments=("issue",),
    words=("issue",),
)


def main(argv: Sequence[str]) -> int:
    """Return 0 for success, 1 if nothing can be issued. Raises UsageError, HelpRequested."""
    line = COMMAND.parse(argv)
    if line.positional != ("issue",):
        raise COMMAND.error(line.positional[0], "expected issue")
    from adapter.cli.commands import certs_issue

    (options,) = line.groups
    return certs_issue.run(options)
