"""The one long-lived neuron-monitor: its configuration, its life, its reports."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from collectors.base import NODE, ReadError
from collectors.neuron import programs, report
from collectors.neuron.report import Report
from collectors.neuron.stream import Splitter

_CHUNK: Final = 262144
_MOST_REPORTS: Final = 256
"""Reports that wait to be taken. Counters need each of them; if the agent asks for none that long, some are lost."""
_BACKOFF_MAX: Final = 60.0
_SETTLED: Final = 60.0
"""Seconds after which a run counts as good: the next failure starts with a short pause again."""
_OPENING: Final = 15.0
"""Seconds that the first report of a run may take beyond a few periods: the tool opens every device before."""
_LATE: Final = 2.0
"""Seconds beyond a few periods after which the last report is stale."""
_SHARED_MEMORY: Final = "/dev/shm"


class Arrival(msgspec.Struct, frozen=True):
    """A report and when it came (monotonic seconds)."""

    report: Report
    at: float


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    """What has come since the last look."""

    reports: tuple[Report, ...] = ()
    newest: Report | None = None
    """The last report, if it is not stale."""
    errors: tuple[ReadError, ...] = ()


def configuration(series: frozenset[str], period: float, *, host: bool) -> Mapping[str, object]:
    """monitor.conf: the groups of metrics that these series need. ``host``: with the host's processors and memory."""
    groups: dict[str, tuple[str, ...]] = {
        "neuroncore_counters": ("neuroncore_", "neuron_core_", "neuron_physical_"),
        "memory_used": ("neuroncore_memory_", "neuron_runtime_memory_", "neuron_core_", "neuron_process_"),
        "execution_stats": ("execution_", "neuron_device_execution_"),
    }
    if host:
        groups["neuron_runtime_vcpu_usage"] = ("neuron_runtime_vcpu_",)
    system: dict[str, tuple[str, ...]] = {"neuron_hw_counters": ("hardware_ecc_", "neuron_monitor_ecc_")}
    if host:
        system |= {"vcpu_usage": ("system_vcpu_",), "memory_info": ("system_memory_", "system_swap_")}

    def wanted(table: Mapping[str, tuple[str, ...]]) -> list[dict[str, str]]:
        return [{"type": name} for name, begins in table.items() if any(one.startswith(begins) for one in series)]

    return {
        "period": duration(period),
        "neuron_runtimes": [{"tag_filter": ".*", "metrics": wanted(groups)}],
        "system_metrics": wanted(system),
    }


def duration(seconds: float) -> str:
    """In Go's spelling."""
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{round(seconds * 1000)}ms"


