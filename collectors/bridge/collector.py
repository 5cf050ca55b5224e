"""The bridge as a collector: when to scrape, what to hand out, what to tell of trouble."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import msgspec

from collectors.base import (
    NODE,
    Device,
    Group,
    Holder,
    ReadError,
    Reading,
    Sample,
    Settings,
    Unavailable,
    UnavailableState,
)
from collectors.bridge.fetch import FetchError, Request, fetch, target
from collectors.bridge.options import BridgeOptions
from collectors.bridge.scrape import Reader, Refused, Scrape
from collectors.tables import Tables

PATIENCE: Final = 3
"""Scrapes that may fail in a row before the exporter counts as gone."""


class _Failure(msgspec.Struct, frozen=True):
    """Why there is no page. Not the exception itself: its traceback would keep the page in memory."""

    kind: str
    state: UnavailableState
    hint: str


class _Outcome:
    """The last scrape or why there is none, and which groups have had it."""

    def __init__(self, result: Scrape | _Failure, taken: float) -> None:
        self.result = result
        self.taken = taken
        self.served: set[Group] = set()
        self.reported = False


class BridgeCollector:
    """One exporter. Times are read from ``clock``, ages of samples from ``wall``."""

    def __init__(
        self,
        request: Request,
        reader: Reader,
        *,
        share_seconds: float,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._request = request
        self._reader = reader
        self._share = share_seconds
        self._what = what
        self._clock = clock
        self._wall = wall
        self._outcome: _Outcome | None = None
        self._failures = 0
        self._devices: tuple[Device, ...] = ()

    def discover(self) -> tuple[Device, ...]:
        """The devices that the page names. Raises Unavailable if there is no page or no device on it."""
        outcome = self._outcome
        if outcome is None or isinstance(outcome.result, _Failure) or not self._fresh(outcome):
            outcome = self._scrape()
        result = outcome.result
        if isinstance(result, _Failure):
            raise Unavailable(result.state, result.hint)
        if not result.devices:
            raise Unavailable("no_device", self._no_device(result))
        self._devices = result.devices
        return self._devices

    def sample(self, group: Group) -> Sample:
        """The group's readings. Raises Unavailable when the exporter has not answered PATIENCE times in a row."""
        outcome = self._outcome
        if outcome is None or group in outcome.served or not self._fresh(outcome):
            outcome = self._scrape()
        outcome.served.add(group)
        first, outcome.reported = not outcome.reported, True
        result = outcome.result
        if isinstance(result, _Failure):
            if self._failures >= PATIENCE:
                raise Unavailable(result.state, result.hint)
            return Sample(errors=(ReadError(NODE, result.kind, result.hint),) if first else ())
        return Sample(
            readings=self._positioned(result, group),
            errors=result.errors if first else (),
            holders=self._held(result),
            rediscover=result.devices != self._devices,
        )

    def close(self) -> None:
        self._outcome = None

    def _fresh(self, outcome: _Outcome) -> bool:
        return self._clock() - outcome.taken <= self._share

    def _scrape(self) -> _Outcome:
        taken = self._clock()
        result: Scrape | _Failure
        try:
            page = fetch(self._request)
            with closing(page.body):
                result = self._reader.read(page.body, openmetrics=page.openmetrics, now=self._wall())
            self._failures = 0
        except Refused as refused:
            result = _Failure("parse", "no_driver", f"the text of {self._request.target.text} {refused}")
        except FetchError as error:
            result = _Failure(error.kind, error.state, error.hint)
        if isinstance(result, _Failure):
            self._failures += 1
        self._outcome = _Outcome(result, taken)
        return self._outcome

    def _positioned(self, scrape: Scrape, group: Group) -> tuple[Reading, ...]:
        """Readings with the positions that the agent knows. Devices new to it wait for the next discovery."""
        readings = scrape.readings.get(group, ())
        if scrape.devices == self._devices:
            return readings
        moved = self._moved(scrape)
        found = []
        for reading in readings:
            position = NODE if reading.device == NODE else moved[reading.device]
            if position is not None:
                found.append(Reading(reading.series, position, reading.value, reading.labels))
        return tuple(found)

    def _held(self, scrape: Scrape) -> tuple[Holder, ...]:
        """The same of whom devices belong to."""
        moved = self._moved(scrape)
        return tuple(
            Holder(position, holder.facts)
            for holder in scrape.holders
            if (position := moved[holder.device]) is not None
        )

    def _moved(self, scrape: Scrape) -> list[int | None]:
        """By their positions on the page, those that the agent knows."""
        known = {(device.uuid, device.partition): position for position, device in enumerate(self._devices)}
        return [known.get((device.uuid, device.partition)) for device in scrape.devices]

    def _no_device(self, scrape: Scrape) -> str:
        text = self._request.target.text
        if scrape.known:
            return f"{text} has series of {self._what}, but none that names a device"
        return (
            f"{text} answers with {scrape.unknown} samples, none of {self._what}: "
            "if there are devices, see the exporter's log and whether url is that exporter's"
        )


def open_bridge(settings: Settings, make_reader: Callable[..., Reader] = Reader) -> BridgeCollector:
    """Check the options. Raises Unavailable that names the wrong one.

    ``make_reader``: what makes a Reader that knows more of a vendor's page than its table says.
    """
    try:
        tables = msgspec.convert(settings.options, Tables)
        options = msgspec.convert(settings.options, BridgeOptions)
        if tables.bridge is None:
            raise ValueError(
                f"{tables.vendor} has no table of labels of an exporter to read ([bridge] in collector.toml)"
            )
        request = Request(
            target=target(options.url or tables.bridge.url),
            timeout=options.timeout,
            max_bytes=options.max_bytes,
            headers=options.headers,
            bearer_token_file=options.bearer_token_file,
            ca_file=options.ca_file,
        )
        reader = make_reader(
            tables,
            tables.bridge,
            settings.wanted,
            max_series=options.max_series,
            max_age=options.max_age,
        )
    except ValueError as error:  # msgspec.ValidationError is one
        raise Unavailable("no_driver", f"bridge: {error}") from error
    return BridgeCollector(request, reader, share_seconds=options.share_seconds, what=tables.bridge.exporter)
