"""Asks the real binding a list of questions in a process of its own, since the binding loads one library per process.

``ask(installation, steps)`` runs this file as a program. A step is ``[name, argument, …]``: a function of pynvml or one
of the helpers below. An argument ``gpu:0`` or ``mig:0.3`` becomes that device's handle.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fakes.nvml.build import Installation

Step = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of a step; or the library's return code; or the name of another exception."""

    value: Any = None
    rc: int = 0
    error: str = ""


def start(installation: Installation, steps: Sequence[Step]) -> subprocess.Popen[str]:
    """A process that works on the steps, for tests that watch, change or kill it."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        env=installation.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(list(steps)))
    process.stdin.close()
    process.stdin = None
    return process


def ask(installation: Installation, steps: Sequence[Step], timeout: float = 30) -> list[Answer]:
    """The answers to the steps. Raises RuntimeError when the process fails, with what it wrote to stderr."""
    process = start(installation, steps)
    output, errors = process.communicate(timeout=timeout)
    if process.returncode:
        raise RuntimeError(f"the probe ended with {process.returncode}: {errors}")
    return [Answer(**answer) for answer in json.loads(output.splitlines()[-1])]


class Session:
    """The state between steps: the binding, the open event set, handles kept for later."""

    def __init__(self) -> None:
        import pynvml

        self.nvml: Any = pynvml
        self.events: Any = None
        self.kept: dict[str, Any] = {}

    def run(self, step: Step) -> dict[str, Any]:
        name, *arguments = step
        helper: Callable[..., Any] | None = HELPERS.get(name)
        try:
            resolved = [self.resolve(argument) for argument in arguments]
            value = helper(self, *resolved) if helper else getattr(self.nvml, name)(*resolved)
            return {"value": encode(value)}
        except self.nvml.NVMLError as error:
            return {"rc": error.value}
        except self.nvml.NVMLLibraryMismatchError as error:
            return {"error": type(error).__name__}

    def resolve(self, argument: Any) -> Any:
        if argument == "garbage":
            return ctypes.c_void_p(0x1000)
        if not isinstance(argument, str) or argument[:4] not in ("gpu:", "mig:"):
            return argument
        gpu, _, slot = argument[4:].partition(".")
        handle = self.nvml.nvmlDeviceGetHandleByIndex(int(gpu))
        return self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, int(slot)) if slot else handle


def encode(value: Any) -> Any:
    """What JSON can carry of a ctypes value. Pointers become null."""
    if isinstance(value, ctypes.Structure):
        return {name: encode(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if isinstance(value, ctypes.Array | list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, ctypes._Pointer):
        return None
    if isinstance(value, bytes):
        return value.hex()
    return encode_friendly(value) if type(value).__name__ == "nvmlFriendlyObject" else value


def encode_friendly(value: Any) -> dict[str, Any]:
    return {name: encode(item) for name, item in vars(value).items() if name != "dictionary"}


def fields(session: Session, handle: Any, ids: Sequence[Any]) -> list[dict[str, Any]]:
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return [
        {
            "id": field.fieldId,
            "scope": field.scopeId,
            "rc": field.nvmlReturn,
            "type": field.valueType,
            "timestamp": field.timestamp,
            "value": getattr(field.value, members[field.valueType]),
            "uiVal": field.value.uiVal,
        }
        for field in session.nvml.nvmlDeviceGetFieldValues(
            handle, [tuple(i) if isinstance(i, list) else i for i in ids]
        )
    ]


def gpm(
    session: Session, handle: Any, ids: Sequence[int], interval_ms: int, gi: int | None = None
) -> list[list[float]]:
    nvml = session.nvml
    samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(ids)
    request.sample1, request.sample2 = samples
    beyond = request.metrics[len(ids)]
    beyond.metricId = 1
    beyond.value = -7.0
    for i, metric in enumerate(ids):
        request.metrics[i].metricId = metric
    for i, sample in enumerate(samples):
        if i:
            time.sleep(interval_ms / 1000)
        if gi is None:
            nvml.nvmlGpmSampleGet(handle, sample)
        else:
            nvml.nvmlGpmMigSampleGet(handle, gi, sample)
    nvml.nvmlGpmMetricsGet(request)
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    if beyond.value != -7.0 or beyond.nvmlReturn:
        raise AssertionError("the library wrote beyond numMetrics")
    return [[request.metrics[i].nvmlReturn, request.metrics[i].value] for i in range(len(ids))]


def gpm_version(session: Session, version: int) -> None:
    request = session.nvml.c_nvmlGpmMetricsGet_t()
    request.version = version
    session.nvml.nvmlGpmMetricsGet(request)


def open_events(session: Session, mask: int, *handles: Any) -> None:
    session.events = session.nvml.nvmlEventSetCreate()
    for handle in handles:
        session.nvml.nvmlDeviceRegisterEvents(handle, mask, session.events)


def wait_event(session: Session, timeout_ms: int) -> dict[str, int]:
    event = session.nvml.nvmlEventSetWait(session.events, timeout_ms)
    return {
        "gpu": session.nvml.nvmlDeviceGetIndex(event.device),
        "type": event.eventType,
        "data": event.eventData,
        "gi": event.gpuInstanceId,
        "ci": event.computeInstanceId,
    }


def close_events(session: Session) -> None:
    session.nvml.nvmlEventSetFree(session.events)


def filled(session: Session, call: str, struct: str, handle: Any, version: int | None = None) -> str:
    """The bytes of a struct that the caller brings along, after the call."""
    value = getattr(session.nvml, struct)()
    if version is not None:
        value.version = version
    getattr(session.nvml, call)(handle, ctypes.byref(value))
    return bytes(value).hex()


def unrepairable_word0(session: Session, handle: Any) -> list[int]:
    """The two words of the 8-byte form as the library leaves them."""
    value = session.nvml.c_nvmlUnrepairableMemory_v1_t()
    rc = session.nvml._nvmlGetFunctionPointer("nvmlDeviceGetUnrepairableMemoryFlag_v1")(handle, ctypes.byref(value))
    return [rc, value.version, value.unrepairableMemory]


def processes_v1(session: Session, symbol: str, handle: Any) -> list[list[int]]:
    """The records of 16 bytes of the first version, which the binding has dropped."""
    count = ctypes.c_uint(8)
    records = (ctypes.c_uint64 * 16)()
    session.nvml._nvmlCheckReturn(session.nvml._nvmlGetFunctionPointer(symbol)(handle, ctypes.byref(count), records))
    return [[records[2 * i], records[2 * i + 1]] for i in range(count.value)]


def raw_init(session: Session) -> int:
    """The older entry point, which the binding never calls."""
    rc: int = session.nvml._nvmlGetFunctionPointer("nvmlInit_v2")()
    return rc


def gi_info(session: Session, handle: Any, gi: int) -> list[int]:
    info = session.nvml.nvmlGpuInstanceGetInfo(session.nvml.nvmlDeviceGetGpuInstanceById(handle, gi))
    parent = session.nvml.nvmlDeviceGetIndex(info.device)
    return [parent, info.id, info.profileId, info.placement.start, info.placement.size]


def index_of(session: Session, call: str, *arguments: Any) -> int:
    """The index of the device whose handle a call returns."""
    index: int = session.nvml.nvmlDeviceGetIndex(getattr(session.nvml, call)(*arguments))
    return index


def keep(session: Session, name: str, handle: Any) -> None:
    """Keeps a handle for ``with_kept``, to be used after the world has changed."""
    session.kept[name] = handle


def with_kept(session: Session, name: str, call: str) -> Any:
    return getattr(session.nvml, call)(session.kept[name])


def write(session: Session, path: str, text: str) -> None:
    draft = Path(path + ".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def sleep_ms(session: Session, ms: int) -> None:
    time.sleep(ms / 1000)


HELPERS: dict[str, Callable[..., Any]] = {
    helper.__name__: helper
    for helper in (
        fields, gpm, gpm_version, open_events, wait_event, close_events, filled, unrepairable_word0, processes_v1,
        raw_init, gi_info, index_of, keep, with_kept, write, sleep_ms,
    )
}  # fmt: skip


def main() -> None:
    session = Session()
    print(json.dumps([session.run(step) for step in json.load(sys.stdin)]), flush=True)


if __name__ == "__main__":
    main()
