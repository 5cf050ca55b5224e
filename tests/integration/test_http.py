"""What each route answers, over real sockets."""

from __future__ import annotations

import gzip
import logging
from typing import Any

import aiohttp
import pytest
import zstandard

from exporter.families import Block, Family, Publication
from exporter.http.limits import REASONS
from exporter.http.resources import Query, Resource, only
from exporter.negotiation import Format
from tests.exposition_readers import read
from tests.serving import Answer, client, get, rejected, request, run, running, served

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


async def ask(target: str = "/metrics", *headers: str, method: str = "GET", **changes: Any) -> Answer:
    """One request to a server of its own."""
    async with running(served(**changes)) as server:
        return await get(server.addresses[0], target, *headers, method=method)


def names(answer: Answer, format_: Format = Format.TEXT) -> set[str]:
    return {sample.name for sample in read(answer.body, format_)}


# /metrics


@pytest.mark.parametrize(
    ("accept", "content_type", "format_"),
    [
        ((), TEXT, Format.TEXT),
        (("Accept: */*",), TEXT, Format.TEXT),
        (("Accept: text/html, application/json",), TEXT, Format.TEXT),
        (("Accept: ;;;=,q",), TEXT, Format.TEXT),
        ((f"Accept: {PROMETHEUS_2}",), OPENMETRICS, Format.OPENMETRICS),
        ((f"Accept: {PROMETHEUS_3}",), f"{OPENMETRICS}; escaping=underscores", Format.OPENMETRICS),
        (("Accept: application/openmetrics-text;q=0.2", "Accept: text/plain;q=0.3"), TEXT, Format.TEXT),
    ],
)
def test_a_scraper_gets_the_format_that_it_prefers(accept: tuple[str, ...], content_type: str, format_: Format) -> None:
    answer = run(lambda: ask("/metrics", *accept))
    assert answer.status == 200
    assert answer.headers["content-type"] == content_type
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    assert answer.headers["cache-control"] == "no-store"
    assert {"accel_temperature_celsius", "vendor_reads", "accel_exporter_build_info"} <= names(answer, format_)


@pytest.mark.parametrize(
    ("accept_encoding", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, zstd;q=0.5", "gzip"),
        ("zstd, gzip;q=0.5", "zstd"),
        ("br, deflate", None),
        ("gzip;q=0", None),
        ("identity", None),
    ],
)
def test_a_body_is_compressed_as_asked(accept_encoding: str, coding: str | None) -> None:
    async def test() -> tuple[Answer, Answer]:
        async with running() as server:
            where = server.addresses[0]
            return await get(where), await get(where, "/metrics", f"Accept-Encoding: {accept_encoding}")

    plain, coded = run(test)
    assert coded.headers.get("content-encoding") == coding
    assert coded.headers["vary"] == "Accept, Accept-Encoding"
    body = coded.body
    if coding == "gzip":
        body = gzip.decompress(body)
    elif coding == "zstd":
        body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    assert body == plain.body


def test_one_schema_can_be_asked_for() -> None:
    common = names(run(lambda: ask("/metrics?schema=common")))
    raw = names(run(lambda: ask("/metrics?schema=raw")))
    assert {"accel_temperature_celsius", "accel_exporter_build_info"} <= common
    assert "vendor_reads" in raw
    assert not common & raw
    assert not [name for name in raw if name.startswith("accel_")]


