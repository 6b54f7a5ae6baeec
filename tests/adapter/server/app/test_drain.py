"""Shutdown of server processes: by signals, and behind a load balancer."""

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

from adapter import settings
from adapter.cli.local_prometheus.process import free_port
from adapter.clients import sources
from adapter.server.app import server as app
from adapter.server.http import server as serving
from adapter.server.tls import context as tls
from certs.issue import issue_temporary
from tools.fakes import prometheus
from tools.waiting import until

ROOT = Path(__file__).parents[4]
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
"""The metric has no sample, which takes a query to Prometheus."""
NOTHING_LISTED = b'{"status":"success","data":[]}'
NO_SAMPLES = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


class SlowPrometheus:
    """A Prometheus without samples that responds to queries once `may_answer` is set."""

    def __init__(self):
        self.queried = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def behave(self, request, query):
        if not query.path.endswith("/query"):
            return await prometheus.says(NOTHING_LISTED)(request, query)
        if query.parameters["query"].startswith("sum"):
            self.queried.set()
            await self.may_answer.wait()
        return await prometheus.says(NO_SAMPLES)(request, query)


def unverified():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


UNVERIFIED = unverified()


class Replica:
    """A server in a process of its own."""

    def __init__(self, folder, url, *, delay, event_loop="asyncio"):
        self.port = free_port()
        self.log = folder / f"{self.port}.log"
        self.arguments = [
            f"--config={folder / 'rules.yaml'}",
            f"--objects={folder / 'objects.yaml'}",
            f"--prometheus-url={url}",
            "--prometheus-timeout=50s",
            f"--secure-port={self.port}",
            f"--shutdown-delay={delay}",
            f"--event-loop={event_loop}",
        ]
        self.process = None

    async def start(self):
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "adapter", *self.arguments, cwd=ROOT, stderr=log
            )

        async def is_ready():
            assert self.process.returncode is None, self.log.read_text()
            return await self.ready() == 200

        await until(is_ready)

    async def end(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def ready(self):
        """Return the status of /readyz, or 0 without a connection."""
        with contextlib.suppress(OSError, EOFError):
            return int((await self.get("/readyz"))[0].split()[1])
        return 0

    async def get(self, path, connection=None, **headers):
        """Return the lines of a response's head. Raises OSError, IncompleteReadError."""
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
        """Return once no new connection is accepted."""
        async with asyncio.timeout(90):
            with contextlib.suppress(ConnectionError):
                while True:
                    (await self.connect())[1].close()
                    await asyncio.sleep(0.05)

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=UNVERIFIED)


@pytest.fixture
def slow():
    return SlowPrometheus()


@pytest.fixture
async def replicas(real_servers, tmp_path, slow, aiohttp_server):
    """Return a function that starts a server."""
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "objects.yaml").write_text(POD)
    server = await aiohttp_server(prometheus.Prometheus(slow.behave).app())
    started = []

    async def start(**options):
        started.append(Replica(tmp_path, server.make_url("/"), **options))
        await started[-1].start()
        return started[-1]

    yield start
    for replica in started:
        await replica.end()


@pytest.mark.parametrize(
    ("number", "event_loop"),
    [(signal.SIGTERM, "asyncio"), (signal.SIGINT, "asyncio"), (signal.SIGTERM, "uvloop")],
)
async def test_a_server_fails_readyz_first_and_finishes_pending_requests(
    replicas, slow, number, event_loop
):
    replica = await replicas(delay="10s", event_loop=event_loop)
    idle = await replica.connect()
    used = await replica.connect()
    assert "Connection: close" not in await replica.get("/healthz", used)
    pending = asyncio.create_task(replica.get(METRIC))
    await slow.queried.wait()

    replica.process.send_signal(number)
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
    assert not pending.done()
    slow.may_answer.set()
    head = await pending
    assert head[0] == "HTTP/1.1 404 Not Found"
    assert "Connection: close" in head
    assert await replica.process.wait() == 0
    assert "Traceback" not in replica.log.read_text()


async def test_without_a_delay_the_listener_closes_immediately(replicas, slow):
    replica = await replicas(delay="0s")
    pending = asyncio.create_task(replica.get(METRIC))
    await slow.queried.wait()

    replica.process.terminate()
    await replica.closed()
    slow.may_answer.set()

    assert (await pending)[0] == "HTTP/1.1 404 Not Found"
    assert await replica.process.wait() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("delay", ["10m", "0s"])
async def test_a_second_signal_ends_the_process_immediately(replicas, slow, delay, second):
    replica = await replicas(delay=delay)
    pending = asyncio.create_task(replica.get(METRIC))
    await slow.queried.wait()
    replica.process.terminate()
    while await replica.ready() == 200:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)
    assert replica.process.returncode is None

    replica.process.send_signal(second)

    async with asyncio.timeout(90):
        assert await replica.process.wait() == 1
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await pending


