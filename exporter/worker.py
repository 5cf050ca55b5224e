"""The child process that runs one collector: ``python -m exporter.worker``.

It answers requests on its standard input and output until the input ends. A vendor's library may print, hang or crash
in here; nothing else of the agent runs in this process.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from collectors.base import (
    NODE,
    Collector,
    Device,
    Group,
    Holder,
    Labels,
    Process,
    ReadError,
    Sample,
    Settings,
    Unavailable,
)
from exporter import wire
from exporter.digest import digest
from exporter.families import clean
from exporter.model import (
    Close,
    Closed,
    Configure,
    Configured,
    Discover,
    Discovered,
    Failed,
    Key,
    NotAvailable,
    Number,
    Read,
    ReadDone,
    Reply,
    Request,
)

MAX_PROCESSES: Final = 4096
MAX_HOLDERS: Final = 4096
MAX_ERRORS: Final = 100
"""Errors of one sample that are sent; a broken device could give one for each quantity, each time."""
MAX_TEXT: Final = 4096
"""Characters of a label's value or of a device's fact: what is longer is none, and each scrape would carry it."""
MAX_HINT: Final = 1000
MAX_DEVICES: Final = 16_384
"""Devices and parts of one vendor: each costs the agent a dozen series, and the event loop its time."""

_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
Row = tuple[str, int, Labels]
"""Series, device, labels."""


class _Given(msgspec.Struct, frozen=True):
    """The series of a group's last sample, and those of them that no scrape could carry."""

    rows: tuple[Row, ...]
    refused: frozenset[Row]


class Session:
    """What one worker knows between two requests."""

    def __init__(self) -> None:
        self._collector: Collector | None = None
        self.call_limit = 0.0
        self._devices = 0
        self._identities: tuple[frozenset[str], ...] = ()
        """The names of each device's own labels."""
        self._known: frozenset[str] = frozenset()
        self._given: dict[Group, _Given] = {}

    def answer(self, request: Request) -> Reply:
        """Do what is asked; a collector's failure becomes a reply."""
        if isinstance(request, Configure):
            self.call_limit = request.call_limit
        # The default action of SIGALRM ends the process even inside a call that never returns, and without the agent.
        signal.setitimer(signal.ITIMER_REAL, self.call_limit)
        try:
            return self._answer(request)
        except Unavailable as error:
            return NotAvailable(state=error.state, hint=error.hint[:MAX_HINT], restart=error.restart)
        except Exception:  # noqa: BLE001 - whatever a vendor's library raises is told to the agent, which restarts us
            return Failed(traceback.format_exc(limit=-12))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _answer(self, request: Request) -> Reply:
        match request:
            case Configure():
                self._collector = _open(request)
                self._known = frozenset().union(*request.wanted.values())
                return Configured()
            case Discover():
                devices = tuple(self._opened().discover())
                _check_devices(devices)
                self._devices = len(devices)
                self._identities = tuple(frozenset(name for name, _ in device.raw_labels) for device in devices)
                self._given.clear()
                return Discovered(devices, str(getattr(self._collector, "source", "")))
            case Read():
                started, taken_at = time.monotonic(), time.time()
                sample = self._opened().sample(request.group)
                return self._done(request.group, sample, taken_at, time.monotonic() - started)
            case Close():
                self.close()
                return Closed()

    def close(self) -> None:
        """Let go of the driver."""
        collector, self._collector = self._collector, None
        if collector is not None:
            collector.close()

    def _opened(self) -> Collector:
        if self._collector is None:
            raise RuntimeError("the collector is not open: the agent must send Configure first")
        return self._collector

    def _done(self, group: Group, sample: Sample, taken_at: float, duration: float) -> ReadDone:
        unknown: set[str] = set()
        errors = list(sample.errors[:MAX_ERRORS])
        rows: dict[Row, Number] = {}
        for reading in sample.readings:
            if reading.series not in self._known or not NODE <= reading.device < self._devices:
                unknown.add(reading.series)
            elif _is_finite(reading.value):
                row = (reading.series, reading.device, reading.labels)
                if row in rows:
                    errors.append(ReadError(reading.device, "library", f"{reading.series} was given twice"))
                rows.setdefault(row, _number(reading.value))
        before = self._given.get(group)
        given = self._looked_at(before, tuple(rows))
        self._given[group] = given
        for row in given.refused:
            del rows[row]
            errors.append(ReadError(row[1], "library", f"{row[0]} has labels that no series can have"))
        return ReadDone(
            layout=None if given is before else tuple(Key(*row) for row in rows),
            values=tuple(rows.values()),
            errors=tuple(errors[:MAX_ERRORS]),
            faults=tuple(fault for fault in sample.faults if 0 <= fault.device < self._devices),
            lost=tuple(device for device in sample.lost if 0 <= device < self._devices),
            rediscover=sample.rediscover,
            processes=_processes(sample, self._devices),
            holders=_holders(sample, self._devices),
            taken_at=taken_at,
            duration=duration,
            unknown=tuple(sorted(unknown)[:MAX_ERRORS]),
        )

    def _looked_at(self, before: _Given | None, rows: tuple[Row, ...]) -> _Given:
        """One series with a broken label, or with one label twice, would make a whole scrape unreadable."""
        if before is not None and before.rows == rows:
            return before
        good: set[tuple[int, Labels]] = set()
        refused: set[Row] = set()
        for row in rows:
            _, device, labels = row
            if (device, labels) in good:
                continue
            if _is_sound(labels, self._identities[device] if device != NODE else frozenset()):
                good.add((device, labels))
            else:
                refused.add(row)
        return _Given(rows, frozenset(refused))