@pytest.mark.parametrize("query", ["schema=", "schema=Common", "schema=all", "schema=common&schema=raw"])
def test_another_schema_is_refused_with_what_is_expected(query: str) -> None:
    answer = run(lambda: ask(f"/metrics?{query}"))
    assert (answer.status, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert b"expected common or raw" in answer.body


def test_families_can_be_asked_for_by_name_and_what_is_unknown_is_passed_over() -> None:
    query = "name[]=accel_temperature_celsius&name%5B%5D=vendor_limit&name[]=no_such_series&collect=x&utf8=%FF"
    answer = run(lambda: ask(f"/metrics?{query}"))
    assert names(answer) == {"accel_temperature_celsius", "vendor_limit"}


def test_two_hundred_names_are_the_most() -> None:
    def query(count: int) -> str:
        return "/metrics?" + "&".join(f"name[]=n{number}" for number in range(count))

    assert run(lambda: ask(query(200))).status == 200
    refused = run(lambda: ask(query(201)))
    assert refused.status == 400
    assert b"at most 200, got 201" in refused.body


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a%20b", "%C3%A9", "a%00", "a%0A", "%3Cscript%3E"])
def test_a_name_that_no_metric_can_have_is_refused_and_not_repeated(name: str) -> None:
    answer = run(lambda: ask(f"/metrics?name[]=up&name[]={name}"))
    assert answer.status == 400
    assert b"number 2 is none" in answer.body
    assert b"script" not in answer.body


def test_before_the_first_sample_a_scrape_gets_the_agents_own_metrics() -> None:
    answer = run(lambda: ask(publication=lambda: Publication(0)))
    assert answer.status == 200
    found = names(answer)
    assert "accel_exporter_build_info" in found
    assert {name.split("_")[0] for name in found} == {"accel", "process"}


def test_a_body_of_megabytes_arrives_whole() -> None:
    prefixes = tuple(f'accel_temperature_celsius{{device="{number}",pad="{"x" * 80}"}} ' for number in range(40_000))
    block = Block(prefixes, tuple(range(40_000)))
    publication = Publication(1, (Family("accel_temperature_celsius", "gauge", "Hot.", "common", (block,)),))
    lines = "".join(f"{prefix}{number}\n" for number, prefix in enumerate(prefixes))
    whole = f"# HELP accel_temperature_celsius Hot.\n# TYPE accel_temperature_celsius gauge\n{lines}".encode()

    async def test() -> None:
        async with running(served(publication=lambda: publication)) as server:
            where, target = server.addresses[0], "/metrics?name[]=accel_temperature_celsius"
            answer = await get(where, target)
            assert answer.body == whole
            assert len(whole) > 4_000_000
            assert (await get(where, target, method="HEAD")).headers["content-length"] == str(len(whole))

    run(test)


# Health and readiness


def test_health_and_readiness_say_what_is_wrong() -> None:
    bad: dict[str, Any] = {
        "alive": lambda: (False, "the supervisor of acme has ended"),
        "ready": lambda: (False, "first readings"),
    }
    assert run(lambda: ask("/healthz")).body == b"ok\n"
    assert run(lambda: ask("/readyz")).body == b"ready\n"
    health = run(lambda: ask("/healthz", **bad))
    assert (health.status, health.body) == (503, b"the supervisor of acme has ended\n")
    ready = run(lambda: ask("/readyz", **bad))
    assert (ready.status, ready.body) == (503, b"first readings\n")
    assert int(ready.headers["retry-after"]) > 0
    assert "retry-after" not in run(lambda: ask("/readyz")).headers


# What other packages serve


async def constant(_: Query) -> Resource:
    return Resource(content=b"body { color: red }" * 100, content_type="text/css", constant=True)


async def asked(query: Query) -> Resource:
    only(query, "a")
    return Resource(content=repr(query).encode(), headers={"X-Own": "1"})


async def broken(_: Query) -> Resource:
    raise RuntimeError("secret")


PAGES = {"/style.css": constant, "/asked": asked, "/broken": broken}


def test_a_page_of_another_package_is_served_as_it_says() -> None:
    answer = run(lambda: ask("/asked?a=1", pages=PAGES))
    assert (answer.status, answer.body) == (200, b"{'a': ['1']}")
    assert answer.headers["content-type"] == "application/json"
    assert (answer.headers["x-own"], answer.headers["cache-control"]) == ("1", "no-store")


@pytest.mark.parametrize("query", ["b=1", "a=1&a=2", "a=1&evil%0d%0aX:1=2"])
def test_a_query_that_a_page_does_not_take_is_refused_and_not_repeated(query: str) -> None:
    answer = run(lambda: ask(f"/asked?{query}", pages=PAGES))
    assert (answer.status, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert b"a" in answer.body
    assert b"evil" not in answer.body


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_page_is_compressed_where_that_is_worth_it(coding: str) -> None:
    answer = run(lambda: ask("/style.css", f"Accept-Encoding: {coding}", pages=PAGES))
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == (coding, "Accept-Encoding")
    unpack = gzip.decompress if coding == "gzip" else zstandard.ZstdDecompressor().decompressobj().decompress
    assert unpack(answer.body) == b"body { color: red }" * 100
    assert "content-encoding" not in run(lambda: ask("/asked", f"Accept-Encoding: {coding}", pages=PAGES)).headers


def test_a_browser_keeps_what_is_constant_and_asks_whether_it_still_is() -> None:
    async def test() -> None:
        async with running(served(pages=PAGES)) as server:
            where = server.addresses[0]
            first = await get(where, "/style.css")
            assert first.headers["cache-control"] == "no-cache"
            tag = first.headers["etag"]
            for known in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
                again = await get(
                    where, "/style.css", f"If-None-Match: {known}", "Accept-Encoding: gzip", method="HEAD"
                )
                assert (again.status, again.headers["etag"]) == (304, tag), known
            assert (await get(where, "/style.css", 'If-None-Match: "other"')).status == 200

    run(test)


def test_nothing_of_a_page_that_breaks_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        answer = run(lambda: ask("/broken", pages=PAGES))
    assert (answer.status, answer.body) == (500, b"internal error: the agent's log tells more\n")


# Every route


@pytest.mark.parametrize("path", ["/", "/metrics", "/metrics?schema=raw", "/healthz", "/readyz", "/nothing"])
def test_head_tells_the_same_without_a_body(path: str) -> None:
    async def test() -> None:
        async with running() as server, client(server.addresses[0]) as both:
            await both.send(request(path, method="HEAD"))
            head = await both.answer(body=False)
            # What follows on the connection is the next answer: there was no body.
            await both.send(request(path))
            whole = await both.answer()
            assert head.status == whole.status
            assert head.headers["content-type"] == whole.headers["content-type"]
            # The agent's own metrics are of another length only where a new publication shows them.
            assert head.headers["content-length"] == whole.headers["content-length"]

    run(test)


@pytest.mark.parametrize(
    "path", ["/nothing", "/metrics/", "/Metrics", "//metrics", "/-/reload", "/../etc/passwd", "/%2e%2e"]
)
def test_an_unknown_page_is_not_there(path: str) -> None:
    answer = run(lambda: ask(path))
    assert (answer.status, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert b"passwd" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("OPTIONS", "/healthz", "GET, HEAD"),
        ("TRACE", "/readyz", "GET, HEAD"),
        ("PROPFIND", "/metrics", "GET, HEAD"),
        ("GET", "/-/release", "POST"),
    ],
)
def test_another_method_is_refused_with_those_that_there_are(method: str, path: str, allow: str) -> None:
    answer = run(lambda: ask(path, method=method))
    assert answer.status == 405
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/metrics?schema=x", "/healthz", "/readyz", "/nothing", "/-/release"]
)
def test_no_answer_names_a_library_or_may_be_kept(path: str) -> None:
    answer = run(lambda: ask(path))
    assert answer.headers["server"] == "accel-exporter"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"aiohttp" not in answer.body.lower()


