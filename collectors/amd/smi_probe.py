"""``python -m collectors.amd.smi_probe``: try amdsmi in a process of its own, which may hang or crash.

Its argument is a Place in JSON. It writes one line of JSON, a Verdict.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Final, Literal

import msgspec

from collectors.amd.smi_load import LoadError, Place, check_extents, check_version, load

TIMEOUT: Final = 20.0
"""Seconds for all of it. A sick GPU can hold the library for ever."""
_MOST: Final = 65536
_NO_PERMISSION: Final = 10
_INIT_GPUS: Final = 2


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether amdsmi can be used, and why not."""

    state: Literal[
        "ok", "no_device", "no_library", "no_driver", "no_permission", "version_mismatch", "hangs", "crashes"
    ]
    detail: str = ""


def ask(place: Place, timeout: float = TIMEOUT) -> Verdict:
    """Let another process try, no longer than ``timeout`` seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "collectors.amd.smi_probe", msgspec.json.encode(place).decode()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        return Verdict(state="hangs", detail=f"amdsmi did not answer within {timeout:g} s: a GPU may be sick")
    if process.returncode:
        name = signal.Signals(-process.returncode).name if process.returncode < 0 else str(process.returncode)
        return Verdict(state="crashes", detail=f"amdsmi ended its process: {name}")
    try:
        return msgspec.json.decode(output[:_MOST], type=Verdict)
    except msgspec.DecodeError:
        return Verdict(state="crashes", detail="amdsmi ended its process without a word")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the group. What the kernel holds (state D) is left behind: it goes when the kernel lets it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    end = time.monotonic() + 2.0
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    if process.stdout is not None:
        process.stdout.close()


def attempt(place: Place) -> Verdict:
    """Load, compare, open, look at the first GPU, close."""
    try:
        module = load(place)
        check_version(module)
    except LoadError as error:
        return Verdict(state=error.state, detail=str(error))
    try:
        module.amdsmi_init(module.AmdSmiInitFlags(_INIT_GPUS))
    except Exception as error:  # noqa: BLE001 - see LoadError
        return _refusal(error)
    try:
        handles = module.amdsmi_get_processor_handles()
        if not handles:
            return Verdict(state="no_device", detail="amdsmi finds no GPU")
        check_extents(module, handles[0])
    except LoadError as error:
        return Verdict(state=error.state, detail=str(error))
    except Exception as error:  # noqa: BLE001 - see LoadError
        return _refusal(error)
    module.amdsmi_shut_down()
    return Verdict(state="ok")


def _refusal(error: Exception) -> Verdict:
    return Verdict(
        state="no_permission" if getattr(error, "err_code", None) == _NO_PERMISSION else "no_driver",
        detail=f"amdsmi cannot be opened: {' '.join(str(error).split())}"[:500],
    )


def main() -> None:
    # What the library prints must not get between us and the reader.
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    verdict = attempt(msgspec.json.decode(sys.argv[1], type=Place))
    os.write(answer, msgspec.json.encode(verdict) + b"\n")
    # A library that was written over may crash on its way out: its word is given.
    os._exit(0)


if __name__ == "__main__":
    main()
