"""A service that writes into a file how the devices are, as the agent says it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from collectors.base import DeviceState, HostPaths, ServiceUnavailable


class Told:
    def __init__(self, states: Callable[[], Sequence[DeviceState]], path: Path) -> None:
        self._states, self._path, self._end = states, path, threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        self._path.write_text("stopped")

    def _write(self) -> None:
        while not self._end.wait(0.02):
            self._path.write_text(" ".join(f"{found.device.uuid}={found.health}" for found in self._states()))


def start_service(states: Callable[[], Sequence[DeviceState]], paths: HostPaths) -> Told:
    folder = Path(paths.run)
    if not folder.is_dir():
        raise ServiceUnavailable(f"{folder} is missing")
    return Told(states, folder / "told")
