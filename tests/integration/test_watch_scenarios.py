"""The scenarios of the API server (tests/fakes/apiserver/scenarios), against a real HTTP server that plays them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attribution_rig import in_loop, running, until
from tests.fakes.apiserver.objects import PODS, pod
from tests.fakes.apiserver.scenarios import End, Scenario, Seen, scenarios
from tests.fakes.apiserver.server import ApiServer
from tests.watch_rig import Watched, hurry, noted

ALL = scenarios()


def holds(seen: Seen, found: Watched, server: ApiServer) -> bool:
    objects = {name: item for (_, name), item in found.watch.objects.items()}
    return all(
        (
            seen.pods is None or set(objects) == set(seen.pods),
            all(name in objects and objects[name].status.phase == phase for name, phase in seen.phases.items()),
            all(name in objects and objects[name].metadata.uid == uid for name, uid in seen.uids.items()),
            seen.up in (None, found.watch.status.up),
            seen.hint in found.watch.status.hint,
            all(found.heard.troubles[kind] >= count for kind, count in seen.troubles.items()),
            len(server.asked(PODS, watch=True)) >= seen.watches,
        )
    )


def check(end: End, scenario: Scenario, found: Watched, server: ApiServer) -> None:
    if end.pods is not None:
        assert found.names == set(end.pods)
    if end.troubles or not any(step.see is not None and step.see.troubles for step in scenario.steps):
        assert dict(found.heard.troubles) == dict(end.troubles)
    for versions, watch in ((end.lists, False), (end.watches, True)):
        if versions is not None:
            asked = [request.query.get("resourceVersion", "") for request in server.asked(PODS, watch=watch)]
            assert asked == versions
    if end.tokens is not None:
        assert list(dict.fromkeys(request.token for request in server.requests)) == end.tokens


@pytest.mark.parametrize("scenario", ALL, ids=[scenario.name for scenario in ALL])
@in_loop
async def test_scenario(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    noted(monkeypatch)
    token_file = tmp_path / "token"
    with ApiServer() as server:
        server.put(PODS, pod("a"), pod("b"), pod("elsewhere", node="node2"))
        scenario.before.happen(server, token_file)
        found = Watched(server.url, str(token_file))
        async with running(found.run()):
            for number, step in enumerate(scenario.steps):
                step.happen(server, token_file)
                if step.see is not None:
                    seen = step.see
                    await until(lambda: holds(seen, found, server), f"step {number + 1}: {seen}")  # noqa: B023 - awaited
        check(scenario.end, scenario, found, server)
