"""List and watch against a real HTTP server that plays the API server."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from exporter.attribution import watch as watches
from exporter.attribution.api import Api
from exporter.attribution.pods import PodObject, pods
from exporter.attribution.watch import APPLIED, Object, Watch
from tests.attribution_rig import Heard, in_loop, running, until
from tests.fakes.apiserver import server as fake
from tests.fakes.apiserver.objects import NAMESPACES, PODS, namespace, pod
from tests.fakes.apiserver.server import ApiServer, refuse
from tests.watch_rig import NODE, Watched, hurry, noted


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        found.put(PODS, pod("a"), pod("b"), pod("elsewhere", node="node2"))
        yield found


@in_loop
async def test_the_list_comes_from_the_cache_and_the_watch_from_the_lists_version() -> None:
    with ApiServer() as server:
        server.put(PODS, pod("a"))
        server.put(PODS, pod("b", node="node2"))
        found = Watched(server.url)
        async with running(found.run()):
            await until(lambda: server.asked(PODS, watch=True))
        (listed,), (watched,) = server.asked(PODS, watch=False), server.asked(PODS, watch=True)
        assert listed.query == {**NODE, "resourceVersion": "0"}
        # Of the list (102), never of an item (101).
        assert watched.query["resourceVersion"] == "102"
        assert watched.query["allowWatchBookmarks"] == "true"
        assert 300 <= int(watched.query["timeoutSeconds"]) <= 600


@in_loop
async def test_a_watch_is_up_when_the_server_agrees_and_not_only_at_the_first_event() -> None:
    with ApiServer() as server:
        server.put(PODS, pod("a"))
        found = Watched(server.url)
        server.faults.append(refuse(503, fits=fake.is_watch))
        async with running(found.run()):
            await until(lambda: found.heard.troubles["server"])
            await until(lambda: found.watch.status.up)
            assert server.asked(PODS, watch=False)[1:] == []


@in_loop
async def test_the_end_of_a_watch_is_no_trouble_and_it_goes_on_from_the_last_version(server: ApiServer) -> None:
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})
        server.put(PODS, pod("c"))
        await until(lambda: "c" in found.names)
        await asyncio.sleep(watches.SHORT)
        server.cut()
        await until(lambda: len(server.asked(PODS, watch=True)) == 2)
        assert server.asked(PODS, watch=True)[1].query["resourceVersion"] == "104"
        server.delete(PODS, "a")
        await until(lambda: found.names == {"b", "c"})
    assert len(server.asked(PODS, watch=False)) == 1
    assert not found.heard.troubles


@in_loop
async def test_bookmarks_move_the_version_and_change_nothing(server: ApiServer) -> None:
    server.bookmarks = True
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})
        changes = found.heard.changes
        server.put(NAMESPACES, namespace("other", {}))
        await asyncio.sleep(0.4)
        server.cut()
        await until(lambda: len(server.asked(PODS, watch=True)) == 2)
        assert server.asked(PODS, watch=True)[1].query["resourceVersion"] == "104"
        assert found.names == {"a", "b"}
        assert found.heard.changes == changes


@in_loop
async def test_a_server_that_always_says_expired_is_not_asked_without_pause(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = noted(monkeypatch)
    server.faults.extend(refuse(410, fits=fake.is_watch) for _ in range(5))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["expired"] == 5)
        await until(lambda: len(server.asked(PODS, watch=True)) == 6)
    assert len(pauses) == 5


@in_loop
async def test_only_the_metadata_is_asked_for_where_it_suffices() -> None:
    with ApiServer() as server:
        server.put(NAMESPACES, namespace("ns", {"team": "red"}))
        heard = Heard()
        api = Api(server.url, "", "")
        watch = Watch(api, NAMESPACES, {}, Object, changed=heard.changed, failed=heard.failed, metadata_only=True)
        async with running(watch.run()):
            await until(lambda: watch.objects)
            server.put(NAMESPACES, namespace("ns", {"team": "blue"}), namespace("other", {}))
            await until(lambda: ("", "other") in watch.objects)
            assert (watch.objects["", "ns"].metadata.labels or {})["team"] == "blue"
        await api.close()
        assert all("as=PartialObjectMetadata" in request.accept for request in server.requests)


@in_loop
async def test_several_watches_share_one_session_from_the_start() -> None:
    with ApiServer() as server:
        server.put(PODS, pod("a"))
        server.put(NAMESPACES, namespace("ns", {}))
        heard = Heard()
        api = Api(server.url, "", "")
        first = Watch(api, PODS, NODE, PodObject, changed=heard.changed, failed=heard.failed)
        second = Watch(api, NAMESPACES, {}, Object, changed=heard.changed, failed=heard.failed)
        async with running(first.run()), running(second.run()):
            await until(lambda: first.objects and second.objects)
        # A second session that nobody closes would be a warning, and so an error.
        await api.close()


@in_loop
async def test_the_object_that_an_annotation_repeats_is_not_kept() -> None:
    with ApiServer() as server:
        server.put(PODS, pod("a", annotations={APPLIED: "x" * 1000, "keep": "y"}))
        found = Watched(server.url)
        async with running(found.run()):
            await until(lambda: found.names)
            server.put(PODS, pod("b", annotations={APPLIED: "x" * 1000, "keep": "y"}))
            await until(lambda: "b" in found.names)
        assert [item.metadata.annotations for item in found.watch.objects.values()] == [{"keep": "y"}] * 2
        assert pods(found.watch.objects, frozenset({"keep"}))["ns", "a"].annotations == {"keep": "y"}


@in_loop
async def test_events_do_not_add_up_in_memory(server: ApiServer) -> None:
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})

        def churn(times: int) -> Callable[[], bool]:
            for turn in range(times):
                server.put(PODS, pod(f"churn{turn % 50}", labels={"turn": str(turn)}))
                server.delete(PODS, f"churn{turn % 50}")
            server.put(PODS, pod("end", labels={"times": str(times)}))
            return lambda: (
                ("ns", "end") in found.watch.objects
                and (found.watch.objects["ns", "end"].metadata.labels or {}).get("times") == str(times)
            )

        await until(churn(200))
        tracemalloc.start()
        try:
            before = tracemalloc.take_snapshot()
            await until(churn(1000))
            ours = tracemalloc.Filter(True, "*/exporter/attribution/*")
            after = tracemalloc.take_snapshot().filter_traces([ours])
            grown = after.compare_to(before.filter_traces([ours]), "filename")
        finally:
            tracemalloc.stop()
    assert found.names == {"a", "b", "end"}
    assert sum(each.size_diff for each in grown) < 64 * 1024
