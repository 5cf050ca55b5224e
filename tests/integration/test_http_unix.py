"""Unix sockets in ``listen``."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.config import Http
from exporter.http.listen import listen
from tests.secured import Site
from tests.serving import Answer, Client, get, request, run, running, served


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "web.sock"


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


async def ask(place: Path, target: str = "/healthz") -> Answer:
    opened = Client(*await asyncio.open_unix_connection(str(place)))
    try:
        await opened.send(request(target, "Connection: close"))
        return await opened.answer()
    finally:
        await opened.close()


def test_a_socket_serves_beside_a_port_and_is_gone_afterwards(place: Path) -> None:
    async def test() -> None:
        async with running(listen_on=(f"unix:{place}", "127.0.0.1:0")) as server:
            assert server.addresses[0] == f"unix:{place}"
            assert (await ask(place)).body == b"ok\n"
            assert b"accel_" in (await ask(place, "/metrics")).body
            assert (await get(server.addresses[1], "/healthz")).status == 200
        assert not place.exists()

    run(test)


@pytest.mark.parametrize("mode", ["0600", "0660", "666"])
def test_the_permissions_are_those_of_the_key_whatever_the_umask(place: Path, mode: str, umask: int) -> None:
    async def test() -> None:
        async with running(listen_on=(f"unix:{place}",), http=Http(socket_mode=mode)):
            assert stat.S_IMODE(place.stat().st_mode) == int(mode, 8)

    run(test)


def test_there_is_no_moment_with_more_permissions(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    seen: list[int] = []
    bind = socket.socket.bind

    class Watched(socket.socket):
        def bind(self, address: object) -> None:
            bind(self, address)  # type: ignore[arg-type]
            seen.append(stat.S_IMODE(place.stat().st_mode))

    try:
        monkeypatch.setattr(socket, "socket", Watched)
        for each in listen([f"unix:{place}"], 0o640):
            each.close()
    finally:
        os.umask(before)
    assert seen == [0o640]


def test_what_a_dead_program_left_is_replaced(place: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(place))
    dead.close()
    assert place.exists()

    async def test() -> None:
        async with running(listen_on=(f"unix:{place}",)):
            assert (await ask(place)).status == 200

    run(test)


def test_a_program_that_lives_keeps_its_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place))
        other.listen(0)
        # Its queue is full: it is busy, and not dead.
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(place))
            with pytest.raises(OSError) as caught:
                listen([f"unix:{place}"])
        assert caught.value.errno == errno.EADDRINUSE
        assert f"cannot listen on unix:{place}: " in str(caught.value.strerror)
        assert "another program listens there" in str(caught.value.strerror)
        assert place.exists()


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda place: place.write_text("precious"), "a file that is no socket stands there"),
        (lambda place: place.mkdir(), "a file that is no socket stands there"),
        (lambda place: place.symlink_to("/dev/null"), "a file that is no socket stands there"),
    ],
)
def test_another_file_is_left_alone(place: Path, make: object, advice: str) -> None:
    assert callable(make)
    make(place)
    with pytest.raises(OSError) as caught:
        listen([f"unix:{place}"])
    assert advice in str(caught.value.strerror)
    assert place.is_symlink() or place.exists()


def test_a_missing_directory_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        listen([f"unix:{tmp_path}/none/web.sock"])
    assert "its directory is missing" in str(caught.value.strerror)


def test_where_one_address_fails_no_socket_stays(place: Path) -> None:
    with pytest.raises(OSError):
        listen([f"unix:{place}", "192.0.2.1:0"])
    assert not place.exists()


def test_a_socket_that_another_program_has_put_there_stays(place: Path) -> None:
    async def test() -> None:
        async with running(listen_on=(f"unix:{place}",)):
            place.unlink()
            new = socket.socket(socket.AF_UNIX)
            new.bind(str(place))
        new.close()
        assert place.exists()

    run(test)


def test_tls_and_limits_hold_on_a_socket_too(tmp_path: Path, place: Path) -> None:
    async def test() -> None:
        site = Site(tmp_path)
        site.configure()
        async with running(listen_on=(f"unix:{place}",), keeper=site.keeper()):
            assert (await ask(place)).status == 400
            streams = await asyncio.open_unix_connection(
                str(place), ssl=site.authority.client(), server_hostname="localhost"
            )
            opened = Client(*streams)
            await opened.send(request("/healthz"))
            assert (await opened.answer()).status == 200
            await opened.close()

    run(test)


def test_nobody_releases_the_devices_over_a_socket(place: Path) -> None:
    """A proxy that stands before it would lend its place on the node to everyone."""

    async def release(_: float) -> None:
        raise AssertionError("released")

    async def test() -> None:
        async with running(served(release=release), listen_on=(f"unix:{place}",)):
            opened = Client(*await asyncio.open_unix_connection(str(place)))
            await opened.send(request("/-/release", "Host: localhost", method="POST"))
            assert (await opened.answer()).status == 403
            await opened.close()

    run(test)
