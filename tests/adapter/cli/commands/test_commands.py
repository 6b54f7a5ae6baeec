"""The commands, most of them as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from adapter.cli.commands import SUMMARIES, serve
from adapter.cli.demo.generations import GENERATIONS
from adapter.cli.local_prometheus.process import free_port
from adapter.server.tls import context
from certs.issue import issue_temporary
from rules import quantity
from tools import kubeconfig
from tools.waiting import has_ended, until

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
DUTY_CYCLE = "namespaces/default/pods/*/duty_cycle_current"
EXIT_TIMEOUT = 90
"""Seconds, on a busy machine."""
BERT = f"{GROUP}/{DUTY_CYCLE}?labelSelector=app%3Dbert-intent-detection"


@contextlib.asynccontextmanager
async def started(
    *arguments: str, until: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run the program as a process; yield it and its output once that contains `until`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "adapter", *arguments, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    output = b""
    try:
        async with asyncio.timeout(180):
            while until.encode() not in output:
                chunk = await process.stderr.read(4096)
                assert chunk, output.decode()
                output += chunk
        yield process, output.decode()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.communicate(), EXIT_TIMEOUT)
        except TimeoutError:
            process.kill()
            raise


async def exit_code(process: asyncio.subprocess.Process) -> int:
    """Wait for the end of the process; return its exit code."""
    async with asyncio.timeout(EXIT_TIMEOUT):
        return await process.wait()


async def get(url: str, *, values: int = 0) -> dict:
    """Return a document once it has so many values.

    On a busy machine, a scrape takes longer than its second, and ends series until the next one.
    """
    found: dict = {}

    async def is_complete() -> bool:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
            found.update(await response.json())
            items = found.get("items") or found.get("data", {}).get("result", ())
            return response.status == 200 and len(items) >= values

    await until(is_complete)
    return found


@pytest.mark.usefixtures("real_servers")
async def test_demo_serves_the_values_of_the_rules_query() -> None:
    port = free_port()
    async with started(
        "demo", "--load=fixed", f"--secure-port={port}", until="Ctrl-C ends everything"
    ) as (process, output):
        url = f"https://127.0.0.1:{port}"
        prometheus = output.split("Prometheus is at ")[1].split(". ")[0]
        query = (
            "avg by (exported_pod) (max by (exported_pod,UUID) "
            '(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"bert-.*"}))'
        )
        discovery = await get(url + GROUP)
        truth = await get(f"{prometheus}/api/v1/query?query={query}", values=4)
        first = await get(url + BERT, values=4)
        second = await get(url + BERT.replace("v1beta1", "v1beta2"), values=4)
        process.send_signal(signal.SIGINT)
        assert await exit_code(process) == 0

    assert "no series" not in output
    listed = {each["name"] for each in discovery["resources"]}
    assert {"pods/duty_cycle_current", "nodes/temperature_celsius_current"} <= listed
    expected = {
        sample["metric"]["exported_pod"]: quantity.decimal(
            quantity.milli(float(sample["value"][1]))
        )
        for sample in truth["data"]["result"]
    }
    for document in (first, second):
        values = {item["describedObject"]["name"]: item["value"] for item in document["items"]}
        assert values == expected
        assert len(values) == 4
    assert any(value.endswith("m") for value in expected.values())  # the pod with two GPUs
    assert f"kubectl --server={url} --insecure-skip-tls-verify" in output


@pytest.mark.usefixtures("real_servers")
async def test_demo_has_values_for_exporters_of_each_kind() -> None:
    """With MIG instances, without idle GPUs and without pods; test_fleet.py has all exporters."""
    limit = asyncio.Semaphore(2)

    async def has_values(generation: str) -> bool:
        by_node = GENERATIONS[generation].preset == "gpu-node"
        path = "nodes/*/duty_cycle_current" if by_node else DUTY_CYCLE
        port = free_port()
        flags = (f"--generation={generation}", f"--secure-port={port}", "--honor-labels")
        async with limit, started("demo", *flags, until="Ctrl-C ends everything"):
            document = await get(f"https://127.0.0.1:{port}{GROUP}/{path}", values=1)
        return bool(document["items"])

    kinds = ("dcgm-mig", "gke-plugin", "nvidia-smi")

    # Not gather: after a failure, it would leave processes that are still starting.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(has_values(generation)) for generation in kinds]

    assert [each.result() for each in tasks] == [True] * len(kinds)


@pytest.fixture
def never_ready(tmp_path, monkeypatch):
    """Replace Prometheus by a program that never gets ready; return the file with its PID."""
    program, pid = tmp_path / "prometheus", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}.part\nmv {pid}.part {pid}\nexec sleep 120\n")
    program.chmod(0o700)
    monkeypatch.setenv("PROMETHEUS", str(program))
    return pid


async def pid_in(file):
    """Wait for the file, and return the PID in it."""
    await until(file.exists)
    return int(file.read_text())


@pytest.mark.usefixtures("real_servers")
async def test_demo_can_be_stopped_while_it_starts(never_ready):
    async with started("demo", f"--secure-port={free_port()}", until="starting /") as (process, _):
        pid = await pid_in(never_ready)
        process.send_signal(signal.SIGINT)
        assert await exit_code(process) == 0

    assert has_ended(pid)


@pytest.mark.usefixtures("real_servers")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv, of util-linux")
async def test_a_killed_demo_leaves_no_prometheus(never_ready):
    async with started("demo", f"--secure-port={free_port()}", until="starting /") as (process, _):
        pid = await pid_in(never_ready)
        process.kill()
        await exit_code(process)

    await until(lambda: has_ended(pid))


@pytest.fixture
def taken_port():
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.fixture
def empty(tmp_path):
    """A file without objects."""
    path = tmp_path / "objects.yaml"
    path.write_text("")
    return path


def test_demo_reports_a_port_in_use(taken_port, cli):
    code, _, error = cli("demo", f"--secure-port={taken_port}")

    fact = f"cannot listen on 127.0.0.1:{taken_port}: Address already in use; use `make run PORT=N`"
    assert (code, fact in error) == (1, True)


def test_demo_without_prometheus_explains_what_to_do(monkeypatch, cli):
    monkeypatch.setenv("PROMETHEUS", "/none")

    code, _, error = cli("demo", f"--secure-port={free_port()}")

    assert (code, "$PROMETHEUS: " in error) == (1, True)


@pytest.mark.usefixtures("real_servers")
async def test_serve_ends_with_exit_code_0_after_sigterm(empty):
    port = free_port()
    arguments = (
        "/adapter",
        "--preset=gpu-dcgm",
        f"--objects={empty}",
        f"--secure-port={port}",
        "--prometheus-url=http://127.0.0.1:9",
        "--logtostderr=true",
        "-v=6",
    )
    async with started(*arguments, until="serving on") as (process, output):
        process.send_signal(signal.SIGTERM)
        assert await exit_code(process) == 0

    assert f"https://127.0.0.1:{port}" in output
    assert "--logtostderr: has no effect" in output


@pytest.mark.usefixtures("real_servers")
def test_sigterm_ends_serve_while_its_modules_are_loaded() -> None:
    """As process 1 of a container it would ignore the signal; here the kernel would kill it."""
    script = (
        "import time; from adapter import settings; from adapter.cli.commands import serve\n"
        "settings.parse = lambda *_, **__: print('loading', flush=True) or time.sleep(60)\n"
        "serve.main([])"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"loading\n"
        process.terminate()

    assert process.returncode == 0


@pytest.mark.usefixtures("real_servers")
async def test_two_servers_share_a_port_if_both_permit_it(empty):
    arguments = (
        "--preset=gpu-dcgm",
        f"--objects={empty}",
        f"--secure-port={free_port()}",
        "--prometheus-url=http://127.0.0.1:9",
        "--permit-port-sharing",
    )
    async with (
        started(*arguments, until="serving on"),
        started(*arguments, until="serving on") as (_, output),
    ):
        assert "no effect" not in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("--bind-address=0.0.0.0 --objects=x", 2, "must be a loopback address"),
        ("--preset=nope --objects=x", 1, "there is no preset called 'nope'"),
        ("--lister-kubeconfig=/none", 1, "or --objects=FILE to run without one"),
        ("--objects=/none", 1, "/none: No such file or directory\n"),
        (
            "--objects={empty} --prometheus-token-file=/none",
            1,
            "--prometheus-token-file=/none: No such file",
        ),
        ("--objects={empty} --prometheus-ca-file=/none", 1, "TLS for Prometheus: /none"),
        (
            "--objects={empty} --tls-cert-file=/a --tls-private-key-file=/b",
            1,
            "/a cannot be read",
        ),
    ],
)
def test_serve_explains_why_it_cannot_start(line, code, words, empty, cli):
    ended = cli("--preset=gpu-dcgm", *line.format(empty=empty).split())

    assert (ended.code, words in ended.err) == (code, True)


def test_serve_reports_a_port_in_use(empty, taken_port, cli):
    code, _, error = cli("--preset=gpu-dcgm", f"--objects={empty}", f"--secure-port={taken_port}")

    assert (code, f"cannot listen on 127.0.0.1:{taken_port}" in error) == (1, True)


def test_serve_listens_before_it_loads_the_server():
    code = """