def _is_finite(value: Number) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        # An integer that no float can hold.
        return False


def _is_sound(labels: Labels, taken: frozenset[str] = frozenset()) -> bool:
    """Whether these labels can stand on a series, beside those that are ``taken``."""
    names = {name for name, _ in labels}
    return (
        len(names) == len(labels)
        and names.isdisjoint(taken)
        and all(_LABEL.fullmatch(name) is not None for name in names)
        and all(len(value) <= MAX_TEXT for _, value in labels)
    )


def _processes(sample: Sample, devices: int) -> tuple[Process, ...] | None:
    if sample.processes is None:
        return None
    return tuple(process for process in sample.processes[:MAX_PROCESSES] if 0 <= process.device < devices)


def _holders(sample: Sample, devices: int) -> tuple[Holder, ...]:
    told = sample.holders[:MAX_HOLDERS]
    return tuple(holder for holder in told if 0 <= holder.device < devices and _is_sound(holder.facts))


def _number(value: Number) -> Number:
    """A plain number that MessagePack can carry."""
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else float(value)
    return value


def _check_devices(devices: tuple[Device, ...]) -> None:
    """Two devices of one identity would give two series of one name."""
    if len(devices) > MAX_DEVICES:
        raise ValueError(
            f"the collector gave {len(devices)} devices and parts, and no node has more than {MAX_DEVICES}"
        )
    seen: set[tuple[str, str]] = set()
    for device in devices:
        if not device.uuid:
            raise ValueError(f"the collector gave a device without identity: {device}")
        for fact in device.__struct_fields__:
            if isinstance(text := getattr(device, fact), str) and len(text) > MAX_TEXT:
                raise ValueError(f"the collector gave a device whose {fact} has {len(text)} characters")
        if not _is_sound(device.raw_labels):
            raise ValueError(f"the collector gave {device.uuid} labels that no series can have")
        if (device.uuid, device.partition) in seen:
            raise ValueError(f"the collector gave {device.uuid} {device.partition} twice")
        seen.add((device.uuid, device.partition))


def _open(request: Configure) -> Collector:
    if digest(Path(request.tables)) != request.digest:
        raise Unavailable("version_mismatch", "the package's files changed under the running agent: restart the agent")
    open_collector: Callable[[Settings], Collector] = importlib.import_module(request.module).open_collector
    return open_collector(
        Settings(
            wanted=request.wanted,
            paths=request.paths,
            node=request.node,
            links=request.links,
            processes=request.processes,
            source=request.source,
            profile=request.profile,
            options=request.options,
        )
    )


def _packed(reply: Reply) -> bytes:
    """A name that is no UTF-8 (some vendors' serial numbers) must not cost the vendor all its series."""
    try:
        return wire.pack(reply)
    except UnicodeEncodeError:
        return wire.pack(_cleaned(msgspec.to_builtins(reply)))


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(each) for each in value]
    return value


def _private_channel() -> tuple[int, int]:
    """Move the protocol away from 0 and 1, where a vendor's library might read or print. Children do not inherit it."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


def _take_alarms() -> None:
    """Have a thread that does nothing and blocks no signal.

    A library may block all signals in the thread that calls it; the alarm that ends a hung call then finds this one.
    """
    threading.Thread(target=threading.Event().wait, name="alarms", daemon=True).start()


def main() -> int:
    """Serve requests until the agent closes the channel."""
    source, sink = _private_channel()
    _take_alarms()
    # The agent decides when a worker ends; a signal to the whole group must not cut a driver call short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    session = Session()
    decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
    try:
        while (body := wire.receive(lambda size: os.read(source, size))) is not None:
            reply = _packed(session.answer(decoder.decode(body)))
            while reply:
                reply = reply[os.write(sink, reply) :]
    except (BrokenPipeError, ConnectionResetError):
        print("the agent is gone", file=sys.stderr)
    finally:
        # Nobody is there any more who would end a close that hangs.
        signal.setitimer(signal.ITIMER_REAL, session.call_limit)
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