class Monitor:
    """Keeps one neuron-monitor running. All calls come from one thread; another one reads its pipes."""

    def __init__(self, program: str, settings: Mapping[str, object], *, period: float, memory_limit_mib: int) -> None:
        self._program = program
        self._settings = settings
        self._environ = {"GOMEMLIMIT": f"{memory_limit_mib}MiB"}
        self._patience = 3 * period + _OPENING
        self._stale = 3 * period + _LATE
        self._run: _Run | None = None
        self._file = ""
        self._failures = 0
        self._due = 0.0
        self._newest: Arrival | None = None
        self._malformed = 0
        self.restarts = 0
        self.trouble = ""
        """Why there is no report; empty while there are."""

    @property
    def malformed(self) -> int:
        """Pieces of output that were not understood, over all runs."""
        return self._malformed + (self._run.malformed if self._run else 0)

    def poll(self) -> Polled:
        """Start it if it is due, end it if it hangs, and take what it has said."""
        now = time.monotonic()
        errors: list[ReadError] = []
        if self._run is None and now >= self._due:
            self._start(now, errors)
        run = self._run
        arrivals = run.take() if run is not None else []
        if arrivals:
            self._newest = arrivals[-1]
        if run is not None and (why := self._over(run, now)):
            hangs = run.process.returncode is None
            run.close()
            # It may have said more before it ended.
            if left := run.take():
                arrivals += left
                self._newest = left[-1]
            self._malformed += run.malformed
            self._run = None
            kind = "timeout" if hangs else "transient"
            self._failed(now, f"neuron-monitor {why}", kind, errors)
        fresh = self._newest is not None and now - self._newest.at <= self._stale
        if fresh:
            self.trouble = ""
        return Polled(
            reports=tuple(arrival.report for arrival in arrivals),
            newest=self._newest.report if self._newest is not None and fresh else None,
            errors=tuple(errors),
        )

    def wait_for_report(self, seconds: float) -> None:
        """Wait until a report is there to be polled, or the run ends, or the time is over."""
        if self._run is not None:
            self._run.something.wait(seconds)

    def close(self) -> None:
        """End the program and remove its configuration."""
        if self._run is not None:
            self._malformed += self._run.malformed
            self._run.close(grace=0.5)
            self._run = None
        if self._file:
            with contextlib.suppress(OSError):
                Path(self._file).unlink()
            self._file = ""

    def _start(self, now: float, errors: list[ReadError]) -> None:
        if self._failures:
            self.restarts += 1
        try:
            if not self._file or not Path(self._file).exists():
                self._file = _write(self._settings)
            self._run = _Run(programs.start([self._program, "-c", self._file], self._environ), now)
        except OSError as error:
            self._failed(now, f"neuron-monitor cannot be started: {error}", "library", errors)

    def _over(self, run: _Run, now: float) -> str:
        """Why a run is over: it has ended, or hangs. Empty: it goes on."""
        code = run.process.poll()
        if code is not None:
            return f"ended with exit code {code}: {run.last_words or 'no word'}"
        silent = now - max(run.started, self._newest.at if self._newest is not None else 0.0)
        if silent > self._patience:
            return f"has been silent for {silent:.0f} s"
        if now - run.started > _SETTLED:
            self._failures = 0
        return ""

    def _failed(self, now: float, text: str, kind: str, errors: list[ReadError]) -> None:
        self._failures += 1
        pause = min(_BACKOFF_MAX, 2.0 ** min(self._failures - 1, 8))
        self._due = now + pause
        self.trouble = text
        errors.append(ReadError(NODE, kind, f"{text}; it is started again in {pause:.0f} s"))


class _Run:
    """One life of the program, with the thread that reads its pipes until they close."""

    def __init__(self, process: subprocess.Popen[bytes], started: float) -> None:
        self.process = process
        self.started = started
        self.something = threading.Event()
        """A report has come, or none will."""
        self._arrivals: deque[Arrival] = deque(maxlen=_MOST_REPORTS)
        self._splitter = Splitter(report.decode)
        self._stderr = bytearray()
        self._wake_reader, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._read, name="neuron-monitor", daemon=True)
        self._thread.start()

    @property
    def malformed(self) -> int:
        return self._splitter.malformed

    @property
    def last_words(self) -> str:
        return programs.last_words(self._stderr)

    def take(self) -> list[Arrival]:
        found = []
        while self._arrivals:
            found.append(self._arrivals.popleft())
        return found

    def close(self, grace: float = 0.0) -> None:
        """End the program, the thread and the pipes."""
        programs.end(self.process, grace)
        os.write(self._wake, b".")
        self._thread.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._wake)
        os.close(self._wake_reader)

    def _read(self) -> None:
        stdout = self.process.stdout.fileno() if self.process.stdout else -1
        stderr = self.process.stderr.fileno() if self.process.stderr else -1
        with selectors.DefaultSelector() as selector:
            for fd in (stdout, stderr, self._wake_reader):
                selector.register(fd, selectors.EVENT_READ)
            while stdout in selector.get_map():
                ready = [key.fd for key, _ in selector.select()]
                if ready == [self._wake_reader]:
                    break
                for fd in ready:
                    if fd != self._wake_reader:
                        self._chunk(fd, selector, stderr)
        self.something.set()

    def _chunk(self, fd: int, selector: selectors.BaseSelector, stderr: int) -> None:
        chunk = os.read(fd, _CHUNK)
        if not chunk:
            selector.unregister(fd)
        elif fd == stderr:
            programs.keep_end(self._stderr, chunk)
        else:
            for found in self._splitter.feed(chunk):
                self._arrivals.append(Arrival(found, time.monotonic()))
                self.something.set()


def _write(settings: Mapping[str, object]) -> str:
    """The configuration in a file of its own. With a read-only root there is still shared memory. Raises OSError."""
    try:
        fd, path = tempfile.mkstemp(prefix="neuron-monitor-", suffix=".conf")
    except OSError:
        fd, path = tempfile.mkstemp(prefix="neuron-monitor-", suffix=".conf", dir=_SHARED_MEMORY)
    with os.fdopen(fd, "w") as file:
        json.dump(settings, file)
    return path
