"""Switches the push over OTLP on and off with the configuration. Without a receiver nothing of it is imported."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from exporter.agent import Agent
from exporter.config import Config
from exporter.config.otlp import receivers
from exporter.http.landing import public
from exporter.selfmetrics import SelfMetrics
from exporter.status.model import OtlpEndpoint

if TYPE_CHECKING:
    from exporter.otlp.service import Push

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s,;'\"<>]*")


def _origin(name: str) -> str:
    """A receiver's address without its path, which can hold a token or be a place of a file."""
    try:
        parts = urlsplit(name)
    except ValueError:
        # Not an address of ours: a receiver's words.
        return "…"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else public(name)


def _hint(words: str) -> str:
    """What became of the last request, for everyone who can reach the port."""
    return public(_URL.sub(lambda found: _origin(found[0]), words))


class Pusher:
    """The push of a running agent, if there is any."""

    def __init__(self, agent: Agent, metrics: SelfMetrics) -> None:
        """To be made before the agent starts: its own counters stand at zero now."""
        self._agent, self._metrics = agent, metrics
        self._push: Push | None = None
        self._began = time.time_ns()

    async def apply(self, config: Config) -> None:
        """Go on with this configuration."""
        if self._push is not None:
            await self._push.reload(config)
        elif receivers(config.otlp):
            from exporter.otlp.service import Push

            self._push = Push(config, self._metrics, lambda: self._agent.publication, began=self._began)
            self._agent.published = self._push.observe
            self._push.start()

    def receivers(self) -> list[OtlpEndpoint]:
        """How the receivers are, for the status page."""
        if self._push is None:
            return []
        return [
            OtlpEndpoint(name=_origin(name), **(msgspec.structs.asdict(report) | {"hint": _hint(report.hint)}))
            for name, report in self._push.reports()
        ]

    async def stop(self) -> None:
        """Send once more what there is, within the time that the configuration gives."""
        if self._push is not None:
            await self._push.stop()
