"""How servers end: as processes, by signals, behind a balancer."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import signal
import socket
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from adapter.http import server as serving
from adapter.tls import context as tls
from tests.fakes import prometheus

ROOT = Path(__file__).parents[3]
RULES = """
rules:
- seriesQuery: 'requests{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "", as: ""}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
POD = "{apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: web-1}}"
KUBECONFIG = """
{clusters: [{name: x, cluster: {server: "%s"}}], users: [{name: x, user: {token: x}}],
 contexts: [{name: x, context: {cluster: x, user: x}}], current-context: x}
"""
METRIC = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/*/requests"
STATUSES = {METRIC: 404, "/apis": 200, "/healthz": 200}
"""Of the metric no sample exists; that takes a question to Prometheus."""
NOTHING_LISTED = b'{"status":"success","data":[]}'
NO_SAMPLES = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


class Slow:
    """A Prometheus that knows nothing, and says so once it may."""

    def __init__(self):
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def behave(self, request, asked):
        if not asked.path.endswith("/query"):
            return await prometheus.says(NOTHING_LISTED)(request, asked)
        if asked.parameters["query"].startswith("sum"):
            self.asked.set()
            await self.may_answer.wait()
        return await prometheus.says(NO_SAMPLES)(request, asked)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def unverified():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


UNVERIFIED = unverified()


class Replica:
    """A server as a process of its own."""

    def __init__(self, folder, url, *, delay):
        self.port = free_port()
        self.log = folder / f"{self.port}.log"
        self.arguments = [
            f"--config={folder / 'rules.yaml'}",
            f"--objects={folder / 'objects.yaml'}",
            f"--prometheus-url={url}",
            f"--secure-port={self.port}",
            f"--shutdown-delay={delay}",
        ]
        self.process = None

    async def start(self):
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "adapter", *self.arguments, cwd=ROOT, stderr=log
            )
        async with asyncio.timeout(60):
            while await self.ready() != 200:
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.1)

    async def end(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def ready(self):
        """The status of /readyz; 0 without a connection."""
        with contextlib.suppress(OSError):
            return int((await self.get("/readyz"))[0].split()[1])
        return 0

    async def get(self, path, connection=None, **headers):
        """The lines of an answer's head. Raises OSError, IncompleteReadError."""
        reader, writer = connection or await self.connect()
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            [length] = [line.split()[1] for line in head if line.startswith("Content-Length: ")]
            await reader.readexactly(int(length))
        finally:
            if connection is None:
                writer.close()
        return head

    async def closed(self):
        """Return once nobody new is let in."""
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                while True:
                    (await self.connect())[1].close()
                    await asyncio.sleep(0.05)

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=UNVERIFIED)


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
async def replicas(tmp_path, slow, aiohttp_server):
    """Makes running servers."""
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "objects.yaml").write_text(POD)
    server = await aiohttp_server(prometheus.Prometheus(slow.behave).app())
    made = []

    async def make(**options):
        made.append(Replica(tmp_path, server.make_url("/"), **options))
        await made[-1].start()
        return made[-1]

    yield make
    for each in made:
        await each.end()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_tells_that_it_goes_and_answers_whom_it_heard(replicas, slow, how):
    replica = await replicas(delay="1500ms")
    idle = await replica.connect()
    used = await replica.connect()
    assert "Connection: close" not in await replica.get("/healthz", used)
    under_way = asyncio.create_task(replica.get(METRIC))
    await slow.asked.wait()

    replica.process.send_signal(how)
    while await replica.ready() == 200:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)
    assert await replica.ready() == 500

    for path, connection in (("/livez", None), ("/apis", None), ("/apis", used)):
        head = await replica.get(path, connection)
        assert head[0] == "HTTP/1.1 200 OK"
        assert "Connection: close" in head
    assert await used[0].read() == b""

    await replica.closed()
    assert await idle[0].read() == b""
    assert not under_way.done()
    slow.may_answer.set()
    head = await under_way
    assert head[0] == "HTTP/1.1 404 Not Found"
    assert "Connection: close" in head
    assert await replica.process.wait() == 0
    assert "Traceback" not in replica.log.read_text()


async def test_without_a_delay_the_listener_closes_at_once(replicas, slow):
    replica = await replicas(delay="0s")
    under_way = asyncio.create_task(replica.get(METRIC))
    await slow.asked.wait()

    replica.process.terminate()
    await replica.closed()
    slow.may_answer.set()

    assert (await under_way)[0] == "HTTP/1.1 404 Not Found"
    assert await replica.process.wait() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("delay", ["30s", "0s"])
async def test_a_second_signal_ends_it_at_once(replicas, slow, delay, second):
    replica = await replicas(delay=delay)
    under_way = asyncio.create_task(replica.get(METRIC))
    await slow.asked.wait()
    replica.process.terminate()
    await asyncio.sleep(0.5)
    assert replica.process.returncode is None

    replica.process.send_signal(second)

    async with asyncio.timeout(5):
        assert await replica.process.wait() == 1
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await under_way


@contextlib.asynccontextmanager
async def silent():
    """A server that answers nothing: its URL, and an event that somebody came."""
    came, over = asyncio.Event(), asyncio.Event()

    async def listen(_, writer):
        came.set()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", came
        finally:
            over.set()


@pytest.mark.parametrize("chosen", [True, False], ids=["cluster", "prometheus"])
async def test_one_that_still_starts_ends_at_once(tmp_path, chosen):
    """It waits for an answer of the API server, or of Prometheus for want of rules."""
    async with silent() as (url, came):
        (tmp_path / "kubeconfig").write_text(KUBECONFIG % url)
        arguments = [
            f"--lister-kubeconfig={tmp_path / 'kubeconfig'}",
            f"--prometheus-url={url}",
            f"--secure-port={free_port()}",
            *(["--preset=gpu-dcgm"] if chosen else []),
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "adapter", *arguments, cwd=ROOT
        )
        try:
            async with asyncio.timeout(60):
                await came.wait()
            process.terminate()

            async with asyncio.timeout(20):  # the answer would be waited for for 30 s
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def shaken(connection):
    """Shake hands over a socket; gives the bytes that are still to be sent for the handshake."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = UNVERIFIED.wrap_bio(incoming, outgoing)
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            await loop.sock_sendall(connection, outgoing.read())
            incoming.write(await loop.sock_recv(connection, 1 << 16))
        else:
            return outgoing.read()


@pytest.mark.parametrize("turns", range(6))
async def test_a_client_that_just_came_does_not_hold_up_the_end(turns):
    """One whose handshake ends between two turns of the event loop that ends the server."""

    async def never_asked(_):
        raise AssertionError

    now = dt.datetime.now(dt.UTC)
    context = tls.ReloadingContext(tls.issued("127.0.0.1", now=now)).context
    runner = serving.runner(never_asked)
    await runner.setup()
    site = serving.Site(runner, "127.0.0.1", 0, ssl_context=context, close_seconds=0.1)
    await site.start()
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        connection.setblocking(False)
        last = await shaken(connection)
        ending = asyncio.create_task(runner.cleanup())
        for _ in range(turns):
            await asyncio.sleep(0)
        connection.send(last)

        async with asyncio.timeout(5):
            await ending


async def test_a_client_that_does_not_take_its_answer_does_not_hold_up_the_end():
    answered = asyncio.Event()

    async def answer(_):
        answered.set()
        return web.Response(body=bytes(32 << 20))

    runner = serving.runner(answer)
    await runner.setup()
    site = serving.Site(runner, "127.0.0.1", 0, close_seconds=0.1)
    await site.start()
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await answered.wait()
        await asyncio.sleep(0.1)

        async with asyncio.timeout(10):
            await runner.cleanup()


class Balancer:
    """Forwards each connection to one of the replicas that were ready when it last looked."""

    def __init__(self, replicas):
        self.replicas = replicas
        self.ready = list(replicas)
        self.turns = itertools.count()
        self.forwarded = dict.fromkeys(replicas, 0)

    @contextlib.asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        looking = asyncio.create_task(self._look())
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            looking.cancel()
            server.close()

    async def _look(self):
        while True:
            await asyncio.sleep(1)
            found = await asyncio.gather(*(each.ready() for each in self.replicas))
            self.ready = [
                each for each, status in zip(self.replicas, found, strict=True) if status == 200
            ]

    async def _forward(self, reader, writer):
        try:
            replica = self.ready[next(self.turns) % len(self.ready)]
            self.forwarded[replica] += 1
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", replica.port)
            await asyncio.gather(_pipe(reader, their_writer), _pipe(their_reader, writer))
        except (OSError, ZeroDivisionError):
            writer.close()


async def _pipe(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def ask_on(port, errors, answers, stop, *, keep):
    connector = aiohttp.TCPConnector(ssl=False, force_close=not keep)
    async with aiohttp.ClientSession(connector=connector) as session:
        for path in itertools.cycle(STATUSES):
            if stop.is_set():
                return
            try:
                async with session.get(f"https://127.0.0.1:{port}{path}") as answer:
                    await answer.read()
                    if answer.status != STATUSES[path]:
                        errors.append((path, answer.status))
                    answers.append(answer.status)
            except (aiohttp.ClientError, OSError) as error:
                errors.append((path, error))
            await asyncio.sleep(0.02)


async def test_replicas_are_restarted_one_after_the_other_and_no_client_notices(replicas, slow):
    slow.may_answer.set()
    both = [await replicas(delay="2s"), await replicas(delay="2s")]
    balancer = Balancer(both)
    errors, answers = [], []
    stop = asyncio.Event()
    async with balancer.listening() as port, asyncio.TaskGroup() as clients:
        for number in range(6):
            keep = number % 2 == 0
            clients.create_task(ask_on(port, errors, answers, stop, keep=keep))
        for replica in both:
            await asyncio.sleep(1)
            replica.process.terminate()
            assert await replica.process.wait() == 0
            await replica.start()
            async with asyncio.timeout(10):
                while replica not in balancer.ready:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.1)
        stop.set()

    assert errors == []
    assert len(answers) > 100
    assert min(balancer.forwarded.values()) > 10
