"""List and watch against a real HTTP server that plays the API server."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from exporter.attribution import api as limits
from exporter.attribution import watch as watches
from exporter.attribution.api import Api, Backoff
from exporter.attribution.pods import PodObject, pods
from exporter.attribution.watch import APPLIED, Object, Watch
from tests.attribution_rig import Heard, in_loop, running, until
from tests.fakes.apiserver import server as fake
from tests.fakes.apiserver.objects import NAMESPACES, PODS, namespace, pod
from tests.fakes.apiserver.server import ApiServer, Fault, body, is_list, line, refuse, stream

NODE = {"fieldSelector": "spec.nodeName=node1"}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that a test can wait for."""
    monkeypatch.setattr(limits, "BACKOFF_FIRST", 0.02)
    monkeypatch.setattr(limits, "BACKOFF_MOST", 0.1)
    monkeypatch.setattr(watches, "SHORT", 0.02)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        found.put(PODS, pod("a"), pod("b"), pod("elsewhere", node="node2"))
        yield found


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
            await until(lambda: found.heard.troubles["server"] == 1)
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


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(refuse(504, retry_after="0", fits=is_list), "server", id="504 too large a version"),
        pytest.param(refuse(500, fits=is_list), "server", id="500"),
        pytest.param(refuse(429, retry_after="0", fits=is_list), "too_many_requests", id="429"),
        pytest.param(refuse(403, fits=is_list), "forbidden", id="403"),
        pytest.param(refuse(418, fits=is_list), "answer", id="a code that nobody expects"),
        pytest.param(refuse(302, fits=is_list), "answer", id="elsewhere"),
        pytest.param(body(b'{"items": [{"metadata"'), "answer", id="half a list"),
        pytest.param(body(b'{"items": [{"metadata": {"name": 5}}]}'), "answer", id="another type"),
        pytest.param(body(b'{"x": ' + b"[" * 100_000), "answer", id="without bottom"),
        pytest.param(body(b"<html></html>"), "answer", id="a page"),
        pytest.param(refuse(410, fits=is_list), "expired", id="410 on a list"),
        pytest.param(stream(line("ERROR", fake.expired("compacted", "InternalError", 500))), "server", id="an error"),
        pytest.param(stream(b'{"type": "ADDED", "object": {"metadata": \n'), "answer", id="a broken line"),
        pytest.param(stream(b"[]\n"), "answer", id="a line that is no event"),
        pytest.param(refuse(400, fits=fake.is_watch), "answer", id="an invalid version"),
    ],
)
@in_loop
async def test_trouble_is_counted_and_passes(
    server: ApiServer, fault: Fault, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(monkeypatch)
    server.faults.append(fault)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.heard.troubles[kind] == 1)
        await until(lambda: found.names == {"a", "b"} and found.watch.status.up)
        server.put(PODS, pod("c"))
        await until(lambda: "c" in found.names)
    assert sum(found.heard.troubles.values()) == 1


@in_loop
async def test_after_an_unknown_error_in_the_stream_the_list_is_read_anew(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(monkeypatch)
    server.faults.append(stream(line("ERROR", fake.expired("etcdserver: compacted", "InternalError", 500))))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: len(server.asked(PODS, watch=False)) == 2)


@in_loop
async def test_known_pods_stay_while_the_server_is_away(server: ApiServer) -> None:
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})
        server.forbidden.add(PODS)
        server.faults.extend(refuse(503) for _ in range(3))
        server.cut()
        await until(lambda: found.heard.troubles["server"] == 3)
        await until(lambda: found.heard.troubles["forbidden"] == 1)
        assert found.names == {"a", "b"}
        assert not found.watch.status.up
        assert "ClusterRole" in found.watch.status.hint
        assert found.watch.status.last_success > 0


