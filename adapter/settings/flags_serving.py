"""Flags about how and to whom is answered: serving, authentication, authorization, features."""

from __future__ import annotations

from functools import partial

from adapter.settings.flag import Flag

_HTTP1 = "only HTTP/1.1 is served"

_serving = partial(Flag, group="Serving")
_authentication = partial(Flag, group="Authentication")
_authorization = partial(Flag, group="Authorization")
_feature = partial(Flag, group="Features", type="bool")

FLAGS = (
    _serving(
        name="bind-address",
        type="string",
        default="0.0.0.0",  # noqa: S104 - the original's, for a server in a pod of its own
        help="Address to listen on. With --objects nobody is asked who they are, so it must be, "
        "and is, a loopback address.",
    ),
    _serving(
        name="secure-port",
        type="int",
        default="443",
        help="Port to serve HTTPS on. 0, which makes the original serve nothing, is refused.",
    ),
    _serving(
        name="tls-cert-file",
        type="string",
        default="",
        help="File with the serving certificate and its chain.",
    ),
    _serving(
        name="tls-private-key-file",
        type="string",
        default="",
        help="File with the key of that certificate.",
    ),
    _serving(
        name="cert-dir",
        type="string",
        default="apiserver.local.config/certificates",
        help="Where `apiserver.crt` and `apiserver.key` are looked for when --tls-cert-file is not "
        "given. Without them the replicas issue their own, from an authority that they share in a "
        "Secret and publish to their APIServices; with --objects, one at each start.",
    ),
    _serving(
        name="tls-min-version",
        type="string",
        default="",
        help="Lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.",
    ),
    _serving(
        name="tls-cipher-suites",
        type="strings",
        default="",
        help="Cipher suites of TLS 1.2, by their Go names.",
    ),
    _serving(
        name="tls-curve-preferences",
        type="strings",
        default="",
        help="Curves for the key exchange, by their numbers.",
        effect="so far the curves that OpenSSL prefers are offered",
    ),
    _serving(
        name="tls-sni-cert-key",
        type="array",
        default="",
        help="Further serving certificate, as `CERT,KEY[:DOMAINS]`. Repeatable.",
    ),
    _serving(
        name="service-name",
        type="string",
        default="gpu-metrics-adapter",
        help="Service by which the cluster reaches the server: its certificate is for the "
        "Service's DNS names, and its APIServices are those that name the Service.",
    ),
    _serving(
        name="service-namespace",
        type="string",
        default="",
        help="Namespace of that Service, and of the Secret that the replicas share. Without it "
        "`$POD_NAMESPACE`, else `gpu-metrics-adapter`.",
    ),
    _serving(
        name="http2-max-streams-per-connection",
        type="int",
        default="0",
        help="HTTP/2 streams per connection.",
        effect=_HTTP1,
    ),
    _serving(
        name="disable-http2",
        type="bool",
        default="false",
        help="Serve no HTTP/2.",
        effect=_HTTP1,
    ),
    _serving(
        name="disable-http2-serving",
        type="bool",
        default="false",
        help="Serve no HTTP/2.",
        effect=_HTTP1,
    ),
    _serving(
        name="permit-port-sharing",
        type="bool",
        default="false",
        help="Listen with SO_REUSEPORT, so that another process may listen on the same port.",
    ),
    _serving(
        name="permit-address-sharing",
        type="bool",
        default="false",
        help="Listen with SO_REUSEADDR.",
        effect="the option is always set",
    ),
    _serving(
        name="shutdown-delay",
        type="duration",
        default="0s",
        help="How long to go on answering after SIGTERM or SIGINT, with /readyz failing, so that "
        "those who send requests here can find out; a second signal ends the process at once. (Not "
        "in the original, which closes its listeners immediately.)",
    ),
    _authentication(
        name="authentication-kubeconfig",
        type="string",
        default="",
        help="Kubeconfig of the cluster that reviews tokens, says whom to trust and has the "
        "APIServices; without it that of --lister-kubeconfig.",
    ),
    _authentication(
        name="authentication-token-webhook-cache-ttl",
        type="duration",
        default="10s",
        help="How long the review of a token is remembered.",
    ),
    _authentication(
        name="authentication-skip-lookup",
        type="bool",
        default="false",
        help="Do not read kube-system/extension-apiserver-authentication.",
    ),
    _authentication(
        name="authentication-tolerate-lookup-failure",
        type="bool",
        default="false",
        help="Start even if that ConfigMap cannot be read.",
    ),
    _authentication(
        name="client-ca-file",
        type="string",
        default="",
        help="File with the CA certificates of clients.",
    ),
    _authentication(
        name="requestheader-client-ca-file",
        type="string",
        default="",
        help="File with the CA certificates of the front proxy.",
    ),
    _authentication(
        name="requestheader-allowed-names",
        type="strings",
        default="",
        help="Common names that the front proxy may have; none stands for any.",
    ),
    _authentication(
        name="requestheader-username-headers",
        type="strings",
        default="x-remote-user",
        help="Headers in which the front proxy names the user.",
    ),
    _authentication(
        name="requestheader-uid-headers",
        type="strings",
        default="",
        help="Headers in which the front proxy gives the user's UID.",
    ),
    _authentication(
        name="requestheader-group-headers",
        type="strings",
        default="x-remote-group",
        help="Headers in which the front proxy names the user's groups.",
    ),
    _authentication(
        name="requestheader-extra-headers-prefix",
        type="strings",
        default="x-remote-extra-",
        help="Beginnings of the headers in which the front proxy says more about the user.",
    ),
    _authorization(
        name="authorization-kubeconfig",
        type="string",
        default="",
        help="Kubeconfig of the cluster that reviews access; without it that of "
        "--authentication-kubeconfig.",
    ),
    _authorization(
        name="authorization-webhook-cache-authorized-ttl",
        type="duration",
        default="1m0s",
        help="How long an allowed access is remembered. (The original's default is 10s.)",
    ),
    _authorization(
        name="authorization-webhook-cache-unauthorized-ttl",
        type="duration",
        default="10s",
        help="How long a denied access is remembered.",
    ),
    _authorization(
        name="authorization-always-allow-paths",
        type="strings",
        default="/healthz,/readyz,/livez",
        help="Paths that need no review; a `*` at the end allows all that begin so.",
    ),
    _feature(
        name="profiling",
        default="true",
        help="Serve /debug/pprof.",
        effect="there is no /debug/pprof",
    ),
    _feature(
        name="contention-profiling",
        default="false",
        help="Profile what blocks.",
        effect="there is no /debug/pprof",
    ),
    _feature(
        name="debug-socket-path",
        type="string",
        default="",
        help="Unix socket for profiling.",
        effect="there is no /debug/pprof",
    ),
    _feature(
        name="enable-priority-and-fairness",
        default="false",
        help="Queue requests by priority.",
        effect="there is no priority and fairness, as in the original by default",
    ),
)
