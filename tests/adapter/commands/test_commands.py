from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import shutil
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from adapter import __main__ as program
from adapter.commands import serve
from adapter.demo.generations import GENERATIONS
from adapter.tls import context
from rules import quantity

GROUP = "/apis/custom.metrics.k8s.io/v1beta1"
DUTY_CYCLE = "namespaces/default/pods/*/duty_cycle_current"
ENDS_WITHIN = 30
"""Seconds, on a machine with other work."""
BERT = f"{GROUP}/{DUTY_CYCLE}?labelSelector=app%3Dbert-intent-detection"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def started(
    *arguments: str, until: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The program in a process of its own, once it has said `until`; with what it said so far."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "adapter", *arguments, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(60):
            while until.encode() not in said:
                chunk = await process.stderr.read(4096)
                assert chunk, said.decode()
                said += chunk
        yield process, said.decode()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.communicate(), ENDS_WITHIN)
        except TimeoutError:
            process.kill()
            raise


async def ended(process: asyncio.subprocess.Process) -> int:
    """The exit status of one that was told to end."""
    async with asyncio.timeout(ENDS_WITHIN):
        return await process.wait()


async def get(url: str) -> dict:
    async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_demo_serves_what_prometheus_answers_for_the_rule() -> None:
    port = free_port()
    async with started(
        "demo", "--load=fixed", f"--secure-port={port}", until="Ctrl-C ends everything"
    ) as (process, said):
        url = f"https://127.0.0.1:{port}"
        prometheus = said.split("Prometheus is at ")[1].split(". ")[0]
        query = (
            "avg by (exported_pod) (max by (exported_pod,UUID) "
            '(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"bert-.*"}))'
        )
        truth = await get(f"{prometheus}/api/v1/query?query={query}")
        first = await get(url + BERT)
        second = await get(url + BERT.replace("v1beta1", "v1beta2"))
        process.send_signal(signal.SIGINT)
        assert await ended(process) == 0

    wanted = {
        sample["metric"]["exported_pod"]: quantity.decimal(
            quantity.milli(float(sample["value"][1]))
        )
        for sample in truth["data"]["result"]
    }
    for document in (first, second):
        values = {item["describedObject"]["name"]: item["value"] for item in document["items"]}
        assert values == wanted
        assert len(values) == 4
    assert any(value.endswith("m") for value in wanted.values())  # the pod with two GPUs
    assert f"kubectl --server={url} --insecure-skip-tls-verify" in said


async def test_demo_answers_in_every_generation() -> None:
    a_few = asyncio.Semaphore(4)

    async def answers(generation: str) -> bool:
        by_node = GENERATIONS[generation].preset == "gpu-node"
        where = "nodes/*/duty_cycle_current" if by_node else DUTY_CYCLE
        port = free_port()
        flags = (f"--generation={generation}", f"--secure-port={port}", "--honor-labels")
        async with a_few, started("demo", *flags, until="Ctrl-C ends everything"):
            document = await get(f"https://127.0.0.1:{port}{GROUP}/{where}")
        return bool(document["items"])

    others = sorted(set(GENERATIONS) - {"dcgm"})

    # Not by gather: of those that the first failure leaves to the event loop's end, one that is
    # being started then would be waited for without end.
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(answers(generation)) for generation in others]

    assert [each.result() for each in asked] == [True] * len(others)


@pytest.fixture
def never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for a Prometheus that starts for ever, and writes its process' id into the file."""
    program, pid = tmp_path / "prometheus", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}.part\nmv {pid}.part {pid}\nexec sleep 120\n")
    program.chmod(0o700)
    monkeypatch.setenv("PROMETHEUS", str(program))
    return pid


