"""HLML as a source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from collectors.base import Settings, Unavailable
from collectors.gaudi import sysfs
from collectors.gaudi.binding import NEEDED, USUAL_PATH, Handle, Library
from collectors.gaudi.failure import DRIVER_NOT_LOADED, Failure, HlmlFailure
from collectors.gaudi.questions import Ask, Kind
from collectors.gaudi.source import Event, Found, Listing, Port
from collectors.gaudi.units import Answer, Asker, Unit

EVENTS: Final[Mapping[int, str]] = {
    1 << 0: "habanalabs:ecc_derr",
    1 << 1: "habanalabs:critical",
    1 << 2: "habanalabs:clock_rate",
    1 << 3: "habanalabs:dram_derr",
    1 << 4: "habanalabs:ecc_serr",
    1 << 5: "habanalabs:dram_serr",
}
"""hlml_event_type bits."""
_WAIT: Final = 1
"""Milliseconds for an event. Events queue in the library, so none is missed between two samples."""
_MOST_EVENTS: Final = 256
_MOST_DEVICES: Final = 256
_MOST_PORTS: Final = 128
_WORD: Final = 1 << 32
_NAME, _SERIAL, _UUID, _STATE, _VERSION = 32, 32, 128, 30, 96
"""Sizes of texts, as hlml.h has them."""
_PORTS: Final = Ask("number", "ports")


class HlmlSource:
    """One session of the library, from ``open`` to ``close``."""

    name = "hlml"

    def __init__(self, settings: Settings) -> None:
        self._paths = settings.paths
        self._path = str(settings.options.get("library") or "")
        self._events_wanted = bool(settings.options.get("events", True))
        self._library: Library | None = None
        self._running = False
        self._event_set: Handle | None = None

    @property
    def answers(self) -> Mapping[Kind, Answer]:
        library = self._opened()
        asks: dict[Kind, Callable[[Library, Handle, Ask], Any]] = {
            "number": lambda lib, handle, ask: lib.number(ask.name, handle, *ask.arguments),
            "wide": lambda lib, handle, ask: lib.wide(ask.name, handle, *ask.arguments),
            "pair": lambda lib, handle, ask: lib.pair(ask.name, handle),
            "memory": lambda lib, handle, ask: lib.memory(handle),
            "utilization": lambda lib, handle, ask: lib.number("hlml_device_get_utilization_rates", handle),
            "violation": lambda lib, handle, ask: lib.violation(handle, *ask.arguments),
            "rows": lambda lib, handle, ask: lib.replaced_rows(handle, *ask.arguments),
        }
        return {kind: _asked(library, how) for kind, how in asks.items()}

    def open(self) -> None:
        """Load and start the library. Raises Unavailable."""
        library = self._library or self._load()
        if lacking := library.lacks():
            raise Unavailable(
                "version_mismatch",
                f"libhlml.so has no {', '.join(lacking)} (needed: {', '.join(NEEDED)}): install the library of the "
                "driver's release, or set collectors.gaudi.source to hl-smi",
                restart=True,
            )
        self._library = library
        try:
            library.start()
        except HlmlFailure as failure:
            self._refuse(failure)
        self._running = True

    def _load(self) -> Library:
        paths = [self._path] if self._path else ["libhlml.so", USUAL_PATH]
        reasons = []
        for path in paths:
            try:
                return Library(path)
            except OSError as error:
                reasons.append(str(error))
        raise Unavailable(
            "no_library",
            f"libhlml.so cannot be loaded ({'; '.join(reasons)}): install the package of the Gaudi firmware tools; in "
            "a container mount the host's /usr/lib/habanalabs read-only, or set paths.libraries.gaudi",
        )

    def discover(self) -> Listing:
        library = self._opened()
        found: list[Found] = []
        failed: list[str] = []
        try:
            count = library.count()
        except HlmlFailure as failure:
            self._refuse(failure)
        driver = sysfs.module_version(self._paths.sys) or _text(library, "hlml_get_driver_version", None, _VERSION)
        for index in range(min(count, _MOST_DEVICES)):
            try:
                found.append(_found(library, index, driver))
            except HlmlFailure as failure:
                if failure.verdict == "gone":
                    self._refuse(failure)
                failed.append(f"HLML's device {index}: {failure}")
        return Listing(found=tuple(found), failed=tuple(failed))

    def begin(self, wanted: frozenset[str], units: Sequence[Unit], asker: Asker) -> None:
        """HLML is asked one thing at a time."""

    def state(self, unit: Unit) -> str:
        return _text(self._opened(), "hlml_device_get_oper_status", unit.key, _STATE)

    def ports(self, unit: Unit, asker: Asker) -> Sequence[tuple[Port, bool]]:
        library = self._opened()
        if asker.skips(unit, _PORTS):
            return ()
        found: list[tuple[Port, bool]] = []
        try:
            mask, external = library.ports(unit.key)
        except HlmlFailure as failure:
            asker.failed(unit, _PORTS, failure)
            return ()
        for number in range(_MOST_PORTS):
            ask = Ask("number", "link", (number,))
            if not mask >> number & 1 or asker.skips(unit, ask):
                continue
            try:
                found.append((Port(number, bool(external >> number & 1)), library.link(unit.key, number)))
            except HlmlFailure as failure:
                asker.failed(unit, ask, failure)
        return found

    def octets(self, unit: Unit, port: Port) -> tuple[int, int] | None:
        """Read until two readings in a row fit together: some are torn, off by multiples of 2^32.

        Raises HlmlFailure, 'not supported' where the port counts no octets.
        """
        library = self._opened()
        before = _octets(library.statistics(unit.key, port.number))
        for _ in range(3):
            now = _octets(library.statistics(unit.key, port.number))
            # No port moves 2^32 bytes between two readings, 100 ms apart.
            if all(0 <= new - old < _WORD for new, old in zip(now, before, strict=True)):
                return now
            before = now
        return None

    def watch(self, units: Sequence[Unit]) -> None:
        self._unwatch()
        if not self._events_wanted or not units:
            return
        mask = sum(EVENTS)
        try:
            self._event_set = self._opened().event_set([unit.key for unit in units], mask)
        except HlmlFailure as failure:
            # Without events there are fewer faults to tell; what else there is does not depend on them.
            if failure.verdict == "gone":
                raise

    def events(self) -> Sequence[Event]:
        found: list[Event] = []
        if self._event_set is None:
            return found
        for _ in range(_MOST_EVENTS):
            try:
                event = self._opened().event(self._event_set, _WAIT)
            except HlmlFailure as failure:
                if failure.verdict == "gone":
                    raise
                break
            if event is None:
                break
            found += [Event(event[0], code) for bit, code in EVENTS.items() if event[1] & bit]
        return found

    def close(self) -> None:
        if self._library is None or not self._running:
            return
        self._unwatch()
        self._running = False
        with contextlib.suppress(HlmlFailure):
            self._library.stop()

    def _unwatch(self) -> None:
        event_set, self._event_set = self._event_set, None
        if event_set is not None:
            with contextlib.suppress(HlmlFailure):
                self._opened().free(event_set)

    def _opened(self) -> Library:
        if self._library is None:
            raise Failure("gone", "libhlml.so is not loaded")
        return self._library

    def _refuse(self, failure: HlmlFailure) -> NoReturn:
        self.close()
        raise unavailable(failure, self._paths.sys, self._paths.dev) from None


def _asked(library: Library, how: Callable[[Library, Handle, Ask], Any]) -> Answer:
    return lambda unit, ask: how(library, unit.key, ask)


def _octets(counters: Mapping[str, int]) -> tuple[int, int]:
    """rx_Octets and tx_Octets of a port, whatever the case of their letters."""
    lower = {name.lower(): value for name, value in counters.items()}
    try:
        return lower["rx_octets"], lower["tx_octets"]
    except KeyError as error:
        raise Failure("unsupported", f"hlml_nic_get_statistics gives no {error}") from None


def _found(library: Library, index: int, driver: str) -> Found:
    handle = library.handle(index)
    return Found(
        key=handle,
        index=str(index),
        bdf=_bus_id(library, handle),
        minor=_number(library, "hlml_device_get_minor_number", handle),
        module_id=_number(library, "hlml_device_get_module_id", handle),
        uuid=_text(library, "hlml_device_get_uuid", handle, _UUID),
        serial=_text(library, "hlml_device_get_serial", handle, _SERIAL),
        model=_text(library, "hlml_device_get_name", handle, _NAME),
        driver_version=driver,
    )


def _bus_id(library: Library, handle: Handle) -> str:
    """The address, in one spelling. A text that is no address is a layout that is not known: Failure, and no device."""
    try:
        text = library.bus_id(handle)
    except HlmlFailure as failure:
        if failure.verdict in ("lost", "gone"):
            raise
        return ""
    found = sysfs.address(text)
    if text and not found:
        raise HlmlFailure(2, f"hlml_device_get_pci_info gave {text[:24]!r}, which is no PCI address")
    return found


def _text(library: Library, function: str, handle: Handle | None, size: int) -> str:
    """A text that the device may lack. Raises HlmlFailure when the device or the driver is gone."""
    try:
        return library.text(function, handle, size)
    except HlmlFailure as failure:
        if failure.verdict in ("lost", "gone"):
            raise
        return ""


def _number(library: Library, function: str, handle: Handle) -> str:
    try:
        return str(library.number(function, handle))
    except HlmlFailure as failure:
        if failure.verdict in ("lost", "gone"):
            raise
        return ""


def unavailable(failure: HlmlFailure, sys: str, dev: str) -> Unavailable:
    """Why HLML as a whole does not answer, and what to do. Inside containers it says 'driver not loaded' for much."""
    if failure.code != DRIVER_NOT_LOADED:
        return Unavailable("no_driver", f"HLML does not start ({failure}): see the kernel's log for habanalabs")
    if not Path(sys, "module/habanalabs").exists():
        return Unavailable("no_driver", "the kernel module is not loaded: modprobe habanalabs")
    if not any(Path(dev, name).exists() for name in ("accel", "hl_controlD0")):
        return Unavailable(
            "no_permission",
            f"the driver is loaded, but {dev}/accel is missing: mount the host's /dev/accel into the container",
        )
    return Unavailable(
        "no_permission",
        "the driver is loaded, but HLML cannot use it: run the container privileged, with the host's /dev/accel and "
        "/sys, or see the kernel's log for habanalabs",
    )