async def test_tasks_end_before_the_clients_that_they_use(tmp_path, monkeypatch):
    """A relist whose client was closed fails, and says that /livez fails from now on."""
    at_close = []
    connect = sources.connect_prometheus

    @contextlib.asynccontextmanager
    async def connect_and_look(*arguments, **options):
        async with connect(*arguments, **options) as client:
            yield client
            at_close.extend(each.get_name() for each in asyncio.all_tasks())

    monkeypatch.setattr(sources, "connect_prometheus", connect_and_look)
    (tmp_path / "objects.yaml").write_text(POD)
    async with silent() as (url, connected):
        flags = [
            "--preset=gpu-dcgm",
            f"--objects={tmp_path / 'objects.yaml'}",
            f"--prometheus-url={url}",
            f"--secure-port={free_port()}",
        ]
        async with asyncio.timeout(60), app.running(settings.parse(flags)):
            await connected.wait()

    assert at_close
    assert not {"relist", "replicas", "cause log"} & set(at_close)


@contextlib.asynccontextmanager
async def silent():
    """Yield the URL of a server that never responds, and an event for its first connection."""
    connected, finished = asyncio.Event(), asyncio.Event()

    async def listen(_, writer):
        connected.set()
        await finished.wait()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connected
        finally:
            finished.set()


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("preset", [True, False], ids=["cluster", "prometheus"])
async def test_a_server_that_is_still_starting_ends_immediately(tmp_path, preset):
    """It waits for the API server or, without --preset, for Prometheus."""
    async with silent() as (url, connected):
        (tmp_path / "kubeconfig").write_text(KUBECONFIG % url)
        arguments = [
            f"--lister-kubeconfig={tmp_path / 'kubeconfig'}",
            f"--prometheus-url={url}",
            f"--secure-port={free_port()}",
            *(["--preset=gpu-dcgm"] if preset else []),
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "adapter", *arguments, cwd=ROOT
        )
        try:
            async with asyncio.timeout(60):
                await connected.wait()
            process.terminate()

            async with asyncio.timeout(20):  # the timeout of the response is 30 s
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def almost_handshake(connection):
    """Do a TLS handshake except its last flight; return the bytes of that flight."""
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
async def test_a_client_in_its_handshake_does_not_delay_the_shutdown(turns):
    """Its handshake ends between two iterations of the event loop that shuts down the server."""

    async def never_called(_):
        raise AssertionError

    now = dt.datetime.now(dt.UTC)
    context = tls.ReloadingContext(issue_temporary(("127.0.0.1",), now=now)).context
    listener = serving.Listener(
        never_called, "127.0.0.1", 0, ssl_context=context, close_seconds=0.1
    )
    listener.start()
    with socket.create_connection(("127.0.0.1", listener.port)) as connection:
        connection.setblocking(False)
        last = await almost_handshake(connection)
        closing = asyncio.create_task(listener.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        connection.send(last)

        async with asyncio.timeout(20):
            await closing


@pytest.mark.slow
async def test_a_client_that_does_not_read_its_response_does_not_delay_the_shutdown():
    answered = asyncio.Event()

    async def answer(_):
        answered.set()
        return b"HTTP/1.1 200 OK\r\n\r\n" + bytes(32 << 20)

    listener = serving.Listener(answer, "127.0.0.1", 0, close_seconds=0.1)
    listener.start()
    with socket.create_connection(("127.0.0.1", listener.port)) as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await answered.wait()
        await asyncio.sleep(0.1)

        async with asyncio.timeout(90):
            await listener.close()


class Balancer:
    """Load balancer that forwards connections to the replicas of the last readiness probe."""

    def __init__(self, replicas):
        self.replicas = replicas
        self.ready = list(replicas)
        self.turns = itertools.count()
        self.forwarded = dict.fromkeys(replicas, 0)

    @contextlib.asynccontextmanager
    async def listening(self):
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        probing = asyncio.create_task(self._probe())
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            probing.cancel()
            server.close()

    async def _probe(self):
        while True:
            await asyncio.sleep(0.2)
            statuses = await asyncio.gather(*(each.ready() for each in self.replicas))
            self.ready = [
                each for each, status in zip(self.replicas, statuses, strict=True) if status == 200
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


async def send_requests(port, errors, answers, stop, *, keep):
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
            await asyncio.sleep(0.05)


async def test_a_rolling_restart_fails_no_request(replicas, slow):
    slow.may_answer.set()
    both = [await replicas(delay="8s"), await replicas(delay="8s")]
    balancer = Balancer(both)
    errors, answers = [], []
    stop = asyncio.Event()
    async with balancer.listening() as port, asyncio.TaskGroup() as clients:
        for number in range(6):
            keep = number % 2 == 0
            clients.create_task(send_requests(port, errors, answers, stop, keep=keep))
        for replica in both:
            await asyncio.sleep(1)
            replica.process.terminate()
            assert await replica.process.wait() == 0
            await replica.start()
            await until(lambda each=replica: each in balancer.ready)
        stop.set()

    assert errors == []
    assert len(answers) > 100
    assert min(balancer.forwarded.values()) > 10
