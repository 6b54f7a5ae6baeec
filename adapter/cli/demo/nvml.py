"""The NVIDIA GPUs of this machine and their readings, from NVIDIA's management library (NVML).

dcgm-exporter reports the same quantities: DCGM reads them from the same driver.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pynvml

from adapter.cli.demo.fleet import Board, Fleet, Gpu, GpuReading
from adapter.errors import StartError

_MIB = 1 << 20


@contextlib.contextmanager
def fleet() -> Iterator[Fleet]:
    """Open NVML until the context ends; the value is one node with the GPUs of this machine.

    Each GPU counts as used by a pod of its own. Raises StartError if there is no driver or GPU, or
    if a GPU does not report its utilization, as one that is split into MIG instances.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise StartError(
            f"cannot read this machine's GPUs: {error}; --load=gpu needs NVIDIA's driver"
        ) from error
    try:
        handles = tuple(map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount())))
        if not handles:
            raise StartError("this machine has no NVIDIA GPU; use another --load")
        for index, handle in enumerate(handles):
            _check(index, handle)
        driver = pynvml.nvmlSystemGetDriverVersion()
        yield Fleet.of_boards(
            [_board(handle, driver) for handle in handles],
            lambda gpu, _: _reading(handles, gpu),
        )
    finally:
        pynvml.nvmlShutdown()


def _check(index: int, handle: object) -> None:
    try:
        pynvml.nvmlDeviceGetUtilizationRates(handle)
    except pynvml.NVMLError as error:
        raise StartError(f"GPU {index} does not report its utilization: {error}") from error


def _board(handle: object, driver: str) -> Board:
    return Board(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        pci_bus_id=pynvml.nvmlDeviceGetPciInfo(handle).busId,
        model=pynvml.nvmlDeviceGetName(handle),
        driver=driver,
    )


def _reading(handles: Sequence[object], gpu: Gpu) -> GpuReading:
    handle = handles[gpu.index]
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    # Version 2 tells used memory from what the driver reserves for itself, as DCGM does.
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return GpuReading(
        utilization=rates.gpu,
        memory_copy=rates.memory,
        memory_used=round(memory.used / _MIB),
        memory_total=round((memory.used + memory.free) / _MIB),
        temperature=pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        power=pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        sm_clock=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        memory_clock=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
    )
