"""A body is made once for all who want it, kept for as long as its publication, and never delays others."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from exporter import exposition_text
from exporter.exposition import FILTERED_AT_ONCE, Body, BodyRequest, Exposition
from exporter.exposition_text import SLICE
from exporter.families import Block, Family, Publication, Schema
from exporter.negotiation import Format
from tests.exposition_readers import family, read
from tests.handmade import COMMON, OWN, PUBLICATION, RAW, agent_text, big, names

TEXT, OPENMETRICS = Format.TEXT, Format.OPENMETRICS


class Counted(Executor):
    """An executor that knows how much it was given to do."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2)
        self.calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


@pytest.fixture
def executor() -> Iterator[Counted]:
    with Counted() as found:
        yield found


class Bench:
    """An exposition whose work is counted."""

    def __init__(self, executor: Counted) -> None:
        self.seconds: list[float] = []
        self.asked: list[Format] = []
        self.executor = executor
        self.exposition = Exposition(self._agent, executor=executor, observe=self.seconds.append)

    def _agent(self, format_: Format) -> bytes:
        self.asked.append(format_)
        return agent_text(format_)

    def body(self, publication: Publication, **request: Any) -> Awaitable[Body]:
        return self.exposition.body(publication, BodyRequest(**{"format": TEXT, **request}))


def test_a_hundred_scrapes_at_once_are_one_rendering_and_one_compression(executor: Counted) -> None:
    async def scrape() -> tuple[Bench, list[Body]]:
        bench = Bench(executor)
        publication = big(1, 3 * SLICE)
        return bench, await asyncio.gather(*[bench.body(publication, encoding="gzip") for _ in range(100)])

    bench, bodies = asyncio.run(scrape())

    assert len(bench.seconds) == 1
    assert bench.seconds[0] > 0
    assert bench.asked == [TEXT]
    assert executor.calls == 1
    assert all(body.content is bodies[0].content for body in bodies)


def test_later_scrapes_of_a_publication_send_the_same_bytes(executor: Counted) -> None:
    async def scrape() -> tuple[Bench, Body, Body]:
        bench = Bench(executor)
        first = await bench.body(PUBLICATION, encoding="gzip", escaping=False)
        return bench, first, await bench.body(PUBLICATION, encoding="gzip", escaping=True)

    bench, first, second = asyncio.run(scrape())

    assert second.content is first.content
    assert (len(bench.seconds), executor.calls) == (1, 1)


def test_all_formats_and_selections_share_one_rendering_of_the_samples(executor: Counted) -> None:
    async def scrape() -> Bench:
        bench = Bench(executor)
        schemas: tuple[Schema | None, ...] = (None, "common", "raw")
        await asyncio.gather(*[bench.body(PUBLICATION, format=f, schema=s) for f in Format for s in schemas])
        await bench.body(PUBLICATION, names=frozenset({"vendor_limit"}))
        return bench

    bench = asyncio.run(scrape())

    assert len(bench.seconds) == 1
    assert sorted(bench.asked, key=str) == [OPENMETRICS, TEXT]


def test_a_new_publication_is_rendered_anew(executor: Counted) -> None:
    async def scrape() -> list[bytes]:
        bench = Bench(executor)
        publications = [Publication(n, (family("x", "gauge", [((), n)]),)) for n in range(3)]
        return [(await bench.body(p, schema="raw")).content for p in publications]

    assert asyncio.run(scrape()) == [f"# HELP x Some help.\n# TYPE x gauge\nx {n}\n".encode() for n in range(3)]


def test_a_scrape_that_is_given_up_does_not_take_the_body_from_the_others(executor: Counted) -> None:
    async def scrape() -> tuple[Bench, Body]:
        bench = Bench(executor)
        publication = big(1, 5 * SLICE)
        impatient = asyncio.ensure_future(bench.body(publication))
        patient = asyncio.ensure_future(bench.body(publication))
        await asyncio.sleep(0)
        impatient.cancel()
        return bench, await patient

    bench, body = asyncio.run(scrape())

    assert len(read(body.content, TEXT)) == 5 * SLICE + len(OWN)
    assert len(bench.seconds) == 1


def test_after_a_failure_the_next_scrape_tries_again(executor: Counted) -> None:
    failures = [OSError("first"), None]

    def agent(format_: Format) -> bytes:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return agent_text(format_)

    async def scrape() -> list[Body | BaseException]:
        found = Exposition(agent, executor=executor)
        request = BodyRequest(format=TEXT)
        together = await asyncio.gather(*[found.body(PUBLICATION, request) for _ in range(2)], return_exceptions=True)
        return [*together, await found.body(PUBLICATION, request)]

    first, second, third = asyncio.run(scrape())

    assert isinstance(first, OSError)
    assert isinstance(second, OSError)
    assert isinstance(third, Body)
    assert names(third) == COMMON | RAW | OWN


