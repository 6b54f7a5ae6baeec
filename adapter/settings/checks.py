"""From the command line to `Settings`: checked as a whole, with every problem told at once."""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from adapter.auth import authorization, trust
from adapter.settings import argv as command_line
from adapter.settings.flag import Flag, Value
from adapter.settings.settings import Settings, Source
from adapter.settings.table import FLAGS
from adapter.tls import ciphers, files
from rules import quantity

_NANOSECONDS = 1_000_000_000
_DISCOVERY_INTERVAL = 600.0
_CLIENT_QPS = 5.0
_CLIENT_BURST = 10


class UsageError(Exception):
    """A command line that cannot be used; `problems` holds everything that was found."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class HelpRequested(Exception):
    """`-h` or `--help` was given."""


def parse(argv: Iterable[str]) -> Settings:
    """The settings that `argv` (without the program's name) asks for.

    Raises UsageError with all that is wrong, HelpRequested for `-h` and `--help`.
    """
    line = command_line.read(argv, FLAGS)
    if line.help:
        raise HelpRequested
    checked = _Checked(line)
    settings = checked.settings()
    if checked.problems:
        raise UsageError(checked.problems)
    return settings


class _Checked:
    def __init__(self, line: command_line.CommandLine) -> None:
        self.given = line.given
        self.named = {each.flag.name for each in line.given}
        self.problems = list(line.problems)
        self.values: Mapping[str, Value] = command_line.values(line.given, FLAGS)

    def settings(self) -> Settings:
        sources, terms = self.sources(), self.tls_options()
        relist, max_age = self.relist()
        self.check_kubeconfigs()
        self.check_pair("prometheus-client-tls-cert-file", "prometheus-client-tls-key-file")
        self.check_pair("tls-cert-file", "tls-private-key-file")
        qps, burst = self.number("client-qps"), self.integer("client-burst")
        return Settings(
            sources=sources,
            metrics_relist_interval=relist,
            metrics_max_age=max_age,
            prometheus_url=self.url(),
            prometheus_verb=self.verb(),
            prometheus_headers=self.headers(),
            prometheus_timeout=self.seconds("prometheus-timeout", above_zero=True),
            prometheus_token_file=self.file("prometheus-token-file"),
            prometheus_ca_file=self.file("prometheus-ca-file"),
            prometheus_client_tls_cert_file=self.file("prometheus-client-tls-cert-file"),
            prometheus_client_tls_key_file=self.file("prometheus-client-tls-key-file"),
            prometheus_auth_incluster=self.switch("prometheus-auth-incluster"),
            prometheus_auth_config=self.file("prometheus-auth-config"),
            lister_kubeconfig=self.file("lister-kubeconfig"),
            objects=self.texts("objects"),
            discovery_interval=self.seconds("discovery-interval") or _DISCOVERY_INTERVAL,
            client_qps=qps if qps > 0 else _CLIENT_QPS,
            client_burst=burst if burst > 0 else _CLIENT_BURST,
            bind_address=self.bind_address(),
            secure_port=self.port(),
            permit_port_sharing=self.switch("permit-port-sharing"),
            tls_cert_file=self.file("tls-cert-file"),
            tls_private_key_file=self.file("tls-private-key-file"),
            cert_dir=self.text("cert-dir"),
            tls_options=terms,
            tls_sni=self.tls_sni(),
            service_name=self.text("service-name"),
            service_namespace=self.text("service-namespace"),
            shutdown_delay=self.seconds("shutdown-delay"),
            authentication_kubeconfig=self.file("authentication-kubeconfig"),
            token_ttl=self.seconds("authentication-token-webhook-cache-ttl"),
            skip_lookup=self.switch("authentication-skip-lookup"),
            tolerate_lookup_failure=self.switch("authentication-tolerate-lookup-failure"),
            client_ca_file=self.file("client-ca-file"),
            requestheader_client_ca_file=self.file("requestheader-client-ca-file"),
            requestheader=trust.Headers(
                allowed_names=self.texts("requestheader-allowed-names"),
                username_headers=self.texts("requestheader-username-headers"),
                uid_headers=self.texts("requestheader-uid-headers"),
                group_headers=self.texts("requestheader-group-headers"),
                extra_prefixes=self.texts("requestheader-extra-headers-prefix"),
            ),
            authorization_kubeconfig=self.file("authorization-kubeconfig"),
            allowed_ttl=self.seconds("authorization-webhook-cache-authorized-ttl"),
            denied_ttl=self.seconds("authorization-webhook-cache-unauthorized-ttl"),
            always_allow_paths=self.open_paths(),
            verbosity=self.integer("v"),
            notices=(*self.notices(), *terms.notices),
        )

    def sources(self) -> tuple[Source, ...]:
        sources: list[Source] = []
        for each in self.given:
            if each.flag.name in ("config", "preset") and isinstance(each.value, tuple):
                kind: Literal["config", "preset"] = (
                    "config" if each.flag.name == "config" else "preset"
                )
                sources += [Source(kind=kind, name=name) for name in each.value if name]
        return tuple(sources)

    def relist(self) -> tuple[float, float]:
        interval = self.seconds("metrics-relist-interval", above_zero=True)
        max_age = self.seconds("metrics-max-age")
        if 0 < max_age < interval:
            self.problems.append(
                f"--metrics-max-age={self.shown('metrics-max-age')} is shorter than "
                f"--metrics-relist-interval={self.shown('metrics-relist-interval')}: "
                "series would be lost between two listings"
            )
        return interval, max_age or interval

    def verb(self) -> Literal["GET", "POST"]:
        match self.text("prometheus-verb"):
            case "POST":
                return "POST"
            case "GET":
                return "GET"
            case other:
                self.problems.append(f"--prometheus-verb={other}: must be GET or POST")
                return "GET"

    def check_kubeconfigs(self) -> None:
        kubeconfig = self.text("prometheus-auth-config")
        if self.switch("prometheus-auth-incluster") and kubeconfig:
            self.problems.append(
                f"--prometheus-auth-incluster and --prometheus-auth-config={kubeconfig} "
                "exclude each other"
            )

    def check_pair(self, certificate: str, key: str) -> None:
        for present, absent in ((certificate, key), (key, certificate)):
            if self.text(present) and not self.text(absent):
                self.problems.append(f"--{present}={self.text(present)} needs --{absent} as well")

    def url(self) -> str:
        text = self.text("prometheus-url")
        try:
            url = urllib.parse.urlsplit(text)
            usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        if not usable:
            shown = re.sub("//[^/@]*@", "//...@", text)
            self.problems.append(
                f"--prometheus-url={shown}: must be an http or https URL with a host"
            )
        return text

    def headers(self) -> tuple[tuple[str, str], ...]:
        headers: list[tuple[str, str]] = []
        for text in self.texts("prometheus-header"):
            name, _, value = text.partition("=")
            # RFC 9110, 5.1 and 5.5
            token = re.match(r"[!#$%&'*+.^_`|~0-9A-Za-z-]*", name)
            assert token is not None
            if token[0] != name or not name:
                # The rest may be a secret: `Authorization: Bearer ...` is a likely slip.
                self.problems.append(
                    f"--prometheus-header={token[0]}...: must be Name=value, "
                    "with the name of a header before the equals sign"
                )
            elif re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
                self.problems.append(
                    f"--prometheus-header={name}: its value holds a control character"
                )
            headers.append((name, value))
        return tuple(headers)

    def bind_address(self) -> str:
        """The address given; a loopback address where nobody can be asked who callers are."""
        text = self.text("bind-address").strip()
        unasked = bool(self.texts("objects"))
        if unasked and "bind-address" not in self.named:
            return "127.0.0.1"
        try:
            loopback = text == "localhost" or ipaddress.ip_address(text).is_loopback
        except ValueError:
            self.problems.append(f"--bind-address={text}: must be an IP address")
        else:
            if unasked and not loopback:
                self.problems.append(
                    f"--bind-address={text}: with --objects there is no cluster to ask who callers "
                    "are, so the server listens on a loopback address only (in 127.0.0.0/8, ::1 or "
                    "localhost)"
                )
        return text

    def tls_options(self) -> ciphers.TLSOptions:
        version, suites = self.text("tls-min-version"), self.texts("tls-cipher-suites")
        try:
            return ciphers.terms(version, suites)
        except ValueError as error:
            named = "tls-min-version" if "version" in str(error) else "tls-cipher-suites"
            self.problems.append(f"--{named}: {error}")
            return ciphers.terms()

    def tls_sni(self) -> tuple[files.CertKeyPair, ...]:
        found: list[files.CertKeyPair] = []
        for text in self.texts("tls-sni-cert-key"):
            try:
                found.append(files.sni(text))
            except ValueError as error:
                self.problems.append(f"--tls-sni-cert-key={text}: {error}")
        return tuple(found)

    def open_paths(self) -> tuple[str, ...]:
        paths = self.texts("authorization-always-allow-paths")
        try:
            authorization.OpenPaths(paths)
        except ValueError as error:
            self.problems.append(f"--authorization-always-allow-paths: {error}")
        return paths

    def port(self) -> int:
        port = self.integer("secure-port")
        if port == 0:
            self.problems.append("--secure-port=0: nothing would be served")
        elif not 0 < port < 2**16:
            self.problems.append(f"--secure-port={port}: must be between 1 and 65535")
        return port

    def notices(self) -> tuple[str, ...]:
        by_reason: dict[str, list[Flag]] = {}
        for each in self.given:
            if not each.flag.works:
                by_reason.setdefault(each.flag.effect, []).append(each.flag)
        notices = [
            f"{_named(flags)}: accepted, without effect: {reason}"
            for reason, flags in by_reason.items()
        ]
        if self.texts("objects") and "lister-kubeconfig" in self.named:
            notices.append(
                "--lister-kubeconfig: accepted, without effect: "
                "the manifests of --objects stand for the cluster"
            )
        if self.file("prometheus-token-file") and (named := self.asker()):
            notices.append(f"--prometheus-token-file: accepted, without effect: {named} goes first")
        return tuple(notices)

    def asker(self) -> str | None:
        """What says who asks Prometheus, and leaves no place for a token."""
        if any(
            text.lower().startswith("authorization=") for text in self.texts("prometheus-header")
        ):
            return "the Authorization of --prometheus-header"
        if re.match("[^/]*//[^/?#]*@", self.text("prometheus-url")):
            return "the user in --prometheus-url"
        return None

    def seconds(self, name: str, *, above_zero: bool = False) -> float:
        nanoseconds = self.integer(name)
        if nanoseconds < 0 or (above_zero and nanoseconds == 0):
            bound = "more than 0" if above_zero else "0 or more"
            self.problems.append(f"--{name}={self.shown(name)}: must be {bound}")
        return nanoseconds / _NANOSECONDS

    def shown(self, name: str) -> str:
        return quantity.format_go_duration(self.integer(name))

    def file(self, name: str) -> str | None:
        return self.text(name) or None

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        assert isinstance(value, tuple)
        return tuple(text for text in value if text)

    def switch(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool)
        return value

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def number(self, name: str) -> float:
        value = self.values[name]
        assert isinstance(value, float)
        return value


def _named(flags: Iterable[Flag]) -> str:
    return ", ".join(dict.fromkeys(f"--{flag.name}" for flag in flags))
