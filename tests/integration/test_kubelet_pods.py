"""The kubelet's own list of pods, polled, against a real HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.attribution import api as limits
from exporter.attribution.api import Api
from exporter.attribution.pods import Poll
from tests.attribution_rig import Heard, in_loop, running, until
from tests.fakes.apiserver.objects import pod
from tests.fakes.apiserver.server import ApiServer, body

PODS = "/pods"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKOFF_FIRST", 0.02)
    monkeypatch.setattr(limits, "BACKOFF_MOST", 0.1)


@pytest.fixture
def kubelet() -> Iterator[ApiServer]:
    with ApiServer() as found:
        found.put(PODS, pod("a"))
        yield found


class Polled:
    def __init__(self, kubelet: ApiServer, token_file: str = "") -> None:
        self.heard = Heard()
        self._api = Api(kubelet.url, token_file, "", verify=False)
        self.poll = Poll(self._api, 0.05, changed=self.heard.changed, failed=self.heard.failed)

    async def run(self) -> None:
        try:
            await self.poll.run()
        finally:
            await self._api.close()

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.poll.objects}


@in_loop
async def test_pods_come_and_go_with_the_polls_and_the_same_list_is_no_change(kubelet: ApiServer) -> None:
    found = Polled(kubelet)
    async with running(found.run()):
        await until(lambda: len(kubelet.requests) > 5)
        assert (found.names, found.heard.changes) == ({"a"}, 1)
        kubelet.put(PODS, pod("b"))
        await until(lambda: found.names == {"a", "b"})
        kubelet.delete(PODS, "a")
        await until(lambda: found.names == {"b"})
    assert not found.heard.troubles


@pytest.mark.parametrize(("denial", "kind"), [("token", "unauthorized"), ("role", "forbidden")])
@in_loop
async def test_a_denied_list_is_told_and_what_was_known_stays(kubelet: ApiServer, denial: str, kind: str) -> None:
    found = Polled(kubelet)
    async with running(found.run()):
        await until(lambda: found.names == {"a"})
        if denial == "token":
            kubelet.tokens = {"secret"}
        else:
            kubelet.forbidden.add(PODS)
        await until(lambda: found.heard.troubles[kind])
        assert found.names == {"a"}
        assert not found.poll.status.up
        assert found.poll.status.hint.startswith("the kubelet: /pods")


@in_loop
async def test_the_token_is_sent(kubelet: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    kubelet.tokens = {"secret"}
    found = Polled(kubelet, str(tmp_path / "token"))
    async with running(found.run()):
        await until(lambda: found.names == {"a"})


@in_loop
async def test_an_answer_that_is_none_is_trouble_and_passes(kubelet: ApiServer) -> None:
    kubelet.faults.append(body(b"not found, but with 200"))
    found = Polled(kubelet)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["answer"] == 1)
        await until(lambda: found.names == {"a"} and found.poll.status.up)