@in_loop
async def test_a_rotated_token_is_read_again(server: ApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    server.tokens = {"old"}
    found = Watched(server.url, str(token))
    async with running(found.run()):
        await until(lambda: found.watch.status.up)
        server.tokens = {"new"}
        server.cut()
        await until(lambda: found.heard.troubles["unauthorized"])
        assert "token" in found.watch.status.hint
        token.write_text("new\n")
        await until(lambda: found.watch.status.up)
        server.put(PODS, pod("c"))
        await until(lambda: "c" in found.names)
    assert server.requests[0].token == "old"
    assert server.requests[-1].token == "new"


@in_loop
async def test_a_token_file_with_something_else_is_trouble_and_not_sent(server: ApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("two\nlines")
    found = Watched(server.url, str(token))
    async with running(found.run()):
        await until(lambda: found.heard.troubles["unauthorized"])
        assert str(token) in found.watch.status.hint
    assert server.requests == []


@pytest.mark.parametrize(("asked", "at_least"), [("0.3", 0.0), ("1", 1.0)])
@in_loop
async def test_the_server_says_how_long_to_wait(server: ApiServer, asked: str, at_least: float) -> None:
    server.faults.append(refuse(429, retry_after=asked, fits=is_list))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.watch.status.up)
    first, second = server.asked(PODS, watch=False)
    assert at_least <= second.at - first.at < at_least + 2


@in_loop
async def test_a_role_without_the_right_is_asked_again_after_a_minute_only(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = noted(monkeypatch, 30.0)
    server.forbidden.add(PODS)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: asked == [60.0])


@in_loop
async def test_a_watch_without_a_word_is_given_up_and_made_anew(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "WATCH_SECONDS", (0, 0))
    monkeypatch.setattr(watches, "GRACE", 0.2)
    server.faults.append(stream(hang=True))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["timeout"] == 1)
        await until(lambda: len(server.asked(PODS, watch=True)) > 1)


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
async def test_a_server_that_ends_every_watch_at_once_is_asked_with_pauses(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = noted(monkeypatch)
    monkeypatch.setattr(watches, "SHORT", 1.0)
    server.faults.extend(stream() for _ in range(4))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: len(server.asked(PODS, watch=True)) == 5)
    assert len(pauses) == 4
    assert found.heard.troubles == {"server": 4}


@in_loop
async def test_huge_objects_are_read_to_a_limit(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    noted(monkeypatch)
    big = pod("big", annotations={"a": "x" * 1_500_000})
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.watch.status.up)
        server.put(PODS, big)
        await until(lambda: "big" in found.names)
        server.faults.append(stream(b"x" * (limits.MAX_LINE + 1)))
        server.cut()
        await until(lambda: found.heard.troubles["too_large"] == 1)
        await until(lambda: found.watch.status.up)


@in_loop
async def test_a_list_without_end_is_refused(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    noted(monkeypatch)
    monkeypatch.setattr(limits, "MAX_ANSWER", 100)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["too_large"] > 1)
        assert not found.names


@in_loop
async def test_more_objects_than_a_node_has_are_not_kept(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MAX_OBJECTS", 3)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})
        server.put(PODS, *(pod(f"c{i}") for i in range(5)))
        server.put(PODS, pod("a", phase="Failed"))
        await until(lambda: found.watch.objects["ns", "a"].status.phase == "Failed")
        assert found.names == {"a", "b", "c0"}


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


def authority() -> tuple[ssl.SSLContext, bytes]:
    """A server's context, and the certificate of its authority."""
    made = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.issue_cert("localhost").configure_cert(context)
    return context, made.cert_pem.bytes()


@in_loop
async def test_the_clusters_authority_may_be_renewed_while_the_agent_runs(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    (old, old_authority), (new, new_authority) = authority(), authority()
    file.write_bytes(old_authority)
    with ApiServer(tls=old) as server:
        server.put(PODS, pod("a"))
        port = server.port
        found = Watched(server.url, ca_file=str(file))
        task = asyncio.create_task(found.run())
        await until(lambda: found.names == {"a"})
    with ApiServer(tls=new, port=port) as server:
        server.put(PODS, pod("b"))
        await until(lambda: found.heard.troubles["certificate"])
        assert "authority" in found.watch.status.hint
        assert server.requests == []
        file.write_bytes(new_authority)
        await until(lambda: found.watch.status.up)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("content", ["", "no certificate"])
@in_loop
async def test_a_file_without_certificates_is_trouble_with_a_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ca.crt"
    file.write_text(content)
    found = Watched("https://localhost:1", ca_file=str(file))
    async with running(found.run()):
        await until(lambda: found.heard.troubles["certificate"] or found.heard.troubles["connection"])


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
