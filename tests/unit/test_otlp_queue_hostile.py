"""Receivers that lie about numbers, ask to be asked at once, or are up and down all the time."""

from __future__ import annotations

import logging

import pytest

from exporter.otlp import queue
from exporter.otlp.answer import SUCCESS, Outcome, of_http
from tests.serving import run, until
from tests.unit.test_otlp_queue import RETRY, delivery, lines

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("number", ["9" * 400, f'"{"9" * 400}"', "9223372036854775807"])
def test_no_number_of_rejected_points_ends_the_push(number: str) -> None:
    outcome = of_http(200, JSON, b'{"partialSuccess":{"rejectedDataPoints":%s}}' % number.encode())
    assert (outcome.result, outcome.rejected) == ("partial", 2**63 - 1)

    async def test() -> None:
        async with delivery(outcome) as rig:
            await rig.put(b"1", b"2", points=7)
            await rig.delivery.flush(10)
            assert rig.receiver.bodies == [b"1", b"2"]
            # More than were sent cannot have been rejected.
            assert rig.value("points_rejected_total") == 7

    run(test)


@pytest.mark.parametrize("asked", [0.0, 0.001])
def test_who_wants_to_be_asked_again_at_once_is_asked_after_pauses_that_grow(asked: float) -> None:
    async def test() -> None:
        async with delivery(*[Outcome("retry", "later", pause=asked)] * 5, first_pause=0.02) as rig:
            await rig.put(b"1")
            await rig.sent(6)
            for number, pause in enumerate(rig.receiver.pauses):
                assert pause >= 0.02 * 2**number / 2

    run(test)


def test_a_receiver_that_is_up_and_down_all_the_time_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with delivery(*[RETRY, SUCCESS] * 10, first_pause=0.001) as rig:
            await rig.put(*[b"x"] * 10)
            await rig.delivery.flush(10)
            assert rig.value("exports_total", result="retry") == 10

    run(test)
    assert lines(caplog) == [
        (logging.WARNING, "OTLP: a request is to be sent again: HTTP status 503"),
        (logging.INFO, "OTLP: requests are taken again"),
    ]


def test_a_trouble_that_comes_soon_after_another_and_stays_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with delivery(RETRY, SUCCESS, *[RETRY] * 1000, first_pause=0.001) as rig:
            await rig.put(b"1", b"2")
            await rig.sent(4)
            assert caplog.text.count("HTTP status 503") == 1
            # As if this much time had passed.
            monkeypatch.setattr(queue, "QUIET", 0.0)
            await until(lambda: caplog.text.count("HTTP status 503") == 2)

    run(test)


def test_the_same_trouble_with_other_numbers_is_not_told_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "QUIET", 0.0)

    async def test() -> None:
        refused = [Outcome("partial", f"{number} points were rejected: too old") for number in range(1, 9)]
        async with delivery(*refused) as rig:
            await rig.put(*[b"x"] * 8)
            await rig.delivery.flush(10)

    run(test)
    assert [text for _, text in lines(caplog)] == ["OTLP: a request is taken in part: 1 points were rejected: too old"]


def test_a_queue_that_is_full_again_and_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with delivery(queue_bytes=10) as rig:
            for round_ in range(5):
                rig.receiver.open.clear()
                await rig.put(*[b"x" * 4] * 5)
                rig.receiver.open.set()
                await rig.delivery.flush(10)
                assert rig.value("dropped_total") >= 2 * (round_ + 1)

    run(test)
    assert caplog.text.count("the queue is full") == 1


def test_a_fault_that_comes_with_each_request_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with delivery() as rig:

            async def broken(data: bytes) -> Outcome:
                raise ValueError("what is that?")

            rig.receiver.send = broken  # type: ignore[method-assign]
            await rig.put(*[b"x"] * 5, points=3)
            await rig.delivery.flush(10)
            assert rig.value("dropped_total") == 15

    run(test)
    assert caplog.text.count("Traceback") == 1
