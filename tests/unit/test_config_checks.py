"""Which texts the configuration takes for an address, a URL, a path."""

from __future__ import annotations

import pytest

from exporter.config.checks import (
    HOST_PATH,
    LABEL_KEY,
    LISTEN,
    NODE_NAME,
    PATH,
    REGEX,
    ROOTED_PATH,
    SEARCH_PATH,
    SERIES,
    SOCKET_MODE,
    URL,
)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0:9859",
        "127.0.0.1:0",
        "[::]:9859",
        "[fe80::1%eth0]:80",
        "localhost:65535",
        "node-1.example.com:80",
        "a1:1",
        "unix:/run/accel-exporter/web.sock",
        "unix:/" + "a" * 106,
    ],
)
def test_addresses(text: str) -> None:
    assert LISTEN.accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9859",
        ":9859",
        "host",
        "host:",
        "host:x",
        "host:-1",
        "host:65536",
        "::1:80",
        "[::1]",
        "[1.2.3.4]:80",
        "[x]:80",
        "1.2.3:80",
        "256.1.1.1:80",
        "-a:80",
        "a-:80",
        "a..b:80",
        "a b:80",
        "http://a:80",
        "a:80/",
        "a:٣",
        "a" * 64 + ":80",
        "unix:",
        "unix:web.sock",
        "unix:/run/",
        "unix:/run/../web.sock",
        "unix:@abstract",
        "unix:/" + "a" * 107,
        "unix:/" + "é" * 54,
    ],
)
def test_no_addresses(text: str) -> None:
    assert not LISTEN.accepts(text)


@pytest.mark.parametrize(
    "text", ["", "http://h", "https://h:9400/metrics", "http://[::1]:9400/metrics?a=b", "http://u:p@h/"]
)
def test_urls(text: str) -> None:
    assert URL.accepts(text)


@pytest.mark.parametrize(
    "text",
    ["h:9400", "//h/", "ftp://h", "http://", "http://:80", "http://h:x", "http://h:0", "http://h /", "http://[::1"],
)
def test_no_urls(text: str) -> None:
    assert not URL.accepts(text)


@pytest.mark.parametrize("text", ["/", "/a", "/a b/c", "/a/..b", "/a/.../b"])
def test_paths(text: str) -> None:
    assert PATH.accepts(text)
    assert ROOTED_PATH.accepts("{root}" + text)


@pytest.mark.parametrize(
    "text", ["", "a", "./a", "../a", "/a/../b", "/..", "{root}", "{root}a", "/a/{root}", "{dev}/a", "{}/a", "/{", "/\0"]
)
def test_no_rooted_paths(text: str) -> None:
    assert not ROOTED_PATH.accepts(text)


@pytest.mark.parametrize("name", ["root", "proc", "sys", "dev", "run", "var_lib", "etc", "opt"])
def test_host_paths_may_begin_with_any_directory_of_the_host(name: str) -> None:
    assert HOST_PATH.accepts(f"{{{name}}}/x")


def test_search_paths_are_directories_with_colons_between_them() -> None:
    assert SEARCH_PATH.accepts("/a:{opt}/b")
    assert not SEARCH_PATH.accepts("/a:")
    assert not SEARCH_PATH.accepts("/a:b")


@pytest.mark.parametrize("text", ["", "n1", "ip-10-0-0-1.eu-west-1.compute.internal", "a" * 253])
def test_node_names(text: str) -> None:
    assert NODE_NAME.accepts(text)


@pytest.mark.parametrize("text", [" ", "-a", "a b", "a/b", "a" * 254, "n1\n"])
def test_no_node_names(text: str) -> None:
    assert not NODE_NAME.accepts(text)


@pytest.mark.parametrize("text", ["DCGM_FI_DEV_GPU_TEMP", "hw:x", "DCGM_*", "?x", "[ab]_c"])
def test_series(text: str) -> None:
    assert SERIES.accepts(text)


@pytest.mark.parametrize("text", ["", "a b", "a,b", "a{b}", "é"])
def test_no_series(text: str) -> None:
    assert not SERIES.accepts(text)


@pytest.mark.parametrize("text", ["(", "[", "*", "a{2}{3}", "(?P<a>x)(?P<a>y)"])
def test_no_regular_expressions(text: str) -> None:
    assert not REGEX.accepts(text)


@pytest.mark.parametrize("text", ["0660", "600", "777"])
def test_permissions(text: str) -> None:
    assert SOCKET_MODE.accepts(text)


@pytest.mark.parametrize("text", ["", "0o660", "660 ", "0888", "4755", "rw-rw----"])
def test_no_permissions(text: str) -> None:
    assert not SOCKET_MODE.accepts(text)


def test_keys_of_labels() -> None:
    assert all(LABEL_KEY.accepts(key) for key in ("team", "a_b.c-D", "example.com/cost-center", "a" * 63, "1"))
    refused = ("", "*", "team*", "a/b/c", "/a", "a/", "-a", "a-", "Example.com/a", "a b", "a" * 64, "a\n", 'a"b')
    assert not [key for key in refused if LABEL_KEY.accepts(key)]
