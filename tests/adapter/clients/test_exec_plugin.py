"""Commands of a kubeconfig that hang, flood, fail, or repeat their secrets."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from adapter import errors
from adapter.clients import credentials, exec_plugin, kubeconfig
from tools import kubeconfig as kubeconfigs
from tools.waiting import has_ended, until

V1 = "client.authentication.k8s.io/v1"
SECRET = "s3cret-value"
PRINT = (
    f'import json; print(json.dumps({{"apiVersion": "{V1}", "kind": "ExecCredential",'
    ' "status": {"token": "abc"}}))'
)


def config(script: str, *args: str, **env: str) -> dict[str, object]:
    return {
        "apiVersion": V1,
        "command": sys.executable,
        "args": ["-c", script, *args],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }


HANGING = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
path = pathlib.Path(sys.argv[1])
path.with_suffix(".part").write_text(f"{os.getpid()} {child.pid}")
path.with_suffix(".part").rename(path)
{last}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "last", ["time.sleep(600)", "raise SystemExit(0)"], ids=["it", "only its child"]
)
async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path, skip, last):
    pids = tmp_path / "pids"
    script = HANGING.replace("{last}", last)
    task = asyncio.create_task(exec_plugin.run(config(script, str(pids))))
    await until(pids.exists)

    skip(30)
    with pytest.raises(errors.Unreachable, match="not end within 30 s: it was killed, with its"):
        await task

    for process in map(int, pids.read_text().split()):
        await until(lambda process=process: has_ended(process))


async def test_a_cancelled_command_is_killed(tmp_path):
    pids = tmp_path / "pids"
    script = HANGING.replace("{last}", "time.sleep(600)")
    task = asyncio.create_task(exec_plugin.run(config(script, str(pids))))
    await until(pids.exists)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    for process in map(int, pids.read_text().split()):
        await until(lambda process=process: has_ended(process))


async def test_output_without_end_is_refused():
    script = "while True: print('x' * 65536)"

    with pytest.raises(errors.Unreachable, match="printed more than 1 MiB"):
        await exec_plugin.run(config(script))


async def test_a_failure_is_quoted_without_secrets_and_short():
    script = "import os, sys; sys.exit(sys.argv[1] + os.environ['A'] + 'no\\x1blogin' + 'x' * 9999)"

    with pytest.raises(errors.Unreachable) as caught:
        await exec_plugin.run(config(script, SECRET, A="en-" + SECRET))

    text = str(caught.value)
    assert "ended with 1: '......no\\x1bloginxxx" in text
    assert SECRET not in text
    assert len(text) < 600


@pytest.mark.slow
@pytest.mark.parametrize(
    "printed",
    [
        "",
        "[]",
        "{}",
        '{"kind": "ExecCredential"}',
        f'{{"token": "{SECRET}"}}',
        "[" * 20_000,
        PRINT.replace("abc", SECRET).replace("v1", "v2"),
        PRINT.replace("token", "tokens"),
    ],
)
async def test_what_is_no_credential_is_refused_and_not_quoted(printed):
    script = printed if printed.startswith("import") else f"print({printed!r})"

    with pytest.raises(errors.Unreachable, match="printed no ExecCredential") as caught:
        await exec_plugin.run(config(script))

    assert SECRET not in str(caught.value)


async def test_a_valid_token_is_not_renewed_and_a_failure_keeps_it(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(credentials, "MAX_AGE", -1.0)
    runs = []
    statuses = [{"token": "one", "expirationTimestamp": "2000-01-01T00:00:00Z"}, None]
    statuses += [{"token": "two", "expirationTimestamp": "2999-01-01T00:00:00Z"}]

    async def run(_config):
        runs.append(1)
        status = statuses[len(runs) - 1]
        if status is None:
            raise errors.Unreachable("it hangs")
        return status

    monkeypatch.setattr(exec_plugin, "run", run)
    path = kubeconfigs.write(tmp_path / "kubeconfig", {"server": "https://a"}, {"exec": {}})

    _, loaded = await kubeconfig.load(str(path))
    sent = [(await loaded.authorization.headers(None))["Authorization"] for _ in range(4)]

    assert sent == ["Bearer one", "Bearer two", "Bearer two", "Bearer two"]
    assert len(runs) == 3
    assert "kubeconfig: it hangs; the previous token stays in use" in caplog.text
    assert os.fspath(tmp_path) in caplog.text
