from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import pytest

from exporter.http.listen import listen, name
from tests.serving import get, run, running


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this host has IPv6 switched off: tests with it are left out")


def test_every_address_is_served_on_a_real_port() -> None:
    async def test() -> None:
        async with running(listen_on=("127.0.0.1:0", "127.0.0.2:0", "localhost:0")) as server:
            assert len(server.addresses) >= 3
            assert server.addresses[1].startswith("127.0.0.2:")
            for address in server.addresses:
                assert not address.endswith(":0")
                assert (await get(address, "/healthz")).status == 200

    run(test)


@needs_ipv6
def test_the_ipv6_wildcard_takes_both_kinds_of_clients() -> None:
    async def test() -> None:
        async with running(listen_on=("[::]:0",)) as server:
            (address,) = server.addresses
            port = address.removeprefix("[::]:")
            for host in ("[::1]", "127.0.0.1"):
                assert (await get(f"{host}:{port}", "/healthz")).status == 200

    run(test)


@needs_ipv6
def test_both_wildcards_can_stand_side_by_side() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for order in ((f"[::]:{port}", f"0.0.0.0:{port}"), (f"0.0.0.0:{port}", f"[::]:{port}")):
        with ExitStack() as stack:
            opened = [stack.enter_context(each) for each in listen(order)]
            assert [name(each) for each in opened] == list(order)


def test_a_taken_port_is_named_with_what_to_do_and_nothing_stays_open() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = name(other)
        free = socket.socket()
        free.bind(("127.0.0.1", 0))
        first = name(free)
        free.close()
        with pytest.raises(OSError) as caught:
            listen([first, taken])
        assert caught.value.errno == errno.EADDRINUSE
        assert caught.value.strerror is not None
        assert f"cannot listen on {taken}: " in caught.value.strerror
        assert "choose another port in `listen`" in caught.value.strerror
        # The first address was given back.
        for each in listen([first]):
            each.close()


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("192.0.2.1:0", "this host has no such address"),
        ("no-such-host.invalid:0", "the name has no address"),
    ],
)
def test_an_address_that_this_host_has_not_is_named_with_what_to_do(address: str, advice: str) -> None:
    with pytest.raises(OSError) as caught:
        listen([address])
    assert f"cannot listen on {address}: " in str(caught.value.strerror)
    assert advice in str(caught.value.strerror)
