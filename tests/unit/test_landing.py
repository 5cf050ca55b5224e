"""What the page shows where no scripts run, and what of a hint is for everyone."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from exporter.http.landing import CollectorLine, Overview, fallback, public


class Reader(HTMLParser):
    """The page's tags with their attributes, and its visible text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip() and self.tags[-1][0] != "style":
            self.words.append(data.strip())


def overview(*collectors: CollectorLine, node: str = "node-7") -> Overview:
    return Overview(version="1.2.3", node=node, collectors=collectors)


def test_each_collector_shows_its_state_hint_devices_and_age() -> None:
    lines = (
        CollectorLine(name="acme", state="running", devices=8, age=3.4),
        CollectorLine(name="zeta", state="no_permission", hint="cannot read /dev/zeta0: add the group zeta"),
        CollectorLine(name="old", state="stuck", devices=1, age=600),
    )
    words = Reader(fallback(overview(*lines))).words
    table = words[words.index("Hint") + 1 :]
    assert table == [
        *("acme", "running", "8", "3 s ago"),
        *("zeta", "no_permission", "0", "none", "cannot read /dev/zeta0: add the group zeta"),
        *("old", "stuck", "1", "10 min ago"),
    ]


def test_without_collectors_the_table_says_so() -> None:
    assert "No collector is configured." in Reader(fallback(overview())).words


def test_whatever_the_agent_was_told_is_text_and_no_markup() -> None:
    evil = '<script>alert("1")</script>\'&'
    line = CollectorLine(name=evil, state=evil, hint=evil)
    found = Reader(fallback(overview(line, node=evil)))
    assert "script" not in {tag for tag, _ in found.tags}
    assert found.words.count(evil) == 3
    assert any(evil in words and "node" in words for words in found.words)


def test_the_table_loads_nothing_and_its_links_stay_below_the_page() -> None:
    found = Reader(fallback(overview()))
    assert not [attributes for _, attributes in found.tags if {"src", "action", "onclick"} & attributes.keys()]
    assert "link" not in {tag for tag, _ in found.tags}
    links = [str(attributes["href"]) for tag, attributes in found.tags if tag == "a"]
    assert {"metrics", "metrics?schema=common", "metrics?schema=raw", "healthz", "readyz"} <= set(links)
    assert not [link for link in links if link.startswith("/") or ":" in link]


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("cannot open /etc/agent/secret/token", "cannot open …/token"),
        ("[Errno 2] No such file: '/opt/acme/lib/libacme.so.1'", "[Errno 2] No such file: '…/libacme.so.1'"),
        ("/a/b/c:/d/e", "…/c:…/e"),
        ("cannot read /dev/acme0 nor /proc/driver/acme", "cannot read /dev/acme0 nor /proc/driver/acme"),
        ("http://user:secret@127.0.0.1:9400/metrics refuses", "http://…@127.0.0.1:9400/metrics refuses"),
        ("http://[::1]:9400/a/b refuses", "http://[::1]:9400/a/b refuses"),
        ("50/60 devices, and/or none", "50/60 devices, and/or none"),
        ("", ""),
    ],
)
def test_a_hint_shows_no_credentials_and_no_place_of_files(hint: str, shown: str) -> None:
    assert public(hint) == shown
