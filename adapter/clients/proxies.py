"""HTTP proxy that the environment configures for a server.

It is looked up once per server, as Go does. aiohttp's `trust_env` would do that for each request in
another thread, and would also read .netrc.
"""

from __future__ import annotations

import ipaddress
import urllib.request

import yarl


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for requests to `url`; None for loopback addresses.

    https://pkg.go.dev/golang.org/x/net/http/httpproxy#Config
    """
    target = yarl.URL(url)
    host = target.host or ""
    environment = urllib.request.getproxies()
    proxy = environment.get(target.scheme)
    if proxy is None or _bypasses_proxy(host, environment.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _bypasses_proxy(host: str, no_proxy: str) -> bool:
    """Return whether the host is loopback, or NO_PROXY has its name, address or network."""
    if host == "localhost" or urllib.request.proxy_bypass(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # urllib does not know networks.
    return address.is_loopback or any(
        address in network for network in map(_network, no_proxy.split(",")) if network
    )


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None
