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
from pathlib import Path

import aiohttp
import pytest

from adapter.cli import program
from adapter.cli.commands import serve
from adapter.cli.demo.generations import GENERATIONS
from adapter.cli.local_prometheus.process import free_port
from adapter.server.tls import context
from certs.issue import issue_temporary
from rules import quantity
from tools.waiting import until

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
DUTY_CYCLE = "namespaces/default/pods/*/duty_cycle_current"
EXIT_TIMEOUT = 30
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


async def get(url: str) -> dict:
    async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
        assert response.status == 200, await response.text()
        return await response.json()


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
        truth = await get(f"{prometheus}/api/v1/query?query={query}")
        first = await get(url + BERT)
        second = await get(url + BERT.replace("v1beta1", "v1beta2"))
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
            document = await get(f"https://127.0.0.1:{port}{GROUP}/{path}")
        return bool(document["items"])

    kinds = ("dcgm-mig", "gke-plugin", "nvidia-smi")

    # Not gather: after a failure, it would leave processes that are still starting.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(has_values(generation)) for generation in kinds]

    assert [each.result() for each in tasks] == [True] * len(kinds)


@pytest.fixture
def never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace Prometheus by a program that never gets ready; return the file with its PID."""
    program, pid = tmp_path / "prometheus", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}.part\nmv {pid}.part {pid}\nexec sleep 120\n")
    program.chmod(0o700)
    monkeypatch.setenv("PROMETHEUS", str(program))
    return pid


async def pid_in(file: Path) -> int:
    """Wait for the file, and return the PID in it."""
    await until(lambda: exists(file))
    return int(read(file))


def exists(file: Path) -> bool:
    return file.exists()


def read(file: Path) -> str:
    return file.read_text()


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; it may still be a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.usefixtures("real_servers")
async def test_demo_can_be_stopped_while_it_starts(never_ready: Path) -> None:
    async with started("demo", f"--secure-port={free_port()}", until="starting /") as (process, _):
        pid = await pid_in(never_ready)
        process.send_signal(signal.SIGINT)
        assert await exit_code(process) == 0

    assert is_gone(pid)


@pytest.mark.usefixtures("real_servers")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv, of util-linux")
async def test_a_killed_demo_leaves_no_prometheus(never_ready: Path) -> None:
    async with started("demo", f"--secure-port={free_port()}", until="starting /") as (process, _):
        pid = await pid_in(never_ready)
        process.kill()
        await exit_code(process)

    await until(lambda: is_gone(pid))


def test_demo_reports_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        assert program.main(["demo", f"--secure-port={port}"]) == 1

    assert (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; use `make run PORT=N`"
        in capsys.readouterr().err
    )


def test_demo_without_prometheus_explains_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PROMETHEUS", str(tmp_path / "none"))

    assert program.main(["demo", f"--secure-port={free_port()}"]) == 1
    assert "$PROMETHEUS: " in capsys.readouterr().err


@pytest.mark.usefixtures("real_servers")
async def test_serve_ends_with_exit_code_0_after_sigterm(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text("")
    port = free_port()
    arguments = (
        "/adapter",
        "--preset=gpu-dcgm",
        f"--objects={tmp_path / 'objects.yaml'}",
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
async def test_two_servers_share_a_port_if_both_permit_it(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text("")
    arguments = (
        "--preset=gpu-dcgm",
        f"--objects={tmp_path / 'objects.yaml'}",
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
    ("arguments", "code", "words"),
    [
        (["--bind-address=0.0.0.0", "--objects=x"], 2, "must be a loopback address"),
        (["--preset=nope", "--objects=x"], 1, "there is no preset called 'nope'"),
        (
            ["--preset=gpu-dcgm", "--lister-kubeconfig=/none"],
            1,
            "or --objects=FILE to run without one",
        ),
        (["--preset=gpu-dcgm", "--objects=/none"], 1, "/none: No such file or directory\n"),
        (
            ["--preset=gpu-dcgm", "--objects={empty}", "--prometheus-token-file=/none"],
            1,
            "--prometheus-token-file=/none: No such file",
        ),
        (
            ["--preset=gpu-dcgm", "--objects={empty}", "--prometheus-ca-file=/none"],
            1,
            "TLS for Prometheus: /none",
        ),
        (
            [
                "--preset=gpu-dcgm",
                "--objects={empty}",
                "--tls-cert-file=/a",
                "--tls-private-key-file=/b",
            ],
            1,
            "/a cannot be read",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_serve_explains_why_it_cannot_start(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")

    assert program.main([each.format(empty=empty) for each in arguments]) == code
    assert words in capsys.readouterr().err


def test_serve_reports_a_port_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ["--preset=gpu-dcgm", f"--objects={empty}", f"--secure-port={port}"]

        assert program.main(arguments) == 1

    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_serve_listens_before_it_loads_the_server() -> None:
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


def test_serve_takes_no_connections_of_a_shared_port_before_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sockets: list[socket.socket | None] = []
    monkeypatch.setattr(serve, "set_up_logging", lambda *_, **__: None)
    monkeypatch.setattr(serve, "_serve", lambda _, bound: sockets.append(bound) or 0)

    for flags in ((), ("--permit-port-sharing",)):
        serve.main(["--objects=none", f"--secure-port={free_port()}", *flags])

    assert [each is None for each in sockets] == [False, True]


@pytest.mark.slow
def test_serve_with_an_unusable_ca_file_does_not_suggest_another_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{clusters: [{name: x, cluster: {server: 'http://127.0.0.1:9'}}], current-context: x,"
        " users: [{name: x, user: {}}], contexts: [{name: x, context: {cluster: x, user: x}}]}"
    )
    arguments = ["--preset=gpu-dcgm", f"--lister-kubeconfig={kubeconfig}", "--client-ca-file=/none"]

    assert program.main(arguments) == 1

    message = capsys.readouterr().err
    assert "/none" in message
    assert "--authentication-tolerate-lookup-failure" not in message


@pytest.mark.parametrize(
    "arguments",
    [
        ["presets", "detect", "-h"],
        *(
            [name, "--help"]
            for name in (
                *("check", "presets", "doctor", "explain", "replay"),
                *("console", "migrate", "test", "certs", "demo"),
            )
        ),
    ],
)
def test_each_command_has_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(arguments) == 0

    text = capsys.readouterr().out
    assert text.startswith(f"Usage: gpu-metrics-adapter {arguments[0]} ")
    assert max(map(len, text.splitlines())) <= 100
    assert "import " not in text


def test_check_reports_all_errors_of_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("rules:\n- seriesQuery: up\n  metricQuery: up\n")
    second.write_text(
        "rules:\n- seriesQuery: up\n  name: {matches: '('}\n  metricsQuery: '<<.Nope>>'\n"
    )

    assert program.main(["check", str(first), str(second)]) == 1

    output = capsys.readouterr().out
    assert f"{first}:3:3: error: rules[0].metricQuery: " in output
    assert "metricsQuery" in output
    assert f"{second}:3:" in output
    assert f"{second}:4:" in output
    assert "errors" in output


def test_check_succeeds_with_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n- seriesQuery: up\n  metricsQuery: 'sum(<<.Series>>)'\n"
        "  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}\n"
    )

    assert program.main(["check", "--preset", "gpu-dcgm", f"--config={file}"]) == 0

    output = capsys.readouterr().out
    assert "warning: rules[0].metricsQuery" in output
    assert "0 errors" in output


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
def test_an_invalid_command_line_is_explained(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(line.split()) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(words)


def test_check_reads_the_files_after_two_dashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-rules.yaml").write_text("rules: []\n")

    assert program.main(["check", "--", "-rules.yaml"]) == 0

    assert capsys.readouterr().out == "0 errors, 0 warnings\n"


def test_presets_suggests_detect(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["presets", "detct"]) == 1

    assert capsys.readouterr().err == "detct: did you mean detect?\n"


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
