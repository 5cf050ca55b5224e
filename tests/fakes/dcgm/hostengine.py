"""What nv-hostengine is to the outside: something that listens, and that connections to it end with."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType


class HostEngine:
    """Takes connections on a socket's path, or on a port of the loopback, and says nothing: the fake library answers.

    ``with HostEngine(tmp_path / "engine") as engine: …; engine.stop(); engine.start()`` is a restart.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._port = 0
        self._listener: socket.socket | None = None
        self._taken: list[socket.socket] = []
        self._taker: threading.Thread | None = None

    def __enter__(self) -> HostEngine:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """What the option ``dcgm_address`` is set to."""
        return str(self._path) if self._path is not None else f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; the port stays the same over a restart."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(self._path))
        else:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            self._port = listener.getsockname()[1]
        listener.listen()
        self._listener = listener
        self._taker = threading.Thread(target=self._take, args=(listener,), daemon=True)
        self._taker.start()

    def stop(self) -> None:
        """As if it had been killed: nothing listens, and every connection is closed."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if self._taker is not None:
            # What it took last is in the list only when it has ended.
            self._taker.join()
            self._taker = None
        for connection in self._taken:
            connection.close()
        self._taken = []
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _take(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while self._listener is listener:
                self._taken.append(listener.accept()[0])