import socket, sys
from adapter.cli import program

def listen(*_, **__):
    print("adapter.server.app.server" in sys.modules)
    raise OSError(1, "stop here")

socket.create_server = listen
program.main(["--objects=none", "--preset=gpu-dcgm"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stdout == "False\n", done.stderr


def test_serve_takes_no_connections_of_a_shared_port_before_it_answers(monkeypatch):
    sockets: list[socket.socket | None] = []
    monkeypatch.setattr(serve, "set_up_logging", lambda *_, **__: None)
    monkeypatch.setattr(serve, "_serve", lambda _, bound: sockets.append(bound) or 0)

    for flags in ((), ("--permit-port-sharing",)):
        serve.main(["--objects=none", f"--secure-port={free_port()}", *flags])

    assert [each is None for each in sockets] == [False, True]


@pytest.mark.slow
def test_serve_with_an_unusable_ca_file_does_not_suggest_another_flag(tmp_path, cli):
    path = kubeconfig.write(tmp_path / "kubeconfig", {"server": "http://127.0.0.1:9"}, {})

    code, _, error = cli(
        "--preset=gpu-dcgm", f"--lister-kubeconfig={path}", "--client-ca-file=/none"
    )

    assert (code, "/none" in error) == (1, True)
    assert "--authentication-tolerate-lookup-failure" not in error


@pytest.mark.parametrize(
    "line", ["presets detect", *(each for each in SUMMARIES if each != "serve")]
)
def test_each_command_has_help(line, cli):
    code, text, _ = cli(*line.split(), "--help")

    assert code == 0
    assert text.startswith(f"Usage: gpu-metrics-adapter {line.split()[0]}")
    assert max(map(len, text.splitlines())) <= 100
    assert "import " not in text


EXPLAINS = "\n`gpu-metrics-adapter {} --help` explains the command line\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check", "FILE: is missing" + EXPLAINS.format("check")),
        ("check --nope", "--nope: unknown flag" + EXPLAINS.format("check")),
        ("check --preset", "--preset: needs a value: --preset=NAME\n"),
        ("presets gpu-dcgm gpu-hami", "gpu-hami: unexpected argument\n"),
        ("presets --nope", "--nope: unknown flag\n"),
        ("presets detect --nope", "--nope: unknown flag" + EXPLAINS.format("presets detect")),
        ("presets detect http://p:9090", "http://p:9090: unexpected argument\n"),
        ("presets detect --output=xml", "--output=xml: must be text or json or yaml\n"),
        ("certs", "issue: is missing\n"),
        ("test", "FILE...: is missing\n"),
        ("doctor --outptu=x", "--outptu: unknown flag; did you mean --output?\n"),
        ("demo --nodes=0", "--nodes=0: must be between 1 and 1000\n"),
        ("demo --nodes=x", "--nodes=x: must be an integer\n"),
        ("demo --load=-1", "--load=-1: must be between 0 and 1000, fixed or gpu\n"),
        ("demo --load=x", "--load=x: must be between 0 and 1000, fixed or gpu\n"),
        ("demo --generation=nope", "--generation=nope: must be alibaba or "),
        ("demo --secure-port=0", "--secure-port=0: must be between 1 and 65535\n"),
    ],
)
def test_an_invalid_command_line_is_explained(line, words, cli):
    code, output, error = cli(*line.split())

    assert (code, output) == (2, "")
    assert error.startswith(words)


def test_check_reads_the_files_after_two_dashes(tmp_path, cli):
    (tmp_path / "-rules.yaml").write_text("rules: []\n")

    assert cli("check", "--", "-rules.yaml") == (0, "0 errors, 0 warnings\n", "")


def test_presets_suggests_detect(cli):
    assert cli("presets", "detct") == (1, "", "detct: did you mean detect?\n")


def test_a_server_name_that_is_not_ascii_is_logged_in_one_line(monkeypatch, caplog):
    """The name is changed in the bytes of the hello: Python's own clients do not send one."""
    monkeypatch.setattr(sys, "unraisablehook", serve.log_unraisable)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    outgoing, incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
    live = context.ReloadingContext(issue_temporary(("127.0.0.1",), now=dt.datetime.now(dt.UTC)))
    server = live.context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)

    with pytest.raises(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="here.test").do_handshake()
    incoming.write(outgoing.read().replace(b"here.test", b"h\xe9re.test"))
    with pytest.raises(ssl.SSLError):
        server.do_handshake()

    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "UnicodeDecodeError" in record.message
