"""The HTTP proxy on the way to another server, where the environment names one.

It is looked up once for each server, as Go does. aiohttp's `trust_env` would do so for each request
in another thread, and read a .netrc besides.
"""

from __future__ import annotations

import ipaddress
import urllib.request

import yarl


def on_the_way_to(url: str) -> str | None:
    """The proxy's URL for requests to `url`; there is none on the way to this machine itself.

    https://pkg.go.dev/golang.org/x/net/http/httpproxy#Config
    """
    there = yarl.URL(url)
    host = there.host or ""
    named = urllib.request.getproxies()
    proxy = named.get(there.scheme)
    if proxy is None or _is_near(host, named.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_near(host: str, excepted: str) -> bool:
    """Whether this machine has the host, or NO_PROXY excepts it by name, address or network."""
    if host == "localhost" or urllib.request.proxy_bypass(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(
        address in network for network in map(_network, excepted.split(",")) if network
    )


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None
