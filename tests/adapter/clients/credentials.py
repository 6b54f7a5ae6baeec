"""Credentials of the tests of Prometheus clients, and what a fake Prometheus received."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

from adapter import settings
from tools import kubeconfig as kubeconfigs
from tools.certificates import Holder
from tools.fakes import prometheus as fakes

USER, PASSWORD = "jane", "w0rd-in-the-file"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
HASHED = "$2b$04$Eeyhefj65Ppv0zzTF.54TuMoBTF4CM558RBlxvmoTFTmgExEwVovm"
"""The password, by bcrypt with the fewest rounds."""
EMPTY = '{"status":"success","data":{"resultType":"vector","result":[]}}'
TOKEN = "s3cret-t0ken"
FLAGS = {field: f"--{flag.name}" for field, flag in settings.PrometheusSettings.flags()}


def holder(name, issuer=None, **options):
    return Holder(name, issuer, now=datetime.now(UTC), **options)


CA, OTHER_CA = holder("ca", ca=True), holder("another ca", ca=True)


def kubeconfig(folder, cluster=None, user=None):
    cluster = {"server": "https://192.0.2.1", **(cluster or {})}
    path = kubeconfigs.write(folder / "kubeconfig", cluster, user or {})
    return f"--prometheus-auth-config={path}"


def sent(fake):
    return [one.headers.get("Authorization") for one in fake.requests]


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_text(content)


def wants(headers):
    """Respond if a request has `headers`; otherwise refuse it, and repeat those that it has."""

    async def behave(request, received):
        got = {name: received.headers.get(name) for name in headers}
        body = EMPTY if got == headers else f"not {' '.join(map(str, got.values()))}"
        return await fakes.says(body, status=200 if got == headers else 401)(request, received)

    return behave