async def running(pid: Path) -> int:
    """The process' id, once there is one."""
    async with asyncio.timeout(ENDS_WITHIN):
        while not is_there(pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    return number_in(pid)


def is_there(file: Path) -> bool:
    return file.exists()


def number_in(file: Path) -> int:
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Whether it has ended, be it that nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_demo_can_be_stopped_while_it_starts(never_ready: Path) -> None:
    async with started("demo", f"--secure-port={free_port()}", until="starting /") as (process, _):
        pid = await running(never_ready)
        process.send_signal(signal.SIGINT)
        assert await ended(process) == 0

    assert is_gone(pid)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv, of util-linux")
async def test_demo_that_is_killed_leaves_no_prometheus(never_ready: Path) -> None:
    async with started("demo", f"--secure-port={free_port()}", until="starting /") as (process, _):
        pid = await running(never_ready)
        process.kill()
        await ended(process)

    async with asyncio.timeout(5):
        while not is_gone(pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


def test_demo_says_when_the_port_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        assert program.main(["demo", f"--secure-port={port}"]) == 1

    assert f"port {port} of 127.0.0.1 cannot be had" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--nodes=0"], ["--load=-1"], ["--generation=nope"]], ids=lambda each: each[0]
)
def test_demo_refuses_what_cannot_be(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        program.main(["demo", *arguments])

    assert caught.value.code == 2


def test_demo_without_a_prometheus_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PROMETHEUS", str(tmp_path / "none"))

    assert program.main(["demo", f"--secure-port={free_port()}"]) == 1
    assert "$PROMETHEUS is" in capsys.readouterr().err


async def test_serve_ends_in_peace_when_told(tmp_path: Path) -> None:
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
    async with started(*arguments, until="serving on") as (process, said):
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0

    assert f"https://127.0.0.1:{port}" in said
    assert "--logtostderr: accepted, without effect" in said


async def test_two_servers_share_a_port_where_both_permit_it(tmp_path: Path) -> None:
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
        started(*arguments, until="serving on") as (_, said),
    ):
        assert "without effect" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--bind-address=0.0.0.0", "--objects=x"], 2, "with --objects there is no cluster"),
        (["--preset=nope", "--objects=x"], 1, "there is no preset called 'nope'"),
        (["--preset=gpu-dcgm", "--objects=/none"], 1, "/none"),
        (["--preset=gpu-dcgm", "--lister-kubeconfig=/none"], 1, "--objects=FILE stands for one"),
        (
            ["--preset=gpu-dcgm", "--objects={empty}", "--prometheus-token-file=/none"],
            1,
            "--prometheus-token-file=/none: No such file",
        ),
        (
            ["--preset=gpu-dcgm", "--objects={empty}", "--prometheus-ca-file=/none"],
            1,
            "TLS towards Prometheus: /none",
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
def test_serve_that_cannot_start_says_why(
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


def test_serve_on_a_taken_port_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ["--preset=gpu-dcgm", f"--objects={empty}", f"--secure-port={port}"]

        assert program.main(arguments) == 1

    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["check", "--help"]])
def test_help_is_given(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(arguments) == 0
    assert "gpu-metrics-adapter" in capsys.readouterr().out


def test_check_tells_every_problem_of_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("rules:\n- seriesQuery: up\n  metricQuery: up\n")
    second.write_text(
        "rules:\n- seriesQuery: up\n  name: {matches: '('}\n  metricsQuery: '<<.Nope>>'\n"
    )

    assert program.main(["check", str(first), str(second)]) == 1

    said = capsys.readouterr().out
    assert f"{first}:3:3: error: rules[0].metricQuery: " in said
    assert "did you mean" in said or "metricsQuery" in said
    assert f"{second}:3:" in said
    assert f"{second}:4:" in said
    assert "errors" in said


def test_check_passes_what_only_surprises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n- seriesQuery: up\n  metricsQuery: 'sum(<<.Series>>)'\n"
        "  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}\n"
    )

    assert program.main(["check", "--preset", "gpu-dcgm", f"--config={file}"]) == 0

    said = capsys.readouterr().out
    assert "warning: rules[0].metricsQuery" in said
    assert "0 errors" in said


@pytest.mark.parametrize("arguments", [[], ["--nope"], ["--preset"]], ids=str)
def test_check_without_files_tells_its_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["check", *arguments]) in {1, 2}
    assert capsys.readouterr().err or capsys.readouterr().out is not None


def test_program_and_module_are_the_same() -> None:
    scripts = Path(sys.executable).parent

    assert os.access(scripts / "gpu-metrics-adapter", os.X_OK)


def test_a_server_name_that_is_no_ascii_is_one_line_in_the_log(monkeypatch, caplog):
    """Only the bytes of the hello can be changed: Python's own clients send no such name."""
    monkeypatch.setattr(sys, "unraisablehook", serve.log_unraisable)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    outgoing, incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
    live = context.ReloadingContext(context.issued("127.0.0.1", now=dt.datetime.now(dt.UTC)))
    server = live.context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)

    with pytest.raises(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="here.test").do_handshake()
    incoming.write(outgoing.read().replace(b"here.test", b"h\xe9re.test"))
    with pytest.raises(ssl.SSLError):
        server.do_handshake()

    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "UnicodeDecodeError" in record.message
