"""Tests on a real Prometheus where it succeeds, and on a fake one where it fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import signal
import sys
import time

import aiohttp
import prometheus_client
import pytest
from aiohttp import web

from adapter import errors, telemetry
from adapter.clients import circuit_breaker, limits, prometheus
from adapter.clients.prometheus import Prometheus
from adapter.clients.reachability import problem_of
from rules.findings import State
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real
from tools.waiting import Clock, until

THREE_QUERIES = """
import asyncio, re, sys
from pathlib import Path
import aiohttp
from adapter.clients.prometheus import Prometheus

async def main():
    async with aiohttp.ClientSession() as session:
        client = Prometheus(session, sys.argv[1], timeout=600)
        queries = (client.query("up") for _ in range(3))
        for result in await asyncio.gather(*queries, return_exceptions=True):
            print(type(result).__name__)
    # Not ru_maxrss, which includes the memory of the parent before exec.
    print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

asyncio.run(main())
"""
"""Prints the outcomes, and the peak of the resident memory in KiB."""

EMPTY = '{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.fixture(scope="module")
def running(empty_prometheus: real.Prometheus) -> real.Prometheus:
    empty_prometheus.put(
        'gpu_used{pod="a",uuid="1"} 12.5',
        'gpu_used{pod="b",node="{\\"]"} -Inf',
        'gpu_free{pod="a"} NaN',
        'gpu_total{exported_pod="a"} +Inf',
        at=time.time() - 1,
    )
    return empty_prometheus


@pytest.fixture
def client(running, session) -> Prometheus:
    return Prometheus(session, running.url, timeout=10)


def vector_of(element: str) -> str:
    return EMPTY.replace("[]", f"[{element}]")


def window() -> tuple[float, float]:
    now = time.time()
    return now - 600, now


def vector(samples: int) -> bytes:
    elements = (
        f'{{"metric":{{"pod":"worker-{number}"}},"value":[1700000000.123,"97.5"]}}'
        for number in range(samples)
    )
    return EMPTY.replace("[]", f"[{','.join(elements)}]").encode()


# Responses


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_vector_has_labels_values_and_times(running, session, verb):
    client, began = Prometheus(session, f"{running.url}/?ignored=1", verb=verb), time.time()

    result = await client.query('gpu_used{pod="a"}')

    (sample,) = result.samples
    assert result.kind == "vector"
    assert sample.labels == {"__name__": "gpu_used", "pod": "a", "uuid": "1"}
    assert sample.value == 12.5
    assert began - 0.001 <= sample.time <= time.time()


async def test_nan_and_infinity_are_kept(client):
    result = await client.query('{__name__=~"gpu_free|gpu_total"} or gpu_used{pod="b"}')

    values = {sample.labels["__name__"]: sample.value for sample in result.samples}
    assert math.isnan(values.pop("gpu_free"))
    assert values == {"gpu_total": math.inf, "gpu_used": -math.inf}


async def test_scalar_is_one_sample_without_labels(client):
    result = await client.query("2.25")

    assert result.kind == "scalar"
    assert [(sample.labels, sample.value) for sample in result.samples] == [({}, 2.25)]


async def test_string_is_refused_as_the_original_refuses_it(client):
    with pytest.raises(errors.Broken, match="needs an instant vector"):
        await client.query('"text"')


async def test_matrix_has_no_samples(client):
    result = await client.query('gpu_used{pod="a"}[10m]')

    assert (result.kind, result.samples) == ("matrix", ())


async def test_names_and_label_names_are_those_of_the_selector(client):
    selector = '{__name__=~"gpu_.*",pod!=""}'

    assert (await client.names(selector, *window())).content == ("gpu_free", "gpu_used")
    assert (await client.label_names(selector, *window())).content == ("node", "pod", "uuid")


async def test_series_are_reduced_to_names_with_label_names(client):
    label_names = (await client.series('{__name__=~"gpu_.*"}', *window())).content

    assert label_names == {
        "gpu_free": {"pod"},
        "gpu_total": {"exported_pod"},
        "gpu_used": {"pod", "node", "uuid"},
    }


async def test_unmatched_selector_has_no_series(client):
    assert (await client.series("no_such_metric", *window())).content == {}


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_refused_query_keeps_the_status_the_query_and_the_error_of_prometheus(
    running, session, verb
):
    client = Prometheus(session, running.url, verb=verb)

    with pytest.raises(errors.Refused) as caught:
        await client.query("sum(gpu_used")

    assert caught.value.status == 400
    assert "bad_data" in str(caught.value)
    assert "unclosed left parenthesis" in str(caught.value)
    assert "`sum(gpu_used`" in str(caught.value)


async def test_execution_error_is_refused_with_its_status(client):
    with pytest.raises(errors.Refused, match=r"execution: .*many-to-many") as caught:
        await client.query("gpu_used * on() gpu_used")

    assert caught.value.status == 422


async def test_limit_of_samples_is_not_a_wrong_query(real_servers, tmp_path, session):
    with real.run(tmp_path, flags=("--query.max-samples=2",)) as server:
        server.put('a{pod="x"} 1', 'a{pod="y"} 1', 'a{pod="z"} 1')

        with pytest.raises(errors.TooLarge, match="too many samples") as caught:
            await Prometheus(session, server.url).query("a")

    assert caught.value.query == "a"
    assert caught.value.refusal.startswith("execution: query processing would load too many")


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (
            422,
            "execution",
            (
                "expanding series: the query exceeded the maximum number of series (limit: 9 "
                "series) (err-mimir-max-series-per-query). Consider reducing the time range"
            ),
        ),
        (
            422,
            "execution",
            "expanding series: the query hit the max number of series limit (limit: 9 series)",
        ),
        (422, "execution", "the query hit the aggregated data size limit (limit: 9 bytes)"),
        (
            500,
            "internal",
            (
                "rpc error: code = ResourceExhausted desc = exceeded series limit: rpc error: code "
                "= Code(422) desc = limit 12000 violated (got 12704)"
            ),
        ),
        (
            422,
            "422",
            "cannot select more than -search.maxSamplesPerQuery=9 samples; possible solutions",
        ),
        (
            422,
            "422",
            (
                'error when searching for tagFilters=[{__name__="secret"}] on the time range: the '
                "number of matching timeseries exceeds 9; either narrow down the search or increase"
            ),
        ),
    ],
    ids=["mimir", "cortex", "cortex-bytes", "thanos", "victoriametrics", "victoriametrics-series"],
)
async def test_limits_of_other_backends_are_not_wrong_queries(serve, session, status, kind, text):
    document = {"status": "error", "errorType": kind, "error": text}
    fake = await serve(fakes.says(json.dumps(document), status=status))

    with pytest.raises(errors.TooLarge) as caught:
        await Prometheus(session, fake.url).query("up")

    assert caught.value.refusal == f"{kind}: {text}".replace('{__name__="secret"}', "{...}")


async def test_parse_error_that_quotes_a_limit_is_a_wrong_query(serve, session):
    text = '1:2: parse error: unexpected "limit 9 violated"'
    document = {"status": "error", "errorType": "bad_data", "error": text}
    fake = await serve(fakes.says(json.dumps(document), status=400))

    with pytest.raises(errors.Refused):
        await Prometheus(session, fake.url).query("up")


async def test_refusal_has_no_labels_of_series(running, client):
    # Callers see it, and the series may belong to another tenant.
    running.put('own{gpu="0"} 1', *(f'other{{gpu="0",pod="secret}}-{each}"}} 1' for each in (1, 2)))

    with pytest.raises(errors.Refused) as caught:
        await client.query("own / on (gpu) other")

    assert "secret" in str(caught.value)
    assert "secret" not in caught.value.refusal
    assert "match group {...} on the right" in caught.value.refusal


# Requests


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_path_and_query_string_of_the_url_are_sent_with_each_request(serve, session, verb):
    targets = []

    async def behave(request, received):
        targets.append((request.path, request.query_string.partition("&query=")[0]))
        return await fakes.says(EMPTY)(request, received)

    fake = await serve(behave)
    url = f"{fake.url}some/prefix/?nocache=1&extra_label=a%26b&extra_label=c&query=1&timeout=1#f"
    client = Prometheus(session, url, verb=verb)

    await client.query("up")
    with pytest.raises(errors.Broken):
        await client.names("up", 0, 1)

    query, names = (each.parameters for each in fake.requests)
    assert (query["nocache"], query["query"], query["timeout"]) == ("1", "up", "30000ms")
    assert (names["nocache"], names["match[]"]) == ("1", "up")
    assert targets[0] == ("/some/prefix/api/v1/query", "nocache=1&extra_label=a%26b&extra_label=c")


async def test_headers_are_sent_and_gzip_is_accepted(fake, session):
    client = Prometheus(session, fake.url, headers={"X-Scope-OrgID": "team"})

    await client.query("up")

    assert fake.requests[0].headers["X-Scope-OrgID"] == "team"
    assert fake.requests[0].headers["Accept-Encoding"] == "gzip"


async def test_credentials_in_the_url_are_sent_and_never_logged(serve, session, caplog):
    caplog.set_level(logging.DEBUG)
    fake = await serve(fakes.says("{}", status=500))
    client = Prometheus(session, fake.url.replace("http://", "http://user:secret@"))

    with pytest.raises(errors.Broken) as caught:
        await client.query("up")

    assert fake.requests[0].headers["Authorization"].startswith("Basic ")
    assert "secret" not in str(caught.value) + caplog.text
    assert f"GET http://{fake.url.removeprefix('http://').rstrip('/')}" in caplog.text


async def redirects_forever(request, received):
    raise web.HTTPFound(request.rel_url)


async def repeats_the_target(request, received):
    return web.Response(status=404, text=f"no {request.raw_path} and {request.query['token']}")


@pytest.mark.parametrize("behave", [redirects_forever, repeats_the_target])
async def test_values_of_the_query_string_are_sent_and_never_logged(serve, session, caplog, behave):
    caplog.set_level(logging.DEBUG)
    fake = await serve(behave)
    client = Prometheus(session, f"{fake.url}?token=s3cret%2Fw0rd")

    with pytest.raises(errors.BackendError) as caught:
        await client.query("up")

    assert fake.requests[0].parameters["token"] == "s3cret/w0rd"
    logged = [each.getMessage() for each in caplog.records if each.name.startswith("adapter")]
    assert logged
    assert "s3cret" not in f"{caught.value} {logged} {client.reachability.check().fact}"


async def test_each_request_is_logged_at_debug_level_without_credentials(fake, session, caplog):
    client = Prometheus(session, fake.url.replace("http://", "http://user:secret@"))

    with caplog.at_level(logging.DEBUG, logger="adapter"):
        await client.query("up == 1")

    (message,) = caplog.messages
    url = re.escape(f"{fake.url}api/v1/query")
    assert re.fullmatch(rf"GET {url} `up == 1`: ok in \d+ ms", message)


@pytest.mark.parametrize(
    ("source", "setting"), [("default", "--prometheus-verb"), ("other", "sources.other.verb")]
)
async def test_refused_post_names_the_setting_of_the_source(
    serve, session, caplog, source, setting
):
    fake = await serve(fakes.says("no", status=405))

    with pytest.raises(errors.Refused):
        await Prometheus(session, fake.url, verb="POST", source=source).query("up")

    assert f"set {setting} to GET if it is never allowed" in caplog.text


async def test_refused_post_switches_to_get_for_five_minutes(serve, session, caplog):
    allowed = {"GET"}

    async def respond(request, received):
        if received.verb in allowed:
            return await fakes.says(EMPTY)(request, received)
        return await fakes.says("no", status=405)(request, received)

    fake = await serve(respond)
    now = 1000.0
    client = Prometheus(session, fake.url, verb="POST", monotonic=lambda: now)

    def methods():
        sent = [received.verb for received in fake.requests]
        fake.requests.clear()
        return sent

    for _ in range(2):
        await client.query("up")
    assert methods() == ["POST", "GET", "GET"]
    now += 299.0
    await client.query("up")
    assert methods() == ["GET"]
    now += 1.0
    await client.query("up")
    assert methods() == ["POST", "GET"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "405" in caplog.text
    allowed.add("POST")
    now += 300.0
    for _ in range(2):
        await client.query("up")
    assert methods() == ["POST", "POST"]
    allowed.remove("POST")
    await client.query("up")
    assert len(caplog.records) == 2


async def test_only_405_makes_post_fall_back_to_get(serve, session):
    fake = await serve(fakes.says("no", status=403))
    client = Prometheus(session, fake.url, verb="POST")

    with pytest.raises(errors.Refused):
        await client.query("up")

    assert [received.verb for received in fake.requests] == ["POST"]


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://host", "http://", "/path"])
async def test_invalid_url_is_refused(session, url):
    with pytest.raises(ValueError, match="not the URL of a Prometheus"):
        Prometheus(session, url)


# Failures


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (400, '{"status":"error","errorType":"bad_data","error":"why"}', errors.Refused, "why"),
        (403, "forbidden <b>here</b>", errors.Refused, "forbidden"),
        (404, "", errors.Refused, "404 Not Found"),
        (404, "404 page not found", errors.Refused, "no Prometheus API below http://127.0.0.1:"),
        (429, "[]", errors.Refused, "429"),
        (500, '{"status":"error","errorType":"internal","error":"why"}', errors.Broken, "why"),
        (502, "<html>", errors.Broken, "<html>"),
        (503, '{"errorType":"timeout","error":"why"}', errors.QueryTimedOut, "why"),
        (304, "", errors.Broken, "304"),
        (200, '{"status":"error","errorType":"internal","error":"why"}', errors.Broken, "why"),
    ],
)
async def test_error_status_becomes_a_backend_error(serve, session, status, body, error, message):
    fake = await serve(fakes.says(body, status=status))
    client = Prometheus(session, fake.url)

    with pytest.raises(error, match=message) as caught:
        await client.query("up")

    assert not isinstance(caught.value, aiohttp.ClientError)
    if error is errors.Refused:
        assert caught.value.status == status


async def test_error_that_arrives_in_parts_is_read_to_its_end(serve, session):
    fake = await serve(
        fakes.dribbles('{"status":"error",', '"errorType":"timeout",', '"error":"why"}', status=503)
    )

    with pytest.raises(errors.TimedOut, match="503 timeout: why"):
        await Prometheus(session, fake.url).query("up")


async def test_endless_error_is_cut_off(serve, session):
    behave, sent = fakes.endless(b"x" * 1000, status=500)
    fake = await serve(behave)

    with pytest.raises(errors.Broken, match="500"):
        await Prometheus(session, fake.url).query("up")
    assert sum(sent) < 8 << 20


MALFORMED = {
    "query": [
        "<html>",
        '{"status":"success","data":{"resultType":"vec',
        "[]",
        '{"status":"success"}',
        '{"status":"success","data":[]}',
        '{"status":"success","data":{"resultType":"streams","result":[]}}',
        vector_of('{"metric":{}}'),
        vector_of('{"metric":{},"value":[1,2]}'),
        vector_of('{"metric":null,"value":[1,"2"]}'),
        '{"status":"success","data":{"resultType":"scalar","result":[1,"x"]}}',
        '{"status":"success","data":{"resultType":"vector","result":null}}',
        '{"status":"success","data":{"resultType":"vector","result":[]},"warnings":"x"}',
        vector_of("[],[],[]"),
        vector_of('{"metric":{"a":{}},"value":[1,"2"]}'),
        *(
            vector_of(f'{{"metric":{{}},"value":[{point}]}}')
            for point in (
                '1e300,"1"',
                '-1e300,"1"',
                '1e999,"1"',
                'NaN,"1"',
                '"nan","1"',
                f'{"9" * 400},"1"',
                '253402300800,"1"',
                '1,"1e999999999"',
                f'1,"{"9" * 5000}"',
            )
        ),
    ],
    "series": [
        "<html>",
        '{"status":"success","data":[{"__name__":"a"}',
        '{"status":"success","data":[{"__name__":"a',
        '{"status":"success","data":["a"]}',
        '{"status":"success","data":[{"a":{}}]}',
        '{"status":"success","data":[{"a"}]}',
        '{"status":"success","data":{}}',
        '{"status":"error","error":"why"}',
        '{"status":"error","data":[]}',
    ],
    "names": [
        '{"status":"success","data":[1]}',
        '{"status":"success","data":[],"warnings":"x"}',
    ],
    "query_range": [
        '{"status":"success","data":{"resultType":"vector","result":[]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[1]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[1]}]}}',
        '{"status":"error","error":"why"}',
    ],
    "types": ["{", "[]", '{"status":"success","data":{"up":[{}]}}'],
}


@pytest.mark.parametrize("method", MALFORMED)
async def test_malformed_response_is_broken(serve, session, method):
    arguments = () if method in {"query", "types"} else window()
    if method == "query_range":
        arguments = (*arguments, 60.0)
    for body in MALFORMED[method]:
        client = Prometheus(session, (await serve(fakes.says(body))).url)
        with pytest.raises(errors.Broken):
            pytest.fail(f"{body} is {await getattr(client, method)('up', *arguments)}")


async def test_null_means_no_names(serve, session):
    fake = await serve(fakes.says('{"status":"success","data":null}'))

    assert (await Prometheus(session, fake.url).names("up", *window())).content == ()


@pytest.mark.parametrize(
    ("more", "partial"),
    [
        ('"isPartial":false', ""),
        ('"isPartial":true', "isPartial is true"),
        ('"warnings":["a store is away","b, too"]', "a store is away; b, too"),
        ('"warnings":["PromQL info: not a counter","PromQL warning: bad bucket"]', ""),
        ('"warnings":["PromQL warning: bad bucket","a store is away"]', "a store is away"),
        ('"warnings":["PromQL warning: bad bucket","5 more warning annotations omitted"]', ""),
        ('"infos":["PromQL info: not a counter","5 more info annotations omitted"]', ""),
    ],
)
async def test_a_response_says_what_it_lacks(serve, session, caplog, more, partial):
    registry, fake = prometheus_client.CollectorRegistry(), await serve(fakes.says(""))
    requests = telemetry.PrometheusRequestMetrics(registry)
    client = Prometheus(session, fake.url, requests=requests)
    for data, call in (
        ('{"resultType":"vector","result":[]}', client.query("up")),
        ("[]", client.names("up", *window())),
        ("[]", client.label_names("up", *window())),
        ("[]", client.series("up", *window())),
    ):
        fake.behave = fakes.says(f'{{"status":"success","data":{data},{more}}}')
        assert (await call).partial == partial

    counted = [
        sample.labels["outcome"]
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "gpu_metrics_adapter_prometheus_request_duration_seconds_count"
    ]
    assert set(counted) == {"Partial" if partial else "ok"}
    assert [partial in each.message for each in caplog.records] == [True] * bool(partial)
    assert ("sends partial responses" in client.reachability.check().fact) == bool(partial)


async def test_native_histograms_are_left_out(serve, session):
    elements = '{"metric":{},"histogram":[1,{}]},{"metric":{"a":"b"},"value":[1,"2"]}'
    body = EMPTY.replace("[]", f"[{elements}]")
    fake = await serve(fakes.says(body))

    result = await Prometheus(session, fake.url).query("up")

    assert [sample.labels for sample in result.samples] == [{"a": "b"}]


@pytest.mark.parametrize(
    ("behave", "error"),
    [
        (fakes.hangs, errors.TimedOut),
        (fakes.stalls('{"status":'), errors.TimedOut),
        (fakes.hangs_up, errors.Unreachable),
        (fakes.cut_off('{"status":'), errors.Unreachable),
        (fakes.broken_gzip, errors.Broken),
    ],
    ids=["hangs", "stalls", "hangs-up", "cut-off", "gzip"],
)
async def test_failed_transfer_is_a_backend_error(serve, session, behave, error):
    """A request for series may take three times as long as a query."""
    timeout = 0.1 if error is errors.TimedOut else 30.0
    client = Prometheus(session, (await serve(behave)).url, timeout=timeout)

    with pytest.raises(error) as caught:
        await client.series("up", *window())

    assert ("no complete response within 0.3 s" in str(caught.value)) == (timeout == 0.1)


async def test_closed_port_is_unreachable(unused_tcp_port, session):
    client = Prometheus(session, f"http://127.0.0.1:{unused_tcp_port}")

    with pytest.raises(errors.Unreachable):
        await client.query("up")


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
async def test_oversized_response_is_aborted_while_it_arrives(
    serve, session, monkeypatch, compressed
):
    monkeypatch.setattr(prometheus, "MAX_RESULT", 1 << 19)
    behave, sent = fakes.endless(b'["' + b"a" * 100_000 + b'"]', compressed=compressed)
    fake = await serve(behave)

    with pytest.raises(errors.TooLarge):
        await Prometheus(session, fake.url).query("up")

    await asyncio.sleep(0.05)
    assert sum(sent) < 200 << 20


@pytest.mark.slow
async def test_oversized_series_response_is_aborted(serve, session, monkeypatch):
    monkeypatch.setattr(prometheus, "_MAX_SERIES", 1 << 20)
    beginning = '{"status":"success","data":['
    fake = await serve(fakes.says(beginning + '{"__name__":"a"},' * 100_000))

    with pytest.raises(errors.TooLarge):
        await Prometheus(session, fake.url).series("up", *window())


async def test_series_are_not_kept_while_they_are_read(serve, session, monkeypatch):
    monkeypatch.setattr(limits, "MAX_HELD", 1 << 10)
    elements = ",".join(f'{{"__name__":"a","pod":"{pod}"}}' for pod in range(10_000))
    fake = await serve(fakes.says(f'{{"status":"success","data":[{elements}]}}'))

    series = await Prometheus(session, fake.url).series("up", *window())
    assert series.content == {"a": {"pod"}}


async def test_responses_that_together_exceed_the_budget_fail_and_the_others_go_on(
    serve, session, monkeypatch
):
    monkeypatch.setattr(limits, "MAX_HELD", 1 << 20)
    body = vector(10_000)
    assert 1 << 19 < len(body) < 1 << 20
    arrived, finish = asyncio.Event(), asyncio.Event()

    async def respond(request, received):
        response = web.StreamResponse()
        await response.prepare(request)
        content = body
        await response.write(content[:-1])
        if received.parameters["query"] == "first":
            arrived.set()
            await finish.wait()
        await response.write(content[-1:])
        return response

    every = limits.Held()
    client = Prometheus(session, (await serve(respond)).url, held=every)
    first = asyncio.create_task(client.query("first"))
    await arrived.wait()
    await until(lambda: every.bytes >= len(body) - 1)

    with pytest.raises(errors.TooLarge, match="all responses in flight together"):
        await client.query("second")

    monkeypatch.setattr(limits, "MAX_HELD", len(body))
    body = vector(100)
    assert len((await client.query("small")).samples) == 100

    finish.set()
    assert len((await first).samples) == 10_000
    assert len((await client.query("third")).samples) == 100
    assert every.bytes == 0


@pytest.mark.slow
async def test_event_loop_runs_while_a_large_response_is_parsed(serve, session):
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    fake = await serve(fakes.says(vector(100_000)))
    counting = asyncio.create_task(count())

    result = await Prometheus(session, fake.url).query("up")

    counting.cancel()
    assert len(result.samples) == 100_000
    assert turns > 100


@pytest.mark.usefixtures("real_servers")
async def test_three_responses_of_57_mib_at_once_need_little_memory(serve):
    body = vector(57 * 16_000)
    assert len(body) > 57 << 20
    fake = await serve(fakes.says(body))

    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", THREE_QUERIES, fake.url, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await client.communicate()

    *outcomes, peak = output.decode().split()
    assert outcomes == ["TooLarge"] * 3
    assert int(peak) < 400 << 10


async def test_long_queries_are_shortened_in_errors(serve, session):
    fake = await serve(fakes.says("no", status=414))
    client = Prometheus(session, fake.url)

    with pytest.raises(errors.Refused) as caught:
        await client.query("a" * 5000)

    assert len(str(caught.value)) < 2000


# Metrics


async def test_requests_are_counted_by_path_and_outcome(fake, session):
    registry = prometheus_client.CollectorRegistry()
    client = Prometheus(session, fake.url, requests=telemetry.PrometheusRequestMetrics(registry))

    await client.query("up")
    fake.behave = fakes.says("no", status=400)
    with pytest.raises(errors.Refused):
        await client.query("up")

    def count(outcome: str) -> float | None:
        return registry.get_sample_value(
            "gpu_metrics_adapter_prometheus_request_duration_seconds_count",
            {"source": "default", "path": "/api/v1/query", "outcome": outcome},
        )

    received = registry.get_sample_value(
        "gpu_metrics_adapter_prometheus_response_bytes_total",
        {"source": "default", "path": "/api/v1/query"},
    )
    assert (count("ok"), count("Refused")) == (1, 1)
    assert received == len(EMPTY) + len("no")


async def test_types_of_a_series_are_those_that_targets_declare(serve, session):
    body = '{"status":"success","data":{"up":[{"type":"gauge","help":"h","unit":""}]}}'
    fake = await serve(fakes.says(body))
    client = Prometheus(session, fake.url)

    assert await client.types("up") == {"gauge"}
    assert await client.types("down") == set()


async def test_a_series_from_remote_write_has_no_type(client):
    assert await client.types("gpu_used") == set()


# Retry-After


def overloaded(status: int, headers: dict[str, str]) -> fakes.Behaviour:
    async def behave(request, received):
        return web.Response(status=status, headers=headers, text="slow down")

    return behave


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("retry_after", "date", "seconds"),
    [
        ("7", None, 7),
        ("86400", None, 60),
        ("Wed, 21 Oct 2015 07:28:30 GMT", "Wed, 21 Oct 2015 07:28:00 GMT", 30),
        ("Wed, 21 Oct 2065 07:28:00 GMT", None, 60),
    ],
)
async def test_no_request_is_sent_until_retry_after(
    serve, session, status, retry_after, date, seconds
):
    clock = Clock(1000.0)
    headers = {"Retry-After": retry_after} | ({"Date": date} if date else {})
    fake = await serve(overloaded(status, headers))
    client = Prometheus(session, fake.url, monotonic=clock)

    with pytest.raises(errors.Overloaded, match=f"{status} .*slow down") as caught:
        await client.query("up")
    assert caught.value.retry_after == seconds
    assert f"status {status} with Retry-After" in client.reachability.check().fact

    clock.now += seconds - 1
    for send in (client.query("up"), client.names("up", 0, 1)):
        with pytest.raises(
            errors.Overloaded, match="is not queried for 1 s, as it asked"
        ) as caught:
            await send
    assert caught.value.status == status
    assert len(fake.requests) == 1
    assert client.reachability.check().state is State.WARNING

    clock.now += 1
    fake.behave = fakes.says(EMPTY)
    await client.query("up")
    assert client.reachability.check().fact == "answers"


@pytest.mark.parametrize(
    "retry_after", ["", "0", "-1", "soon", "1e9", "Wed, 21 Oct 2015 07:28:00 GMT", "\u0663"]
)
async def test_retry_after_that_says_nothing_is_ignored(serve, session, retry_after):
    fake = await serve(overloaded(429, {"Retry-After": retry_after}))
    client = Prometheus(session, fake.url)

    for _ in range(2):
        with pytest.raises(errors.Refused, match="429"):
            await client.query("up")

    assert len(fake.requests) == 2


async def test_a_dead_source_is_probed_once_a_second(unused_tcp_port, session):
    clock = Clock(1000.0)
    client = Prometheus(
        session, f"http://127.0.0.1:{unused_tcp_port}", source="down", monotonic=clock
    )
    for _ in range(5):
        with pytest.raises(errors.Unreachable, match="Cannot connect"):
            await client.query("up")

    with pytest.raises(errors.Unreachable, match="the source down is not queried, because 5"):
        await client.names("up", 0, 1)


async def test_no_request_waits_for_a_prometheus_that_stands_still(real_servers, tmp_path, session):
    with real.run(tmp_path) as server:
        client = Prometheus(session, server.url, timeout=0.1)
        queries = (client.query("up") for _ in range(circuit_breaker.FAILURES))
        os.kill(server.pid, signal.SIGSTOP)
        await asyncio.to_thread(os.waitpid, server.pid, os.WUNTRACED)
        try:
            first = await asyncio.gather(*queries, return_exceptions=True)
            later = await asyncio.gather(
                *(client.query("up") for _ in range(50)), return_exceptions=True
            )
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await until(lambda: answers(client))
        client.close()

    assert {type(each) for each in first} == {errors.TimedOut}
    assert all("is not queried" in str(error) for error in later)
    assert {problem_of(error) for error in (*first, *later)} == {
        "does not respond in time (check its load, and --prometheus-timeout)"
    }


async def answers(client: Prometheus) -> bool:
    with contextlib.suppress(errors.BackendError):
        await client.query("up")
        return True
    return False
