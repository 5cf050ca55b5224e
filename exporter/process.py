"""A worker process as the agent sees it: start, ask, kill, wait. One request is in flight at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from exporter import wire
from exporter.model import Reply, Request

log = logging.getLogger(__name__)

KEPT_LINES: Final = 20
"""Lines of a worker's log that are kept for the message about its death."""
MAX_LINE: Final = 2000
LINES_PER_MINUTE: Final = 30
_DECODER: Final = msgspec.msgpack.Decoder(Reply)


class WorkerGone(Exception):
    """The worker closed its channel: it has ended, or is about to. ``lines`` are the last of its log."""


class WorkerTimeout(Exception):
    """No answer within the deadline."""


class WorkerProcess:
    """One ``python -m exporter.worker``, in a process group of its own."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._channel = channel
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._log_task: asyncio.Task[None] | None = None
        self._poll_task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._pidfd = -1

    @classmethod
    async def start(cls, name: str, environ: Mapping[str, str]) -> WorkerProcess:
        """Start a worker. Raises OSError where no process can be made. A start that fails leaves nothing behind."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = subprocess.Popen(  # noqa: ASYNC220 - a fork costs a millisecond; its pipes are read asynchronously
                    [sys.executable, "-P", "-m", "exporter.worker"],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    env=dict(environ),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self = cls(name, process, ours)
        try:
            await self._attach()
        except BaseException:
            # It has no driver in its hands yet, so that its end does not let itself be waited for.
            self.kill()
            process.wait()
            await self.dispose()
            raise
        return self

    async def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        self._channel.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=self._channel)
        try:
            self._pidfd = os.pidfd_open(self.pid)
            loop.add_reader(self._pidfd, self._on_end)
        except OSError:
            # Some sandboxes refuse pidfds.
            self._poll_task = asyncio.create_task(self._poll())
        self._log_task = asyncio.create_task(self._follow_log())

    async def ask(self, request: Request, deadline: float) -> Reply:
        """Send a request and wait for its answer. Raises WorkerTimeout, WorkerGone."""
        what = type(request).__name__.lower()
        try:
            async with asyncio.timeout(deadline):
                return await self._ask(request)
        except TimeoutError as error:
            raise WorkerTimeout(f"no answer to {what} within {deadline:g} s") from error
        except (asyncio.IncompleteReadError, OSError, wire.BrokenChannel) as error:
            raise WorkerGone(str(error)) from error
        except msgspec.MsgspecError as error:
            raise WorkerGone(f"the worker sent what is no answer: {error}") from error

    async def _ask(self, request: Request) -> Reply:
        if self._reader is None or self._writer is None:
            raise WorkerGone("the worker is not attached")
        self._writer.write(wire.pack(request))
        await self._writer.drain()
        header = await self._reader.readexactly(wire.HEADER.size)
        return _DECODER.decode(await self._reader.readexactly(wire.length(header)))

    async def end(self, grace: float) -> bool:
        """Close the channel, give the worker ``grace`` seconds to let go of the driver, then kill it and its children.

        Returns False if it is still there afterwards: the kernel holds it in an uninterruptible call.
        """
        if self._writer is not None:
            self._writer.close()
        if grace > 0 and not await self.wait(grace):
            log.warning("worker did not end by itself", extra={"collector": self.name, "pid": self.pid})
        self.kill()
        return await self.wait(2.0)

    def kill(self) -> None:
        """SIGKILL to the worker and to what it started, such as a vendor's command."""
        if self._process.poll() is not None and not _group_exists(self.pid):
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            log.debug("worker had ended already", extra={"collector": self.name, "pid": self.pid})

    async def wait(self, limit: float) -> bool:
        """Wait for its end, at most ``limit`` seconds. False if it did not come."""
        try:
            async with asyncio.timeout(limit):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    @property
    def signal(self) -> str:
        """The name of the signal that ended it; empty if it ended by itself or lives."""
        code = self._process.returncode
        if code is None or code >= 0:
            return ""
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"SIG{-code}"

    @property
    def resident(self) -> int:
        """Bytes of memory that it holds; 0 if it has ended."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * resource.getpagesize()

    @property
    def last_words(self) -> str:
        """The last lines of its log."""
        return " | ".join(self._lines)

    async def dispose(self) -> None:
        """Release descriptors and tasks. A worker that still lives is left to the kernel."""
        for task in (self._log_task, self._poll_task):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
        else:
            self._channel.close()
        self._close_pidfd()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _on_end(self) -> None:
        self._process.poll()
        self._close_pidfd()
        self._ended.set()

    async def _poll(self) -> None:
        while not self._ended.is_set():
            await asyncio.sleep(0.1)
            if self._process.poll() is not None:
                self._ended.set()

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    async def _follow_log(self) -> None:
        """Pass the worker's log on, line by line, bounded in length and rate."""
        if self._process.stderr is None:
            return
        reader = asyncio.StreamReader(limit=64 * 1024)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(self._process.stderr.fileno()), "rb")
        )
        loop = asyncio.get_running_loop()
        budget, refilled = LINES_PER_MINUTE, loop.time()
        try:
            while line := await _line(reader):
                text = line.decode("utf-8", "replace").rstrip()[:MAX_LINE]
                if not text:
                    continue
                self._lines.append(text)
                if loop.time() - refilled > 60:
                    budget, refilled = LINES_PER_MINUTE, loop.time()
                budget -= 1
                if budget >= 0:
                    log.info("worker says: %s", text, extra={"collector": self.name, "pid": self.pid})
                elif budget == -1:
                    log.warning("worker says too much: the rest is left out", extra={"collector": self.name})
        finally:
            transport.close()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line, or a piece of one that is too long; empty at the end."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await reader.readexactly(error.consumed or 1)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
