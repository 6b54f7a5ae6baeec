"""Two Prometheus without common samples, at two addresses of one name and behind a balancer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from socket import AF_INET

import aiohttp
import pytest
from aiohttp import abc, web

from adapter import errors, settings
from adapter.cli.doctor import backend as diagnosis
from adapter.cli.local_prometheus.process import free_ports
from adapter.clients import sources
from adapter.clients.prometheus import Prometheus
from adapter.clients.replicas import OneAddress, Replicas
from rules.findings import Finding, State
from tests.adapter.clients.credentials import EMPTY
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real
from tools.waiting import until

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


class Names(abc.AbstractResolver):
    """Resolves each name to all addresses; their order changes, as that of a headless Service."""

    def __init__(self, *hosts: str) -> None:
        hosts = hosts or (FIRST, SECOND)
        self._orders = itertools.cycle([hosts[::-1], hosts])

    async def resolve(self, host, port=0, family=AF_INET):
        return [
            abc.ResolveResult(hostname=host, host=each, port=port, family=AF_INET, proto=0, flags=0)
            for each in next(self._orders)
        ]

    async def close(self) -> None:
        pass


@pytest.fixture
def replicas(real_servers, tmp_path) -> Iterator[dict[str, real.Prometheus]]:
    """By address: servers with the same port, each with a series that has its address."""
    (port,) = free_ports(1)
    with contextlib.ExitStack() as stack:
        servers = {}
        for host in (FIRST, SECOND):
            folder = tmp_path / host
            folder.mkdir()
            servers[host] = real.Prometheus(folder, host=host, port=port)
            stack.callback(servers[host].stop)
            servers[host].start()
            servers[host].put(f'replica{{host="{host}"}} 1')
        yield servers


@pytest.fixture
async def client(replicas) -> AsyncIterator[Prometheus]:
    addresses = OneAddress(Names())
    async with aiohttp.ClientSession(connector=addresses.connector()) as session:
        url = f"http://prometheus.test:{replicas[FIRST].port}"
        yield Prometheus(session, url, replicas=Replicas(session, addresses), timeout=90)


async def asked(client: Prometheus, times: int = 1) -> set[str]:
    """Return the addresses of the servers that answer `times` times 16 queries at a time."""
    hosts = set()
    for _ in range(times):
        results = await asyncio.gather(*(client.query("replica") for _ in range(16)))
        hosts |= {each.labels["host"] for result in results for each in result.samples}
    return hosts


async def test_one_address_is_queried_as_long_as_it_answers(client, replicas):
    assert await asked(client) == {FIRST}
    assert client.reachability.check().fact == "answers; its name has 2 addresses, one is queried"

    await asyncio.to_thread(replicas[FIRST].kill)
    with contextlib.suppress(errors.Unreachable):
        await client.query("replica")
    assert await asked(client) == {SECOND}

    await asyncio.to_thread(replicas[FIRST].start)
    for queried in (SECOND, FIRST):
        assert await asked(client) == {SECOND}
        await client.count_replicas()
        assert await asked(client) == {queried}


async def test_the_address_of_the_connection_that_is_established_is_kept(replicas, monkeypatch):
    second_tried, loop = asyncio.Event(), asyncio.get_running_loop()

    async def connect(sock, address, connect=loop.sock_connect):
        if address[0] == FIRST:
            await second_tried.wait()
            return await connect(sock, address)
        second_tried.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(loop, "sock_connect", connect)
    monkeypatch.setattr("adapter.clients.replicas._HEAD_START", 0.01)
    addresses = OneAddress(Names())
    async with aiohttp.ClientSession(connector=addresses.connector()) as session:
        await session.get(f"http://prometheus.test:{replicas[FIRST].port}")

    for _ in range(2):
        assert (await addresses.resolve("prometheus.test"))[0]["host"] == FIRST


@pytest.mark.parametrize(
    ("addresses", "servers"),
    [
        ((), 0),
        (("127.0.0.1", "::1"), 1),
        (("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"), 2),
    ],
)
def test_an_address_of_each_family_is_one_server(addresses, servers):
    resolver = OneAddress(Names())
    resolver.addresses = addresses

    assert resolver.servers == servers
    assert ("addresses" in Replicas(None, resolver).status().fact) == (servers > 1)


async def test_a_connection_to_an_address_that_failed_is_not_used_again(client):
    assert await asked(client) == {FIRST}

    client.replicas.addresses.failed()

    assert await asked(client) == {SECOND}


@contextlib.asynccontextmanager
async def balanced(port: int) -> AsyncIterator[str]:
    """Run a balancer that gives each connection to the next address; yield its URL."""
    hosts = itertools.cycle([FIRST, SECOND])

    async def copy(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader, writer):
        try:
            inner_reader, inner_writer = await asyncio.open_connection(next(hosts), port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def diagnosed(client: Prometheus) -> list[Finding]:
    """Return what doctor says about replicas."""
    found = await diagnosis.findings(client)
    return [each for each in found if each.subject == "prometheus-replicas"]


async def test_doctor_warns_of_replicas_behind_one_address(replicas, session):
    async with balanced(replicas[FIRST].port) as url:
        client = Prometheus(session, url)
        (finding,) = await diagnosed(client)

    assert client.reachability.check().state is State.WARNING
    assert client.reachability.check().fact.startswith("2 servers answer behind one address")
    assert finding.state is State.WARNING
    assert finding.fact == "2 Prometheus servers answer behind one address"


def keeping(
    url: str, verb: str = "GET", *, timeout: str = "90s"
) -> contextlib.AbstractAsyncContextManager[Prometheus]:
    """Return the client of the server, which keeps to one process."""
    flags = (
        f"--prometheus-url={url}",
        f"--prometheus-timeout={timeout}",
        f"--prometheus-verb={verb}",
    )
    return sources.connect_prometheus(settings.parse(flags).prometheus)


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_one_server_behind_an_address_is_queried_as_long_as_it_answers(replicas, verb):
    replicas[FIRST].put("only_first 1")
    async with balanced(replicas[FIRST].port) as url, keeping(url, verb) as client:
        await client.count_replicas()
        assert await asked(client, 13) == {FIRST}
        for _ in range(20):
            assert (await client.query("only_first")).samples
            assert "only_first" in (await client.names("only_first", 0, 1e10)).content
        assert client.reachability.check().fact == (
            "answers; 2 servers answer behind one address, one is queried"
        )

        await asyncio.to_thread(replicas[FIRST].kill)
        with contextlib.suppress(errors.Unreachable):
            await client.query("replica")
        assert await asked(client, 13) == {SECOND}

        await asyncio.to_thread(replicas[FIRST].start)
        assert await asked(client, 13) == {SECOND}


async def test_doctor_says_that_one_server_behind_an_address_is_queried(replicas):
    async with balanced(replicas[FIRST].port) as url, keeping(url) as client:
        (finding,) = await diagnosed(client)

    assert finding.state is State.OK
    assert finding.fact.startswith("2 Prometheus servers answer behind one address, of which one")


async def test_a_server_that_hangs_is_left(replicas):
    async with balanced(replicas[FIRST].port) as url, keeping(url, timeout="5s") as client:

        async def asks_first() -> bool:
            """A count that fails, as on a machine that stalls, is repeated."""
            await client.count_replicas()
            return client.replicas.processes == 2 and await asked(client, 13) == {FIRST}

        await until(asks_first)

        os.kill(replicas[FIRST].pid, signal.SIGSTOP)
        await asyncio.to_thread(os.waitpid, replicas[FIRST].pid, os.WUNTRACED)
        try:
            with pytest.raises(errors.TimedOut):
                await client.query("replica")
            assert await asked(client) == {SECOND}
        finally:
            os.kill(replicas[FIRST].pid, signal.SIGCONT)
        assert await asked(client) == {SECOND}

        await until(asks_first)


def started(process: str) -> str:
    return json.dumps({"status": "success", "data": {"startTime": process}})


async def test_requests_that_a_proxy_balances_are_reported(serve):
    starts = itertools.cycle("ab")

    async def start(request, received):
        return await fakes.says(started(next(starts)))(request, received)

    async with keeping((await serve(start)).url) as client:
        await client.count_replicas()

        assert client.replicas.processes == 2
        client.reachability.answered(partial="")
        assert client.reachability.check().state is State.WARNING


async def test_one_server_costs_no_request_and_no_connection(serve):
    peers, paths = set(), []

    async def answer(request, received):
        peers.add(request.transport.get_extra_info("peername"))
        paths.append(request.path)
        text = started("a") if request.path.endswith("runtimeinfo") else EMPTY
        return await fakes.says(text)(request, received)

    async with keeping((await serve(answer)).url) as client:

        async def counted() -> bool:
            """A count that fails, as on a machine that stalls, aborts its connections."""
            paths.clear()
            await client.count_replicas()
            return len(paths) == 12

        await until(counted)
        before = set(peers)
        paths.clear()
        for _ in range(5):
            await client.query("up")

    assert (peers, paths) == (before, ["/api/v1/query"] * 5)


async def test_doctor_says_how_many_addresses_there_are(client):
    (finding,) = await diagnosed(client)

    assert finding.state is State.OK
    assert "2 addresses" in finding.fact


async def test_doctor_says_nothing_about_one_server(replicas, session):
    assert await diagnosed(Prometheus(session, replicas[FIRST].url)) == []


@pytest.mark.parametrize(
    "said",
    [fakes.says("no", status=404), fakes.says("[]"), fakes.says("null")],
    ids=["404", "list", "null"],
)
async def test_a_backend_that_does_not_tell_its_start_is_one_and_answers(serve, session, said):
    fake = await serve(said)
    client = Prometheus(session, fake.url)

    await client.count_replicas()

    assert client.replicas.processes == 1
    assert client.reachability.check().fact == "not queried yet"
    assert len(fake.requests) == 1


class Server:
    """Fake Prometheus whose processes, by connection, a test decides."""

    def __init__(self) -> None:
        self.starts = itertools.cycle("ab")
        self.start_status = 200
        self.closes = False
        self.queries = 0
        self._of: dict[object, str] = {}

    async def answer(self, request: web.Request, _: object) -> web.Response:
        """Answer as the process of the connection."""
        start = self._of.setdefault(request.transport, next(self.starts))
        if request.path.endswith("runtimeinfo"):
            response = web.Response(text=started(start), status=self.start_status)
        else:
            self.queries += 1
            response = web.Response(text=EMPTY)
        if self.closes:
            response.force_close()
        return response


@pytest.fixture
async def server(serve) -> AsyncIterator[tuple[Server, Prometheus]]:
    """A fake server and a client that keeps to one of its two processes."""
    fake = Server()
    async with keeping((await serve(fake.answer)).url) as client:
        await client.count_replicas()
        assert client.replicas.processes == 2
        yield fake, client


async def test_servers_that_no_longer_tell_their_start_are_queried(server):
    fake, client = server
    fake.start_status = 403

    await client.query("up")

    assert fake.queries == 1


async def test_servers_whose_starts_cannot_be_read_fail_after_bounded_tries(server):
    fake, client = server
    fake.start_status = 500

    with pytest.raises(errors.Broken):
        await client.query("up")

    assert fake.queries == 0


async def test_connections_that_close_after_each_response_fail_after_bounded_tries(server):
    fake, client = server
    fake.closes = True

    with pytest.raises(errors.Unreachable, match="closed after each response"):
        await client.query("up")

    assert fake.queries == 3


async def test_the_next_address_is_tried_after_each_failure_until_one_answers():
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    failing, hits = set(hosts[:2]), []

    async def respond(request: web.Request) -> web.Response:
        host = request.transport.get_extra_info("sockname")[0]
        hits.append(host)
        return (
            web.Response(status=500)
            if host in failing
            else web.Response(text=EMPTY, content_type="application/json")
        )

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = free_ports(1)
    addresses = OneAddress(Names(*hosts))
    try:
        for each in hosts:
            await web.TCPSite(runner, each, port).start()
        async with aiohttp.ClientSession(connector=addresses.connector()) as session:
            client = Prometheus(
                session, f"http://prometheus.test:{port}", replicas=Replicas(session, addresses)
            )
            for _ in range(4):
                with contextlib.suppress(errors.Broken):
                    await client.query("up")
            failing.add(hosts[2])
            failing.discard(hosts[0])
            for _ in range(3):
                with contextlib.suppress(errors.Broken):
                    await client.query("up")
    finally:
        await runner.cleanup()

    assert hits == [*hosts, hosts[2], hosts[2], hosts[0], hosts[0]]
