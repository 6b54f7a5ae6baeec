"""End-to-end test of the playground: runs the commands that it prints and watches the replicas.

The playground runs as a process without a terminal, and is ended by SIGINT as by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect, sync_playwright

from tools.cluster.walkthrough import STEP_TIMEOUT
from tools.console import chromium
from tools.playground.manifests import BERT
from tools.real.prometheus import wait_for

COMMAND = re.compile(r" {3}\S.*? {2,}((?:export|kubectl|\S+/gpu-metrics-adapter) .*)")
"""Line with the purpose of a command and its text."""
REPLICAS = re.compile(r"bert-intent-detection .* (\d+) +\S+")
"""Line of `kubectl get hpa`."""


class Process:
    """Process whose stdout is collected line by line."""

    def __init__(self, command: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit status. Raises TimeoutExpired."""
        self.popen.send_signal(number)
        return self.popen.wait(STEP_TIMEOUT)

    def close(self) -> None:
        """Kill the process if it still runs, and read the rest of its output."""
        self.popen.kill()
        self.popen.wait()
        self._reader.join()
        assert self.popen.stdout
        self.popen.stdout.close()

    def _read(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))


@contextlib.contextmanager
def running(*command: str) -> Iterator[Process]:
    with contextlib.closing(Process(command)) as process:
        try:
            yield process
        finally:
            if process.popen.poll() is None:
                process.end(signal.SIGTERM)


@pytest.mark.usefixtures("real_servers")
def test_printed_commands_work_and_the_hpa_scales() -> None:
    with running(sys.executable, "-m", "tools.playground") as playground:
        wait_for(
            lambda: commands(playground),
            "the playground prints its commands",
            seconds=2 * STEP_TIMEOUT,
        )
        print("\n".join(playground.lines))
        set_up, watch, query, explain, doctor, raise_load, remove_load = commands(playground)
        folder = Path(re.search(r"KUBECONFIG=(\S+)", set_up)[1]).parent
        with running("bash", "-c", f"{set_up} && exec {watch}") as hpa:
            wait_for(lambda: replicas(hpa)[-1:] == [1], "there is one replica")

            def loaded() -> bool:
                try:
                    items = json.loads(shell(set_up, query))["items"]
                except subprocess.CalledProcessError:
                    items = []  # on a busy machine, a scrape may be late
                assert all(each["describedObject"]["name"].startswith(BERT) for each in items)
                return len(items) == 1 and 10 <= float(items[0]["value"]) <= 20

            wait_for(loaded, "the load reaches the pod")
            wait_for_output(f"VERDICT: default/{BERT} keeps", set_up, explain)
            wait_for_output("\n0 failures, 0 warnings, ", set_up, doctor)

            with console_page(playground) as page:
                row = page.locator("tr", has_text=f"default/{BERT}")
                expect(row).to_contain_text(re.compile(r"1[0-9.]+ of 20 % duty_cycle_current"))
                row.get_by_role("link").first.click()
                expect(page.locator(".verdict")).to_contain_text(f"default/{BERT} keeps 1 replica")
                shell(set_up, raise_load)
                wait_for(
                    lambda: replicas(hpa)[-1] >= 6,
                    "the replicas are enough, so that the fault below delays no scale-up",
                )
                check_rise(page)
                check_fault_and_cure(page, set_up)
                check_other_views(page)
            check_replay(playground, set_up, explain)
            shell(set_up, remove_load)
            wait_for(lambda: " 0/20 " in hpa.lines[-1], "the metric is 0")
            wait_for(lambda: replicas(hpa)[-1] == 1, "there is one replica again")
            print("\n".join(hpa.lines))
        assert processes_using(folder)
        assert playground.end(signal.SIGINT) == 0

    output = "\n".join(playground.lines)
    print("\n".join(playground.lines[-8:]))
    assert re.search(
        r"^\d\d:\d\d  scaled to \d+: pods metric duty_cycle_current above", output, re.MULTILINE
    )
    assert "  load 15 % -> 120 %: 8 x bert-load\n" in output
    assert not folder.exists()
    assert not processes_using(folder)


@contextlib.contextmanager
def console_page(playground: Process) -> Iterator[Page]:
    """Open the printed address in Chromium; a violation of the CSP fails the test at the end."""
    (address,) = [each.split()[-1] for each in playground.lines if "?token=" in each]
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # On a busy machine, the API server may not answer the console in time.
        if message.type == "error" and "status of 504" not in message.text:
            problems.append(message.text)

    expect.set_options(timeout=1000 * STEP_TIMEOUT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.options())
        page = browser.new_page()
        page.set_default_timeout(1000 * STEP_TIMEOUT)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", note)
        page.goto(address)
        yield page
        browser.close()
    assert problems == []