def test_an_ordinary_http_client_is_served() -> None:
    async def test() -> None:
        async with running() as server, aiohttp.ClientSession(f"http://{server.addresses[0]}") as session:
            for _ in range(3):
                async with session.get("/metrics") as answer:
                    assert answer.headers["Content-Encoding"] in ("gzip", "zstd")
                    assert "accel_temperature_celsius" in await answer.text()

    run(test)


def test_an_error_is_told_shortly_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Publication:
        raise RuntimeError("secret of /etc/agent/config.yaml")

    async def test() -> list[Answer]:
        async with running(served(publication=broken)) as server:
            return [await get(server.addresses[0]) for _ in range(3)]

    with caplog.at_level(logging.WARNING):
        answers = run(test)
    assert {(answer.status, answer.body) for answer in answers} == {
        (500, b"internal error: the agent's log tells more\n")
    }
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "secret" in str(record.exc_info[1])


def test_requests_are_counted_by_route_and_status() -> None:
    async def test() -> None:
        content = served()
        async with running(content) as server:
            for target, method in (
                ("/metrics", "GET"),
                ("/metrics?schema=x", "GET"),
                ("/metrics", "PUT"),
                ("/evil/1", "GET"),
                ("/evil/2", "GET"),
            ):
                await get(server.addresses[0], target, method=method)
        found = {
            (sample.labels["route"], sample.labels["code"]): sample.value
            for metric in content.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "accel_exporter_http_request_duration_seconds_count"
        }
        assert found == {
            ("/metrics", "200"): 1,
            ("/metrics", "400"): 1,
            ("/metrics", "405"): 1,
            ("other", "404"): 2,
        }
        assert [rejected(content, reason) for reason in REASONS] == [0] * len(REASONS)

    run(test)
