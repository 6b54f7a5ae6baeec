"""Fuzz tests: hostile responses of Prometheus and hostile kubeconfigs are BackendErrors only.

Prometheus' responses go through a real connection.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import time

import aiohttp
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adapter import errors
from adapter.clients import kubeconfig, kubernetes
from adapter.clients.limits import Held
from adapter.clients.prometheus import Prometheus
from adapter.server.apimachinery import encoding
from tests import effort
from tools.fakes import prometheus as fakes

pytestmark = pytest.mark.slow

SECONDS = 5.0
"""Timeout of the client."""


@functools.cache
def max_cpu():
    """Return ten times the CPU time of parsing 20 kB of YAML, as every kubeconfig is parsed."""
    text = "[" + "a," * 10_000 + "]"
    return 10 * min(effort.seconds(lambda: yaml.safe_load(text)) for _ in range(3))


# Documents

NUMBERS = st.integers() | st.floats() | st.integers(10**300, 10**310)
TEXTS = st.text(max_size=8) | st.sampled_from(["1e999999999", "NaN", "+Inf", "1_0", "9" * 5000, ""])
KEYS = st.sampled_from(
    [
        "status", "data", "result", "resultType", "metric", "value", "values", "histogram",
        "warnings", "error", "errorType", "__name__",
    ]
) | st.text(max_size=3)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TIMES = NUMBERS | st.sampled_from([1700000000.123, 1e300, -1e300]) | VALUES
LABELS = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3) | VALUES
SAMPLES = st.fixed_dictionaries(
    {}, optional={"metric": LABELS, "value": st.tuples(TIMES, TEXTS) | VALUES, "histogram": VALUES}
)
RESULTS = st.lists(SAMPLES | VALUES, max_size=4) | st.tuples(TIMES, TEXTS) | VALUES
KINDS = st.sampled_from(["vector", "scalar", "matrix", "string"]) | VALUES
CONTENTS = (
    st.fixed_dictionaries({"resultType": KINDS, "result": RESULTS})
    | st.lists(TEXTS | LABELS, max_size=4)
    | VALUES
)
STATUSES = st.just("success") | VALUES
DOCUMENTS = VALUES | st.fixed_dictionaries(
    {"status": STATUSES, "data": CONTENTS}, optional={"warnings": VALUES, "error": VALUES}
)


@st.composite
def bodies(draw) -> bytes:
    """JSON as Python writes it, with NaN and lone surrogates, perhaps truncated or repeated."""
    body = json.dumps(draw(DOCUMENTS), ensure_ascii=draw(st.booleans()))
    data = body.encode(errors=draw(st.sampled_from(["surrogatepass", "replace"])))
    if draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    if draw(st.booleans()):
        data += draw(st.binary(max_size=6))
    return data


DEEP = b'{"status":"success","data":{"resultType":"vector","result":['
EXAMPLES = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    DEEP + b"[" * 100_000,
    DEEP + b'{"metric":' * 100_000,
    DEEP + b'"' + b"\\" * 500_001,
    DEEP + b"9" * 500_000 + b"]}}",
    DEEP + b'{"metric":{},"value":[' + b"9" * 5_000 + b',"1"]}]}}',
    DEEP + b'{"metric":{},"value":[1,"' + b"9" * 500_000 + b'"]}]}}',
    DEEP + b"," * 500_000 + b"]}}",
    DEEP + b'{"metric":{},"value":[1,"1"]}' * 3 + b"]}}",
    b'{"status":"success","data":[' + b'{"__name__":1},' * 3 + b"]}",
]


@pytest.mark.parametrize("method", ["query", "names", "label_names", "series"])
async def test_hostile_responses_of_prometheus_are_backend_errors(aiohttp_server, method):
    body, status = b"", 200

    async def respond(request, received):
        return await fakes.says(body, status=status)(request, received)

    server = await aiohttp_server(fakes.Prometheus(respond).app())
    held = Held()
    loop = asyncio.get_running_loop()

    async def fetch(session: aiohttp.ClientSession) -> None:
        client = Prometheus(session, str(server.make_url("/")), timeout=SECONDS, held=held)
        started = time.process_time()
        try:
            if method == "query":
                result = await client.query("up")
                for sample in result.samples:
                    assert all(isinstance(each, str) for each in sample.labels.values())
                    assert isinstance(sample.value, float)
                    encoding.timestamp(sample.time)
            else:
                await getattr(client, method)("up", 0.0, 1.0)
        except errors.BackendError as error:
            assert len(str(error)) < 3_000  # noqa: PT017 - an error is not required
        assert time.process_time() - started < max_cpu()
        assert held.bytes == 0

    @given(bodies(), st.sampled_from([200, 200, 200, 204, 400, 503]))
    @settings(suppress_health_check=list(HealthCheck))
    def check(given_body: bytes, given_status: int) -> None:
        nonlocal body, status
        body, status = given_body, given_status
        asyncio.run_coroutine_threadsafe(fetch(session), loop).result(timeout=30)

    for each in EXAMPLES:
        check = example(each, 200)(check)
    async with aiohttp.ClientSession() as session:
        await asyncio.to_thread(check)


# Kubeconfigs

_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
_ENCODED = st.sampled_from(["", "x", "AAAA", "LS0tLS1CRUdJTi0tLS0t", "é", "9" * 5_000])
CLUSTERS = st.fixed_dictionaries(
    {},
    optional={
        "server": st.sampled_from(
            ["https://127.0.0.1:9", "http://127.0.0.1:99999", "http://[", "x", "", "//", "ftp://x"]
        )
        | _ODD,
        "certificate-authority": _ODD,
        "certificate-authority-data": _ENCODED | _ODD,
        "insecure-skip-tls-verify": _ODD,
        "tls-server-name": _ODD,
        "proxy-url": st.sampled_from(["http://[", "socks5://x", "http://x:99999"]) | _ODD,
    },
)
USERS = st.fixed_dictionaries(
    {},
    optional={
        "token": _ODD,
        "tokenFile": _ODD,
        "username": _ODD,
        "password": _ODD,
        "client-certificate": _ODD,
        "client-certificate-data": _ENCODED | _ODD,
        "client-key-data": _ENCODED | _ODD,
        # Commands are run and identity providers queried; these neither exist.
        "exec": st.fixed_dictionaries(
            {"command": st.just("/none")}, optional={"args": _ODD, "env": _ODD, "apiVersion": _ODD}
        ),
        "auth-provider": st.fixed_dictionaries(
            {"name": st.just("oidc")},
            optional={"config": st.dictionaries(st.just("id-token"), st.text(max_size=9) | _ODD)},
        )
        | _ODD,
    },
)


def _named(key: str, values: st.SearchStrategy) -> st.SearchStrategy:
    item = st.fixed_dictionaries({"name": st.just("a") | _ODD, key: values | _ODD})
    return st.lists(item | _ODD, min_size=1, max_size=2) | _ODD


KUBECONFIGS = st.fixed_dictionaries(
    {"current-context": st.just("a") | _ODD},
    optional={
        "clusters": _named("cluster", CLUSTERS),
        "users": _named("user", USERS),
        "contexts": _named("context", st.just({"cluster": "a", "user": "a"})),
    },
)


@given(document=KUBECONFIGS)
@example(document={"current-context": "a", "clusters": math.inf, "contexts": "a"})
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_hostile_kubeconfigs_are_backend_errors(tmp_path, document):
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")

    async def use() -> None:
        try:
            await kubeconfig.load(str(path), server=kubeconfig.ANY_SERVER)
        except errors.BackendError as error:
            assert str(path) in str(error)  # noqa: PT017 - an error is not required
        try:
            client = await kubernetes.Kube.connect(str(path), qps=1e6, burst=10**6)
        except errors.BackendError as error:
            assert str(path) in str(error)  # noqa: PT017 - an error is not required
        else:
            await client.close()

    started = time.process_time()
    asyncio.run(use())
    assert time.process_time() - started < max_cpu()


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@example(content=b"[" * 100_000)
@example(content=b"{a: " * 100_000)
@example(content=b"a: " + b"9" * 5_000)
@example(content=b"a: 0x" + b"f" * 50_000)
@example(content=b"a: 9999-99-99")
@example(content=b"a: !!timestamp x")
@example(content=b"? [a]\n: b")
@example(content=b"? {a: b}\n: c")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_that_are_no_kubeconfigs_are_backend_errors(tmp_path, content):
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)

    with pytest.raises(errors.BackendError):
        asyncio.run(kubeconfig.load(str(path), server=kubeconfig.ANY_SERVER))