def check_rise(page: Page) -> None:
    """Check that the page of the HPA shows the rise of the load without being loaded again."""
    expect(page.locator(".facts")).to_contain_text(re.compile(r"([5-9]|10) of 1 to 10"))
    expect(page.locator("tr", has_text="SuccessfulRescale").first).to_be_visible()
    expect(page.locator("polyline.value").first).to_be_visible()
    expect(page.locator("figure desc").last).to_contain_text("current: 1 to ")
    expect(page.locator(".query code")).to_contain_text("DCGM_FI_DEV_GPU_UTIL")


def check_fault_and_cure(page: Page, set_up: str) -> None:
    """Check that a metric that does not exist is a failure with its cause, and then is cured."""
    name = "/spec/metrics/0/pods/metric/name"
    patch = f"kubectl patch hpa {BERT} --type=json -p "
    change = '\'[{"op": "replace", "path": "%s", "value": "%s"}]\''
    page.get_by_role("link", name="Autoscalers").click()
    row = page.locator("tbody tr").first

    shell(set_up, patch + change % (name, "duty_cycle"))
    expect(row.locator(".failure")).to_be_visible()
    expect(row).to_contain_text("duty_cycle_current")  # the cure
    expect(page.get_by_role("status").first).to_have_text("1 autoscaler: 1 failure, 0 warnings")
    shell(set_up, patch + change % (name, "duty_cycle_current"))
    expect(row.locator(".failure")).to_have_count(0)
    expect(row).to_contain_text(" of 20 % duty_cycle_current")


def check_other_views(page: Page) -> None:
    """Check that the other views show this cluster."""
    shown = {
        "Exporters": "--preset=gpu-dcgm",
        "Doctor": "0 failures, 0 warnings",
        "Adapter": "not ok",
        "Metrics": "metrics",
    }
    for view, text in shown.items():
        page.get_by_role("link", name=view).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(view)
        expect(page.get_by_role("status").first).to_contain_text(text)
    page.get_by_role("row", name="duty_cycle_current").get_by_role("link", name="pods").click()
    expect(page.locator("h1")).to_have_text("duty_cycle_current of pods")
    expect(page.locator("main")).to_contain_text("the whole cluster")
    expect(page.locator("td.number").first).to_have_text(re.compile(r"\d+m?"))


def check_replay(playground: Process, set_up: str, explain: str) -> None:
    """Check that the replay of the rise is what the controller did, within one replica."""
    (url,) = re.findall(r"Prometheus: (http://\S+);", "\n".join(playground.lines))
    program = explain.split(maxsplit=1)[0]
    past = f"--prometheus-url={url} --since=10m --sync-period=2s --startup=6s"
    command = f"{program} replay hpa default/{BERT} {past}"
    print(shell(set_up, f"{command} --target=20,40"))
    found = json.loads(shell(set_up, f"{command} --output=json"))
    was, present = found["variants"]
    assert was["replicas"][0][1] == 1
    assert max(number for _, number in was["replicas"]) >= 6
    assert max(number for _, number in present["replicas"]) >= 6
    fit = found["fit"]
    assert fit["equal"] + fit["near"] >= 5 * fit["different"]


def commands(playground: Process) -> list[str]:
    """Return the seven commands in order; empty until all are printed."""
    assert playground.popen.poll() is None, "the playground exited"
    texts = [match[1] for match in map(COMMAND.fullmatch, playground.lines) if match]
    return texts if len(texts) == 7 else []


def shell(*lines: str) -> str:
    """Run commands in one shell and return stdout. Raises CalledProcessError."""
    print(f"$ {lines[-1]}")
    done = subprocess.run(
        ["bash", "-c", " && ".join(lines)], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def wait_for_output(text: str, *lines: str) -> None:
    """Run commands until they succeed with this text: a busy machine may answer too late."""

    def is_shown() -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            return text in shell(*lines)
        return False

    wait_for(is_shown, f"{lines[-1]} shows {text}")


def replicas(hpa: Process) -> list[int]:
    """Return the replicas in the lines so far, without repetitions."""
    counts = [int(match[1]) for match in map(REPLICAS.match, hpa.lines) if match]
    return [each for at, each in enumerate(counts) if not at or counts[at - 1] != each]


def processes_using(folder: Path) -> list[str]:
    """Return the command lines of processes that contain `folder`."""
    command_lines = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in line:
                command_lines.append(line)
    return command_lines