def test_two_publications_at_once_do_not_mix(executor: Counted) -> None:
    async def scrape() -> list[Body]:
        bench = Bench(executor)
        small = Publication(2, (family("x", "gauge", [((), 2)]),))
        return await asyncio.gather(*[bench.body(p, schema="raw") for p in (big(1, 4 * SLICE), small)])

    older, newer = asyncio.run(scrape())

    assert names(older) == {"big"}
    assert names(newer) == {"x"}


def test_a_newer_publication_waits_for_what_an_older_one_is_writing_and_takes_it_over(
    executor: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    genuine = exposition_text._lines

    def counting(prefixes: Sequence[str], *rest: Any) -> bytes:
        written.append(len(prefixes))
        return genuine(prefixes, *rest)

    monkeypatch.setattr(exposition_text, "_lines", counting)
    older = big(1, 4 * SLICE)
    newer = Publication(2, (*older.families, family("x", "gauge", [((), 2)])))

    async def scrape() -> None:
        bench = Bench(executor)
        await asyncio.gather(*[bench.body(p) for p in (older, newer)])

    asyncio.run(scrape())

    assert written == [SLICE] * 4 + [1]


def test_other_tasks_get_their_turn_while_a_big_publication_is_rendered(executor: Counted) -> None:
    async def scrape() -> int:
        turns = 0
        done = False

        async def other() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await Bench(executor).body(big(1, 20 * SLICE))
        done = True
        await task
        return turns

    assert asyncio.run(scrape()) >= 20


def test_filtered_bodies_are_not_kept_and_few_are_made_at_once(
    executor: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    most = 0
    active = 0

    async def scrape() -> list[Body]:
        loop = asyncio.get_running_loop()

        async def slow(_: Executor, function: Callable[..., bytes], *args: Any) -> bytes:
            nonlocal made, most, active
            made += 1
            active += 1
            most = max(most, active)
            # Long enough for all the others to come, too, if they may.
            for _turn in range(20):
                await asyncio.sleep(0)
            active -= 1
            return function(*args)

        monkeypatch.setattr(loop, "run_in_executor", slow)
        bench = Bench(executor)
        wanted = frozenset({"vendor_limit"})
        return await asyncio.gather(*[bench.body(PUBLICATION, names=wanted, encoding="gzip") for _ in range(10)])

    bodies = asyncio.run(scrape())

    assert (made, most) == (10, FILTERED_AT_ONCE)
    alone = BodyRequest(format=TEXT, names=frozenset({"vendor_limit"}))
    assert {gzip.decompress(body.content) for body in bodies} == {
        asyncio.run(Exposition(agent_text).body(PUBLICATION, alone)).content
    }


class WeakBlock(Block, frozen=True, eq=False, weakref=True):
    """A block of which one can tell whether it is still held."""


class WeakPublication(Publication, frozen=True, eq=False, weakref=True):
    pass


def test_what_was_kept_for_a_publication_goes_with_it(executor: Counted) -> None:
    async def scrape() -> tuple[list[bool], list[bool]]:
        bench = Bench(executor)
        block = WeakBlock(("x ",), (1,))
        publication = WeakPublication(1, (Family("x", "gauge", "X.", "raw", (block,)),))
        watched: list[Callable[[], object]] = [weakref.ref(block), weakref.ref(publication)]
        for format_ in Format:
            await bench.body(publication, format=format_)
            await bench.body(publication, format=format_, encoding="gzip")
        del block, publication
        gc.collect()
        kept = [reference() is not None for reference in watched]
        await bench.body(PUBLICATION)
        gc.collect()
        return kept, [reference() is not None for reference in watched]

    assert asyncio.run(scrape()) == ([True, True], [False, False])


def test_a_family_that_has_no_place_is_told_once(executor: Counted, caplog: pytest.LogCaptureFixture) -> None:
    def doubled(version: int) -> Publication:
        return Publication(version, (family("x", "gauge", [((), 1)]), family("x", "gauge", [((), 2)])))

    async def scrape() -> None:
        bench = Bench(executor)
        for version in range(3):
            for _ in range(2):
                await bench.body(doubled(version))

    with caplog.at_level(logging.WARNING):
        asyncio.run(scrape())

    assert [record.getMessage() for record in caplog.records] == [
        "families left out of the exposition, since another has their name: x"
    ]
