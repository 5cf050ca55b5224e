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
from tests.fakes.apiserver.server import ApiServer, Fault, line, refuse, stream
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
async def test_the_nodes_pods_are_kept_as_they_come_change_and_go() -> None:
    with ApiServer() as server:
        server.put(PODS, pod("a", phase="Pending"), pod("elsewhere", node="node2"))
        found = Watched(server.url)
        async with running(found.run()):
            await until(lambda: found.names == {"a"})
            server.put(PODS, pod("a", phase="Running"), pod("b"), pod("c", node="node2"))
            await until(lambda: found.names == {"a", "b"})
            assert found.watch.objects["ns", "a"].status.phase == "Running"
            server.delete(PODS, "a")
            await until(lambda: found.names == {"b"})
            server.put(PODS, pod("b", uid="another"))
            await until(lambda: found.watch.objects["ns", "b"].metadata.uid == "another")
            assert found.watch.status.up
        assert not found.heard.troubles


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


def too_old(reason: str) -> bytes:
    return line("ERROR", fake.expired("too old resource version: 319 (335)", reason))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(stream(too_old("Expired")), id="Expired in the stream"),
        pytest.param(stream(too_old("Gone")), id="Gone in the stream"),
        pytest.param(stream(line("ERROR", fake.expired("", "Expired", 0))), id="only the reason"),
        pytest.param(refuse(410, fits=fake.is_watch), id="HTTP 410"),
    ],
)
@in_loop
async def test_an_expired_version_leads_to_a_new_list_of_the_quorum(server: ApiServer, fault: Fault) -> None:
    server.faults.append(fault)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: len(server.asked(PODS, watch=True)) == 2)
    first, second = server.asked(PODS, watch=False)
    assert first.query["resourceVersion"] == "0"
    assert "resourceVersion" not in second.query
    assert found.heard.troubles == {"expired": 1}


@in_loop
async def test_what_was_deleted_meanwhile_is_gone_after_the_new_list(server: ApiServer) -> None:
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})
        server.faults.append(stream(hang=True))
        server.cut()
        await until(lambda: len(server.asked(PODS, watch=True)) == 2)
        server.delete(PODS, "a")
        server.forget()
    again = Watched(server.url)
    again.watch.objects = found.watch.objects
    async with running(again.run()):
        await until(lambda: again.names == {"b"})


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
async def test_a_cut_connection_loses_no_event_and_half_a_line_is_none(server: ApiServer) -> None:
    whole = {**pod("c")}
    whole["metadata"]["resourceVersion"] = "103"
    half = line("ADDED", pod("d"))[:-20]
    text = line("ADDED", whole)
    server.faults.append(stream(text[:10], text[10:11], text[11:] + half, cut=True))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: "c" in found.names)
        await until(lambda: len(server.asked(PODS, watch=True)) == 2)
    assert server.asked(PODS, watch=True)[1].query["resourceVersion"] == "103"
    assert "d" not in found.names


@in_loop
async def test_a_silent_connection_that_a_balancer_cuts_is_no_trouble(server: ApiServer) -> None:
    server.faults.extend(stream(after=0.1, cut=True) for _ in range(2))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: len(server.asked(PODS, watch=True)) == 3)
        assert found.watch.status.up
    assert not found.heard.troubles


@in_loop
async def test_an_event_of_an_unknown_kind_is_passed_over(server: ApiServer) -> None:
    server.faults.append(stream(line("SURPRISE", pod("x")), hang=True))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})
        await asyncio.sleep(0.05)
        assert found.names == {"a", "b"}


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
