"""PCIe traffic of MI100 and MI200: a read of the driver's file takes a second, so a thread of its own does it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from collectors.amd import files
from collectors.amd.cards import Card
from collectors.amd.host_probes import throughput_rows
from collectors.amd.reader import path
from collectors.base import Reading

_PAUSE: Final = 10.0
"""Seconds between two rounds."""
_MAX_AGE: Final = 60.0


class Throughput:
    """Reads ``pcie_bw`` of each card in turn until it is closed."""

    def __init__(self, cards: Sequence[Card], pause: float = _PAUSE) -> None:
        self._cards = [card for card in cards if card.has("pcie_bw")]
        self._pause = pause
        self._found: dict[int, tuple[float, tuple[Reading, ...]]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pcie_bw", daemon=True)
        if self._cards:
            self._thread.start()

    def readings(self) -> Iterator[Reading]:
        """The newest of each card, unless it is too old."""
        for at, readings in list(self._found.values()):
            if time.monotonic() - at <= _MAX_AGE:
                yield from readings

    def close(self) -> None:
        """Ask the thread to end. It may be in the middle of a read, which nothing can cut short."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            for card in self._cards:
                if self._closed.is_set():
                    return
                try:
                    text = files.text(path(card, "pcie_bw"))
                except files.FileError:
                    # Whatever is wrong with the card, its other readings tell.
                    self._found.pop(card.position, None)
                    continue
                self._found[card.position] = (time.monotonic(), tuple(throughput_rows(card, text)))
            self._closed.wait(self._pause)
