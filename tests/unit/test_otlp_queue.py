"""Requests wait in order, are sent again where that can help, and take no more memory than they may."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from exporter.otlp.answer import SUCCESS, Outcome
from exporter.otlp.batch import Request
from exporter.otlp.queue import Delivery, Report
from exporter.otlp.streams import Stream
from exporter.selfmetrics import SelfMetrics
from tests.serving import run, until

RETRY = Outcome("retry", "HTTP status 503")
REFUSED = Outcome("refused", "HTTP status 400")


class Receiver:
    """Answers one request after the other as a test says, then takes all."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.got: list[tuple[bytes, float]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.closed = False

    def pack(self, body: bytes) -> bytes:
        return body

    async def send(self, data: bytes) -> Outcome:
        await self.open.wait()
        self.got.append((data, time.monotonic()))
        return self.outcomes.pop(0) if self.outcomes else SUCCESS

    async def close(self) -> None:
        self.closed = True

    @property
    def bodies(self) -> list[bytes]:
        return [data for data, _ in self.got]

    @property
    def pauses(self) -> list[float]:
        times = [moment for _, moment in self.got]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


class Rig:
    def __init__(self, receiver: Receiver, delivery: Delivery, metrics: SelfMetrics) -> None:
        self.receiver, self.delivery, self.metrics = receiver, delivery, metrics

    def value(self, name: str, **labels: str) -> float:
        found = self.metrics.registry.get_sample_value(f"accel_exporter_otlp_{name}", labels)
        assert found is not None
        return found

    async def put(self, *bodies: bytes, points: int = 1) -> None:
        for body in bodies:
            await self.delivery.put(Request(body, points))

    async def sent(self, count: int) -> None:
        await until(lambda: len(self.receiver.got) >= count)


@asynccontextmanager
async def delivery(
    *outcomes: Outcome, queue_bytes: int = 1000, give_up_after: float = 60.0, first_pause: float = 0.01
) -> AsyncIterator[Rig]:
    receiver, metrics = Receiver(*outcomes), SelfMetrics()
    made = Delivery(
        receiver,
        "http://c",
        metrics.otlp(),
        queue_bytes=queue_bytes,
        give_up_after=give_up_after,
        first_pause=first_pause,
    )
    task = asyncio.create_task(made.run())
    try:
        yield Rig(receiver, made, metrics)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await made.close()
        assert receiver.closed


def test_requests_are_sent_in_order_and_counted() -> None:
    async def test() -> None:
        async with delivery() as rig:
            await rig.put(b"1", b"2", b"3")
            await rig.delivery.flush(10)
            assert rig.receiver.bodies == [b"1", b"2", b"3"]
            assert rig.value("exports_total", result="success") == 3
            assert rig.value("queue_length") == 0
            assert rig.value("dropped_total") == 0

    run(test)


def test_a_request_is_sent_again_before_those_behind_it() -> None:
    async def test() -> None:
        async with delivery(RETRY, RETRY) as rig:
            await rig.put(b"1", b"2")
            await rig.sent(4)
            await rig.delivery.flush(10)
            assert rig.receiver.bodies == [b"1", b"1", b"1", b"2"]
            assert rig.value("exports_total", result="retry") == 2

    run(test)


def test_pauses_grow_and_are_never_quite_the_same() -> None:
    async def test() -> None:
        async with delivery(*[RETRY] * 6, first_pause=0.02) as rig:
            await rig.put(b"1")
            await rig.sent(7)
            for number, pause in enumerate(rig.receiver.pauses):
                longest = 0.02 * 2**number
                assert longest / 2 <= pause < longest + 0.5
            jitter = {round(pause / 0.02 / 2**number, 6) for number, pause in enumerate(rig.receiver.pauses)}
            assert len(jitter) == 6

    run(test)


def test_the_receivers_own_pause_counts() -> None:
    async def test() -> None:
        async with delivery(Outcome("retry", "later", pause=0.3)) as rig:
            await rig.put(b"1")
            await rig.sent(2)
            assert 0.3 <= rig.receiver.pauses[0] < 2

    run(test)


def test_a_refused_request_is_dropped_and_the_next_one_is_sent() -> None:
    async def test() -> None:
        async with delivery(REFUSED) as rig:
            await rig.put(b"1", b"2", points=7)
            await rig.delivery.flush(10)
            assert rig.receiver.bodies == [b"1", b"2"]
            assert rig.value("exports_total", result="refused") == 1
            assert rig.value("dropped_total") == 7

    run(test)


def test_a_request_taken_in_part_is_not_sent_again() -> None:
    async def test() -> None:
        async with delivery(Outcome("partial", "3 points were rejected", rejected=3)) as rig:
            await rig.put(b"1", points=7)
            await rig.delivery.flush(10)
            assert rig.receiver.bodies == [b"1"]
            assert rig.value("exports_total", result="partial") == 1
            assert rig.value("points_rejected_total") == 3
            assert rig.value("dropped_total") == 0

    run(test)


def test_after_its_time_a_request_is_given_up() -> None:
    async def test() -> None:
        async with delivery(*[RETRY] * 3, give_up_after=0.03, first_pause=0.02) as rig:
            await rig.put(b"1", points=5)
            await until(lambda: rig.value("dropped_total") == 5)
            await rig.put(b"2")
            await rig.delivery.flush(10)
            assert rig.receiver.bodies[-1] == b"2"
            assert len(rig.receiver.bodies) <= 5

    run(test)


