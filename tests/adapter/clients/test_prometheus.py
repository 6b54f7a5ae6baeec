"""What Prometheus answers is asked of a real one; how it fails is faked."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import aiohttp
import prometheus_client
import pytest

from adapter import errors, telemetry
from adapter.clients.prometheus import Prometheus
from tests.fakes import prometheus as fakes
from tests.real import prometheus as real

Serve = Callable[[fakes.Behaviour], Awaitable[fakes.Prometheus]]

EMPTY = '{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[real.Prometheus]:
    with real.run(tmp_path_factory.mktemp("prometheus")) as found:
        found.put(
            'gpu_used{pod="a",uuid="1"} 12.5',
            'gpu_used{pod="b",node="{\\"]"} -Inf',
            'gpu_free{pod="a"} NaN',
            'gpu_total{exported_pod="a"} +Inf',
            at=time.time() - 1,
        )
        yield found


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


@pytest.fixture
def asking(running, session) -> Prometheus:
    return Prometheus(session, running.url, timeout=10)


@pytest.fixture
def serve(aiohttp_server) -> Serve:
    async def start(behave: fakes.Behaviour) -> fakes.Prometheus:
        fake = fakes.Prometheus(behave)
        server = await aiohttp_server(fake.app())
        fake.url = str(server.make_url("/"))
        return fake

    return start


def window() -> tuple[float, float]:
    now = time.time()
    return now - 600, now


# Answers


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_vector_has_labels_values_and_times(running, session, verb):
    asking = Prometheus(session, f"{running.url}/?ignored=1", verb=verb)

    result = await asking.query('gpu_used{pod="a"}')

    (sample,) = result.samples
    assert result.kind == "vector"
    assert sample.labels == {"__name__": "gpu_used", "pod": "a", "uuid": "1"}
    assert sample.value == 12.5
    assert sample.time == pytest.approx(time.time(), abs=5)


async def test_values_that_are_no_numbers_arrive_as_they_are(asking):
    result = await asking.query('{__name__=~"gpu_free|gpu_total"} or gpu_used{pod="b"}')

    values = {sample.labels["__name__"]: sample.value for sample in result.samples}
    assert math.isnan(values.pop("gpu_free"))
    assert values == {"gpu_total": math.inf, "gpu_used": -math.inf}


async def test_scalar_is_one_sample_without_labels(asking):
    result = await asking.query("2.25")

    assert result.kind == "scalar"
    assert [(sample.labels, sample.value) for sample in result.samples] == [({}, 2.25)]


async def test_string_is_refused_as_the_original_refuses_it(asking):
    with pytest.raises(errors.Broken, match="needs an instant vector"):
        await asking.query('"text"')


async def test_matrix_is_told_point_by_point(asking):
    result = await asking.query('gpu_used{pod="a"}[10m]')

    assert result.kind == "matrix"
    assert [(sample.labels["pod"], sample.value) for sample in result.samples] == [("a", 12.5)]


async def test_names_and_label_names_are_those_of_the_selector(asking):
    selector = '{__name__=~"gpu_.*",pod!=""}'

    assert await asking.names(selector, *window()) == ("gpu_free", "gpu_used")
    assert await asking.label_names(selector, *window()) == ("node", "pod", "uuid")


async def test_series_are_reduced_to_names_with_label_names(asking):
    found = await asking.series('{__name__=~"gpu_.*"}', *window())

    assert found == {
        "gpu_free": {"pod"},
        "gpu_total": {"exported_pod"},
        "gpu_used": {"pod", "node", "uuid"},
    }


async def test_series_of_nothing_are_none(asking):
    assert await asking.series("no_such_metric", *window()) == {}


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_refused_query_keeps_status_query_and_what_prometheus_said(running, session, verb):
    asking = Prometheus(session, running.url, verb=verb)

    with pytest.raises(errors.Refused) as caught:
        await asking.query("sum(gpu_used")

    assert caught.value.status == 400
    assert "bad_data" in str(caught.value)
    assert "unclosed left parenthesis" in str(caught.value)
    assert "'sum(gpu_used'" in str(caught.value)


async def test_execution_error_is_refused_with_its_status(asking):
    with pytest.raises(errors.Refused, match=r"execution: .*many-to-many") as caught:
        await asking.query("gpu_used * on() gpu_used")

    assert caught.value.status == 422


# What is sent


async def test_path_of_the_url_is_kept_and_its_query_is_not(serve, session):
    fake = await serve(fakes.says(EMPTY))
    asking = Prometheus(session, f"{fake.url}some/prefix/?a=b#c")

    await asking.query("up")

    assert fake.asked[0].path == "/some/prefix/api/v1/query"
    assert "a" not in fake.asked[0].parameters


async def test_what_is_left_of_the_deadline_is_sent_as_the_timeout(serve, session):
    fake = await serve(fakes.says(EMPTY))
    asking = Prometheus(session, fake.url, timeout=30)

    await asking.query("up", deadline=asyncio.get_running_loop().time() + 5)
    await asking.query("up", deadline=asyncio.get_running_loop().time() + 100)
    await asking.query("up")

    sent = [asked.parameters["timeout"] for asked in fake.asked]
    assert all(text.endswith("ms") for text in sent)
    assert [int(text[:-2]) for text in sent] == [pytest.approx(5000, abs=500), 30000, 30000]


async def test_nothing_is_sent_once_the_deadline_has_passed(serve, session):
    fake = await serve(fakes.says(EMPTY))
    asking = Prometheus(session, fake.url)

    with pytest.raises(errors.TimedOut):
        await asking.query("up", deadline=asyncio.get_running_loop().time() - 1)

    assert not fake.asked


async def test_headers_are_sent_and_gzip_is_accepted(serve, session):
    fake = await serve(fakes.says(EMPTY))
    asking = Prometheus(session, fake.url, headers={"X-Scope-OrgID": "team"})

    await asking.query("up")

    assert fake.asked[0].headers["X-Scope-OrgID"] == "team"
    assert fake.asked[0].headers["Accept-Encoding"] == "gzip"


async def test_authorization_header_goes_before_the_credentials_of_the_url(serve, session):
    fake = await serve(fakes.says(EMPTY))
    url = fake.url.replace("http://", "http://user:secret@")
    asking = Prometheus(session, url, headers={"authorization": "Bearer token"})

    await asking.query("up")

    assert fake.asked[0].headers["Authorization"] == "Bearer token"


async def test_credentials_of_the_url_are_sent_and_never_told(serve, session):
    fake = await serve(fakes.says("{}", status=500))
    asking = Prometheus(session, fake.url.replace("http://", "http://user:secret@"))

    with pytest.raises(errors.Broken) as caught:
        await asking.query("up")

    assert fake.asked[0].headers["Authorization"].startswith("Basic ")
    assert "secret" not in str(caught.value) + asking.address


async def test_each_request_is_logged_at_debug_level_without_credentials(serve, session, caplog):
    fake = await serve(fakes.says(EMPTY))
    client = Prometheus(session, fake.url.replace("http://", "http://user:secret@"))

    with caplog.at_level(logging.DEBUG, logger="adapter"):
        await client.query("up == 1")

    (message,) = caplog.messages
    url = re.escape(f"{fake.url}api/v1/query")
    assert re.fullmatch(rf"GET {url} 'up == 1': ok in \d+ ms", message)


async def test_post_answered_405_falls_back_to_get_and_remembers(serve, session):
    async def only_get(request, asked):
        status = 200 if asked.verb == "GET" else 405
        return await fakes.says(EMPTY if status == 200 else "no", status=status)(request, asked)

    fake = await serve(only_get)
    asking = Prometheus(session, fake.url, verb="POST")

    await asking.query("up")
    await asking.query("up")

    assert [asked.verb for asked in fake.asked] == ["POST", "GET", "GET"]


async def test_other_refusals_of_post_are_not_asked_again(serve, session):
    fake = await serve(fakes.says("no", status=403))
    asking = Prometheus(session, fake.url, verb="POST")

    with pytest.raises(errors.Refused):
        await asking.query("up")

    assert [asked.verb for asked in fake.asked] == ["POST"]


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://host", "http://", "/path"])
async def test_what_is_no_url_of_a_prometheus_is_told_at_once(session, url):
    with pytest.raises(ValueError, match="not the URL of a Prometheus"):
        Prometheus(session, url)


# Failures


@pytest.mark.parametrize(
    ("status", "body", "error", "told"),
    [
        (400, '{"status":"error","errorType":"bad_data","error":"why"}', errors.Refused, "why"),
        (403, "forbidden <b>here</b>", errors.Refused, "forbidden"),
        (404, "", errors.Refused, "404 Not Found"),
        (429, "[]", errors.Refused, "429"),
        (500, '{"status":"error","errorType":"internal","error":"why"}', errors.Broken, "why"),
        (502, "<html>", errors.Broken, "<html>"),
        (503, '{"status":"error","errorType":"timeout","error":"why"}', errors.TimedOut, "why"),
        (304, "", errors.Broken, "304"),
        (200, '{"status":"error","errorType":"internal","error":"why"}', errors.Broken, "why"),
    ],
)
async def test_status_becomes_an_error_of_ours(serve, session, status, body, error, told):
    fake = await serve(fakes.says(body, status=status))
    asking = Prometheus(session, fake.url)

    with pytest.raises(error, match=told) as caught:
        await asking.query("up")

    assert not isinstance(caught.value, aiohttp.ClientError)
    if error is errors.Refused:
        assert caught.value.status == status


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("<html>", id="not-json"),
        pytest.param('{"status":"success","data":{"resultType":"vec', id="cut-off"),
        pytest.param("[]", id="not-an-object"),
        pytest.param('{"status":"success"}', id="no-data"),
        pytest.param('{"status":"success","data":[]}', id="data-of-another-shape"),
        pytest.param(
            '{"status":"success","data":{"resultType":"streams","result":[]}}', id="unknown-type"
        ),
        pytest.param(
            '{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
            id="no-value",
        ),
        pytest.param(
            '{"status":"success","data":{"resultType":"vector","result":'
            '[{"metric":{},"value":[1,2]}]}}',
            id="value-that-is-no-text",
        ),
        pytest.param(
            '{"status":"success","data":{"resultType":"vector","result":'
            '[{"metric":null,"value":[1,"2"]}]}}',
            id="labels-that-are-none",
        ),
        pytest.param(
            '{"status":"success","data":{"resultType":"scalar","result":[1,"x"]}}',
            id="no-number",
        ),
        pytest.param(
            '{"status":"success","data":{"resultType":"vector","result":null}}', id="no-result"
        ),
    ],
)
async def test_query_answer_that_cannot_be_understood_is_broken(serve, session, body):
    fake = await serve(fakes.says(body))

    with pytest.raises(errors.Broken):
        await Prometheus(session, fake.url).query("up")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("<html>", id="not-json"),
        pytest.param('{"status":"success","data":[{"__name__":"a"}', id="ends-inside"),
        pytest.param('{"status":"success","data":[{"__name__":"a', id="ends-in-an-element"),
        pytest.param('{"status":"success","data":["a"]}', id="strings"),
        pytest.param('{"status":"success","data":[{"a":{}}]}', id="nested"),
        pytest.param('{"status":"success","data":[{"a"}]}', id="bad-element"),
        pytest.param('{"status":"success","data":{}}', id="no-list"),
        pytest.param('{"status":"error","error":"why"}', id="error"),
        pytest.param('{"status":"error","data":[]}', id="error-with-data"),
    ],
)
async def test_series_that_cannot_be_understood_are_broken(serve, session, body):
    fake = await serve(fakes.says(body))

    with pytest.raises(errors.Broken):
        await Prometheus(session, fake.url).series("up", *window())


async def test_names_that_are_no_strings_are_broken(serve, session):
    fake = await serve(fakes.says('{"status":"success","data":[1]}'))

    with pytest.raises(errors.Broken):
        await Prometheus(session, fake.url).names("up", *window())


async def test_null_for_no_names_is_no_names(serve, session):
    fake = await serve(fakes.says('{"status":"success","data":null}'))

    assert await Prometheus(session, fake.url).names("up", *window()) == ()


async def test_warnings_and_infos_are_kept(serve, session):
    body = EMPTY[:-1] + ',"warnings":["a store is away"],"infos":["not a counter"]}'
    fake = await serve(fakes.says(body))

    result = await Prometheus(session, fake.url).query("up")

    assert result.warnings == ("a store is away",)
    assert result.infos == ("not a counter",)


async def test_native_histograms_have_no_value(serve, session):
    elements = '{"metric":{},"histogram":[1,{}]},{"metric":{"a":"b"},"value":[1,"2"]}'
    body = EMPTY.replace("[]", f"[{elements}]")
    fake = await serve(fakes.says(body))

    result = await Prometheus(session, fake.url).query("up")

    assert [sample.labels for sample in result.samples] == [{"a": "b"}]


async def test_no_answer_in_time_is_timed_out(serve, session):
    fake = await serve(fakes.hangs)

    with pytest.raises(errors.TimedOut, match="no whole answer"):
        await Prometheus(session, fake.url, timeout=0.1).names("up", *window())


async def test_answer_that_does_not_end_in_time_is_timed_out(serve, session):
    fake = await serve(fakes.stalls('{"status":'))

    with pytest.raises(errors.TimedOut, match="no whole answer"):
        await Prometheus(session, fake.url, timeout=0.1).series("up", *window())


@pytest.mark.parametrize(
    "behave",
    [fakes.hangs_up, fakes.cut_off('{"status":')],
    ids=["hangs-up", "cut-off"],
)
async def test_connection_that_breaks_is_unreachable(serve, session, behave):
    fake = await serve(behave)

    with pytest.raises(errors.Unreachable):
        await Prometheus(session, fake.url).query("up")


async def test_nobody_there_is_unreachable(unused_tcp_port, session):
    asking = Prometheus(session, f"http://127.0.0.1:{unused_tcp_port}")

    with pytest.raises(errors.Unreachable):
        await asking.query("up")


async def test_broken_compression_is_broken(serve, session):
    fake = await serve(fakes.broken_gzip)

    with pytest.raises(errors.Broken):
        await Prometheus(session, fake.url).query("up")


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
async def test_answer_that_grows_too_long_is_cut_off_while_it_arrives(serve, session, compressed):
    behave, sent = fakes.endless(b'["' + b"a" * 100_000 + b'"]', compressed=compressed)
    fake = await serve(behave)

    with pytest.raises(errors.TooLarge):
        await Prometheus(session, fake.url, limit=1 << 20).query("up")

    await asyncio.sleep(0.05)
    assert sum(sent) < 200 << 20


async def test_series_too_are_cut_off(serve, session):
    behave, _ = fakes.endless(b'{"status":"success","data":[' + b'{"__name__":"a"},' * 1000)
    fake = await serve(behave)

    with pytest.raises((errors.TooLarge, errors.Broken)):
        await Prometheus(session, fake.url, limit=1 << 20).series("up", *window())


async def test_long_questions_are_told_in_part(serve, session):
    fake = await serve(fakes.says("no", status=414))
    asking = Prometheus(session, fake.url)

    with pytest.raises(errors.Refused) as caught:
        await asking.query("a" * 5000)

    assert len(str(caught.value)) < 2000


# Our own metrics


async def test_requests_are_counted_by_path_and_outcome(serve, session):
    registry = prometheus_client.CollectorRegistry()
    fake = await serve(fakes.says(EMPTY))
    asking = Prometheus(session, fake.url, requests=telemetry.Requests(registry))

    await asking.query("up")
    fake.behave = fakes.says("no", status=400)
    with pytest.raises(errors.Refused):
        await asking.query("up")

    def count(outcome: str) -> float | None:
        return registry.get_sample_value(
            "gpu_metrics_adapter_prometheus_request_duration_seconds_count",
            {"path": "/api/v1/query", "outcome": outcome},
        )

    received = registry.get_sample_value(
        "gpu_metrics_adapter_prometheus_response_bytes_total", {"path": "/api/v1/query"}
    )
    assert (count("ok"), count("Refused")) == (1, 1)
    assert received == len(EMPTY) + len("no")
