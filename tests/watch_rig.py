"""A watch of a node's pods at a fake API server, with what it tells."""

from __future__ import annotations

import pytest

from exporter.attribution import api as limits
from exporter.attribution import watch as watches
from exporter.attribution.api import Api, Backoff
from exporter.attribution.pods import PodObject
from exporter.attribution.watch import Watch
from tests.attribution_rig import Heard
from tests.fakes.apiserver.objects import PODS

NODE = {"fieldSelector": "spec.nodeName=node1"}


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that a test can wait for."""
    monkeypatch.setattr(limits, "BACKOFF_FIRST", 0.02)
    monkeypatch.setattr(limits, "BACKOFF_MOST", 0.1)
    monkeypatch.setattr(watches, "SHORT", 0.02)


def noted(monkeypatch: pytest.MonkeyPatch, pause: float = 0.01) -> list[float | None]:
    """What is asked of the back-off; each pause is of this length."""
    found: list[float | None] = []

    def draw(_: Backoff, asked: float | None) -> float:
        found.append(asked)
        return pause

    monkeypatch.setattr(Backoff, "pause", draw)
    return found


class Watched:
    """A watch of the node's pods, with what it told."""

    def __init__(self, url: str, token_file: str = "", ca_file: str = "") -> None:
        self.heard = Heard()
        self.api = Api(url, token_file, ca_file)
        self.watch = Watch(self.api, PODS, NODE, PodObject, changed=self.heard.changed, failed=self.heard.failed)

    async def run(self) -> None:
        try:
            await self.watch.run()
        finally:
            await self.api.close()

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.watch.objects}
