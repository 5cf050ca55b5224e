"""What a watch makes of an API server in trouble, of tokens and certificates, and of what is too much."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import trustme

from exporter.attribution import api as limits
from exporter.attribution import watch as watches
from exporter.attribution.api import Api
from tests.attribution_rig import in_loop, running, until
from tests.fakes.apiserver.objects import PODS, pod
from tests.fakes.apiserver.server import ApiServer, Fault, compressed, expired, is_list, line, mute, refuse, stream
from tests.watch_rig import Watched, hurry, noted


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        found.put(PODS, pod("a"), pod("b"), pod("elsewhere", node="node2"))
        yield found


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
async def test_a_role_without_the_right_is_soon_asked_again_after_a_minute_only(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = noted(monkeypatch)
    monkeypatch.setattr(watches, "STARTING", 0.05)
    server.forbidden.add(PODS)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: 60.0 in asked)
    assert asked[0] is None


@in_loop
async def test_a_server_that_has_not_read_its_roles_yet_is_asked_again_at_once(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a real one does for some seconds after its start: `make test-kubelet` meets it."""
    asked = noted(monkeypatch)
    server.faults.append(refuse(403))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.watch.status.up)
    assert asked == [None]
    assert found.heard.troubles == {"forbidden": 1}


@in_loop
async def test_a_watch_without_a_word_is_given_up_and_made_anew(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "WATCH_SECONDS", (0, 0))
    monkeypatch.setattr(watches, "GRACE", 0.2)
    server.faults.append(stream(hang=True))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["timeout"])
        await until(lambda: len(server.asked(PODS, watch=True)) > 1)


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
async def test_a_list_that_is_always_expired_is_trouble_and_what_was_known_grows_old(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(monkeypatch)
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.names == {"a", "b"})
        monkeypatch.setattr(watches, "OUTDATED", 0.0)
        server.faults.extend(refuse(410) for _ in range(1000))
        server.cut()
        await until(lambda: not found.watch.status.up)
        assert "410" in found.watch.status.hint
        await until(lambda: not found.names)
        server.faults.clear()
        await until(lambda: found.watch.status.up and found.names == {"a", "b"})


@in_loop
async def test_a_server_that_takes_a_watch_and_does_not_agree_is_asked_again(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch may be silent for minutes; that it begins, a server says at once."""
    noted(monkeypatch)
    monkeypatch.setattr(limits, "OPENING", 0.2)
    server.faults.append(mute())
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["timeout"] == 1)
        await until(lambda: found.watch.status.up and len(server.asked(PODS, watch=True)) == 2)


@in_loop
async def test_what_a_server_says_of_its_trouble_is_printable_and_bounded(server: ApiServer) -> None:
    evil = "\x1b]0;owned\x07\n\u202e" + "x" * 1_000_000
    server.faults.append(stream(line("ERROR", expired(evil, reason=evil, code=500))))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.heard.troubles["server"])
        hint = found.watch.status.hint
    assert "owned" in hint
    assert hint.isprintable()
    assert len(hint) <= 500


@in_loop
async def test_a_bomb_of_lines_leaves_others_their_turn(server: ApiServer) -> None:
    """300 KiB that become a hundred thousand events are there at once: no wait for the network divides them."""
    news = gzip.compress(line("BOOKMARK", {"metadata": {"resourceVersion": "100"}}) * 100_000)
    server.faults.append(compressed(news))
    api = Api(server.url, "", "")
    turns = 0
    came: Counter[int] = Counter()

    async def listen() -> None:
        async with aclosing(api.lines(PODS, {"watch": "1"}, idle=10, opened=lambda: None)) as lines:
            async for _ in lines:
                came[turns] += 1

    async with running(listen()) as listening:
        while not listening.done():
            await asyncio.sleep(0)
            turns += 1
    await api.close()
    assert came.total() == 100_000
    assert max(came.values()) < 20_000


@in_loop
async def test_cookies_are_not_kept(server: ApiServer) -> None:
    server.faults.append(Fault(lambda handler: handler.send(500, b"{}", {"Set-Cookie": "a=b"})))
    found = Watched(server.url)
    async with running(found.run()):
        await until(lambda: found.watch.status.up)
        assert found.api._session is not None
        assert not list(found.api._session.cookie_jar)
