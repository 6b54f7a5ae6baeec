"""Readings of real GPUs, in place of the simulated ones."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pynvml
import pytest

from adapter.cli.commands import demo_run
from adapter.cli.demo import nvml
from adapter.cli.demo.generations import MEASURED
from adapter.errors import StartError


@pytest.fixture
def driver(monkeypatch):
    """Answers of NVML on a machine with two H200, of which each handle is the index."""
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.159.03",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": "GPU-0000000{}".format,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetPciInfo": lambda index: SimpleNamespace(busId=f"00000000:0{index}:00.0"),
        "nvmlDeviceGetUtilizationRates": lambda index: SimpleNamespace(gpu=40 + index, memory=7),
        "nvmlDeviceGetMemoryInfo": lambda _, version: SimpleNamespace(
            used=955 << 20, free=142202 << 20, total=143771 << 20
        ),
        "nvmlDeviceGetTemperature": lambda _, __: 39,
        "nvmlDeviceGetPowerUsage": lambda _: 123500,
        "nvmlDeviceGetClockInfo": lambda _, clock: {
            pynvml.NVML_CLOCK_SM: 1980,
            pynvml.NVML_CLOCK_MEM: 3201,
        }[clock],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    return monkeypatch


def test_readings_have_the_units_of_the_exporter(driver):
    with nvml.fleet() as fleet:
        text = MEASURED.render(fleet.readings("gpu-node-0", 0))

    series = {line.partition("{")[0]: line for line in text.splitlines() if line[0] != "#"}
    assert {name: line.rpartition(" ")[2] for name, line in series.items()} == {
        "DCGM_FI_DEV_SM_CLOCK": "1980",
        "DCGM_FI_DEV_MEM_CLOCK": "3201",
        "DCGM_FI_DEV_GPU_TEMP": "39",
        "DCGM_FI_DEV_POWER_USAGE": "123.5",
        "DCGM_FI_DEV_GPU_UTIL": "41",
        "DCGM_FI_DEV_MEM_COPY_UTIL": "7",
        "DCGM_FI_DEV_FB_FREE": "142202",
        "DCGM_FI_DEV_FB_USED": "955",
    }


def test_labels_are_those_of_the_board_and_each_gpu_has_its_pod(driver):
    with nvml.fleet() as fleet:
        labels = [MEASURED.labels(gpu) for gpu in fleet.gpus]

    assert [each["UUID"] for each in labels] == ["GPU-00000000", "GPU-00000001"]
    assert [each["pci_bus_id"] for each in labels] == ["00000000:00:00.0", "00000000:01:00.0"]
    assert {each["DCGM_FI_DRIVER_VERSION"] for each in labels} == {"580.159.03"}
    assert [each["pod"] for each in labels] == [pod.name for pod in fleet.pods]
    assert len(set(fleet.pods)) == 2


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("nvmlInit", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "needs NVIDIA's driver"),
        (
            "nvmlDeviceGetUtilizationRates",
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            "GPU 0 does not report its utilization: Not Supported",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_at_the_start(driver, function, error, message):
    def fail(*_: object) -> None:
        raise pynvml.NVMLError(error)

    driver.setattr(pynvml, function, fail)

    with pytest.raises(StartError, match=message), nvml.fleet():
        pass


def test_a_machine_without_gpu_is_an_error_at_the_start(driver):
    driver.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)

    with pytest.raises(StartError, match="no NVIDIA GPU"), nvml.fleet():
        pass


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.delattr("adapter.cli.demo.nvml", raising=False)
    monkeypatch.setitem(sys.modules, "adapter.cli.demo.nvml", None)

    with pytest.raises(StartError, match="pip install nvidia-ml-py"):
        demo_run._own_gpus()