def test_without_time_it_is_sent_once() -> None:
    async def test() -> None:
        async with delivery(RETRY, give_up_after=0) as rig:
            await rig.put(b"1", b"2")
            await rig.sent(2)
            assert rig.receiver.bodies == [b"1", b"2"]

    run(test)


def test_a_full_queue_lets_the_oldest_go_but_for_the_one_on_its_way(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with delivery(queue_bytes=30) as rig:
            rig.receiver.open.clear()
            await rig.put(b"a" * 10)
            # It is being sent: it cannot be taken back.
            await asyncio.sleep(0.05)
            await rig.put(b"b" * 10, b"c" * 10, b"d" * 10, b"e" * 10, points=4)
            assert rig.value("queue_length") == 3
            assert rig.value("dropped_total") == 8
            rig.receiver.open.set()
            await rig.delivery.flush(10)
            assert [body[:1] for body in rig.receiver.bodies] == [b"a", b"d", b"e"]

    run(test)
    assert caplog.text.count("the queue is full") == 1


def test_a_request_that_is_larger_than_the_queue_is_dropped_alone() -> None:
    async def test() -> None:
        async with delivery(queue_bytes=30) as rig:
            rig.receiver.open.clear()
            await rig.put(b"a" * 10)
            await asyncio.sleep(0.05)
            await rig.put(b"b" * 31, points=3)
            rig.receiver.open.set()
            await rig.delivery.flush(10)
            assert rig.value("dropped_total") == 3
            assert rig.receiver.bodies == [b"a" * 10]

    run(test)


def test_the_last_flush_does_not_wait_for_a_pause_and_ends_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with delivery(Outcome("retry", "later", pause=3000.0), give_up_after=86400) as rig:
            await rig.put(b"1")
            await rig.sent(1)
            await rig.delivery.flush(10)
            assert rig.receiver.bodies == [b"1", b"1"]
            rig.receiver.open.clear()
            await rig.put(b"2", points=9)
            began = time.monotonic()
            await rig.delivery.flush(0.1)
            assert time.monotonic() - began < 5
        assert rig.value("dropped_total") == 9
        assert rig.value("queue_length") == 0

    run(test)
    assert "could not be sent in time" in caplog.text


def test_starts_of_counters_hold_when_their_request_was_taken_and_only_then() -> None:
    async def test() -> None:
        streams = [Stream(None, None) for _ in range(3)]
        async with delivery(REFUSED, SUCCESS, Outcome("partial", "x", rejected=1)) as rig:
            for number, stream in enumerate(streams):
                stream.point(1.0, 10 + number)
                await rig.delivery.put(Request(b"x", 1, [(stream, 10 + number)]))
            await rig.delivery.flush(10)
        assert [stream.start for stream in streams] == [None, 11, 12]

    run(test)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def outcomes(*repeated: tuple[Outcome, int]) -> Iterable[Outcome]:
    return [outcome for outcome, count in repeated for _ in range(count)]


def test_the_log_tells_a_trouble_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with delivery(*outcomes((REFUSED, 20))) as rig:
            await rig.put(*[b"x"] * 25)
            await rig.delivery.flush(10)

    run(test)
    assert lines(caplog) == [
        (logging.WARNING, "OTLP: a request is dropped: HTTP status 400"),
        (logging.INFO, "OTLP: requests are taken again"),
    ]
    assert {record.__dict__["endpoint"] for record in caplog.records} == {"http://c"}


def test_points_that_are_rejected_again_and_again_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    partial = Outcome("partial", "3 points were rejected: too old", rejected=3)

    async def test() -> None:
        async with delivery(*[partial] * 10) as rig:
            await rig.put(*[b"x"] * 10, points=3)
            await rig.delivery.flush(10)
            assert rig.value("points_rejected_total") == 30

    run(test)
    assert [text for _, text in lines(caplog)] == ["OTLP: a request is taken in part: 3 points were rejected: too old"]


def test_where_all_is_well_the_log_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with delivery() as rig:
            await rig.put(*[b"x"] * 5)
            await rig.delivery.flush(10)

    run(test)
    assert lines(caplog) == []


def test_a_fault_of_the_sender_drops_its_request_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with delivery() as rig:
            broken = [ValueError("what is that?")]
            send = rig.receiver.send

            async def break_once(data: bytes) -> Outcome:
                if broken:
                    raise broken.pop()
                return await send(data)

            rig.receiver.send = break_once  # type: ignore[method-assign]
            await rig.put(b"1", b"2", points=3)
            await rig.delivery.flush(10)
            assert rig.receiver.bodies == [b"2"]
            assert rig.value("dropped_total") == 3

    run(test)
    assert "what is that?" in caplog.text


def test_the_report_tells_how_the_receiver_is() -> None:
    async def test() -> None:
        async with delivery(REFUSED) as rig:
            assert rig.delivery.report() == Report(None, None, "", 0, 0)
            await rig.put(b"1", points=7)
            await rig.delivery.flush(10)
            refused = rig.delivery.report()
            assert (refused.up, refused.last_success, refused.queued, refused.dropped) == (False, None, 0, 7)
            assert refused.hint == REFUSED.message
            before = time.time()
            await rig.put(b"2")
            await rig.delivery.flush(10)
            taken = rig.delivery.report()
            assert (taken.up, taken.hint, taken.dropped) == (True, "", 7)
            assert taken.last_success is not None
            assert before <= taken.last_success <= time.time()

    run(test)
