from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from exporter.http.release import is_loopback, refusal, seconds

LOCAL = ("127.0.0.1", 50000)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        (("127.0.0.1", 5), "127.0.0.1:9859"),
        (("127.9.8.7", 5), "localhost"),
        (("::1", 5, 0, 0), "[::1]:9859"),
        (("::ffff:127.0.0.1", 5, 0, 0), "LOCALHOST:9859"),
    ],
)
def test_a_program_on_the_node_may_release(peer: tuple[Any, ...], host: str) -> None:
    assert refusal(peer, CIMultiDict(), [host]) is None


@pytest.mark.parametrize("peer", [("10.0.0.1", 5), ("::ffff:10.0.0.1", 5, 0, 0), ("fe80::1", 5, 0, 2), "", None, ()])
def test_another_host_may_not_whatever_its_headers_say(peer: object) -> None:
    headers = CIMultiDict({"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"})
    assert "only programs on this node" in (refusal(peer, headers, ["127.0.0.1"]) or "")
    assert "only programs on this node" in (refusal(peer, CIMultiDict(), ["127.0.0.1"]) or "")


@pytest.mark.parametrize("name", ["X-Forwarded-For", "forwarded", "VIA", "x-real-ip"])
def test_a_proxy_on_the_node_does_not_lend_its_address(name: str) -> None:
    assert "proxy" in (refusal(LOCAL, CIMultiDict({name: "127.0.0.1"}), ["127.0.0.1"]) or "")


@pytest.mark.parametrize(
    "headers", [{"Origin": "null"}, {"origin": "http://127.0.0.1:9859"}, {"Sec-Fetch-Site": "none"}]
)
def test_a_web_page_may_not(headers: dict[str, str]) -> None:
    assert "web pages" in (refusal(LOCAL, CIMultiDict(headers), ["127.0.0.1"]) or "")


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["127.0.0.1", "127.0.0.1"],
        ["evil.example"],
        ["evil.example:9859"],
        ["127.0.0.1.evil.example"],
        ["localhost.evil.example"],
        ["localhost@evil.example"],
        ["localhost:1:2"],
        ["10.0.0.1"],
        ["[::2]"],
        ["0.0.0.0"],
    ],
)
def test_a_name_that_was_rebound_to_the_loopback_does_not_help(hosts: list[str]) -> None:
    assert "Host header" in (refusal(LOCAL, CIMultiDict(), hosts) or "")


def test_no_text_is_taken_for_a_loopback_address() -> None:
    assert not any(map(is_loopback, ["", "localhost", "127.1", "0x7f000001", "2130706433", "127.0.0.1 "]))


@pytest.mark.parametrize(("values", "expected"), [([], 600.0), (["1"], 1.0), (["3600"], 3600.0), (["0090"], 90.0)])
def test_the_time_is_the_one_asked_for_or_the_configured(values: list[str], expected: float) -> None:
    assert seconds(values, 600.0) == expected


@pytest.mark.parametrize(
    "values", [["0"], ["3601"], ["-1"], ["1.5"], ["1e3"], ["nan"], ["inf"], [""], ["٣"], ["5", "5"]]
)
def test_another_time_is_refused_with_what_is_expected(values: list[str]) -> None:
    with pytest.raises(ValueError, match="whole number from 1 to 3600"):
        seconds(values, 600.0)
