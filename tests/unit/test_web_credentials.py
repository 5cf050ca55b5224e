"""The guard without a network: caches, limits, and what waits for what."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from collections.abc import Callable

import pytest

from exporter.web import buckets, credentials
from exporter.web.buckets import Bucket, Buckets, source
from exporter.web.credentials import AT_ONCE, GUESSES, REMEMBERED, WAITING, Guard, Refusal, parse
from tests.secured import hashed
from tests.serving import run, until

Judged = bytes | Refusal


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Comparer:
    """Compares as bcrypt does, for hashes that are their passwords, and counts."""

    def __init__(self) -> None:
        self.compared: list[tuple[bytes, bytes]] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, password: bytes, kept: bytes) -> bool:
        self.compared.append((password, kept))
        assert self.open.wait(20)
        return password == kept


def header(user: str, password: str) -> list[str]:
    return ["Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()]


def judged(found: Judged) -> int:
    return found.status if isinstance(found, Refusal) else 200


async def ask(guard: Guard, password: str, *, user: str = "a", peer: str = "192.0.2.1", before: bytes = b"") -> int:
    return judged(await guard.judge(header(user, password), peer, before))


def guarded(test: Callable[[Guard, Clock, Comparer], object]) -> None:
    """Run a test with a guard whose one user ``a`` has the password ``right``."""

    async def body() -> None:
        clock, compare = Clock(), Comparer()
        guard = Guard(clock, compare)
        guard.use({"a": "right"})
        try:
            await test(guard, clock, compare)  # type: ignore[misc]
        finally:
            compare.open.set()
            await guard.close()

    run(body)


def test_without_users_everyone_gets_in_and_nothing_is_computed() -> None:
    async def test() -> None:
        guard = Guard(Clock(), Comparer())
        assert await guard.judge([], "192.0.2.1", b"") == b""
        guard.use({})
        assert await guard.judge(header("a", "b"), "192.0.2.1", b"") == b""

    run(test)


def test_a_right_password_is_compared_once_for_all_addresses() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        for number in range(50):
            assert await ask(guard, "right", peer=f"192.0.2.{number}") == 200
        assert len(compare.compared) == 1

    guarded(test)


def test_the_same_wrong_password_is_compared_once_and_is_no_guess() -> None:
    """A scraper with an old password asks for ever."""

    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        assert [await ask(guard, "old") for _ in range(100)] == [401] * 100
        assert len(compare.compared) == 1
        assert await ask(guard, "right") == 200

    guarded(test)


def test_a_user_that_there_is_not_costs_as_much_as_one_that_there_is() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        guard.use({"a": hashed("right", 5), "b": hashed("right", 6)})
        compare.compared.clear()
        for number in range(2):
            assert await ask(guard, f"x{number}", user="nobody") == 401
            assert await ask(guard, f"x{number}", user="a") == 401
        assert len(compare.compared) == 4
        costs = {kept[:7] for password, kept in compare.compared}
        assert costs <= {b"$2b$05$", b"$2b$06$"}
        # The same one each time, as for a user that there is.
        unknown = [kept for password, kept in compare.compared[::2]]
        assert unknown[0] == unknown[1]

    guarded(test)


def test_a_hash_in_place_of_an_unknown_user_is_one_that_bcrypt_takes_and_nothing_fits() -> None:
    async def test() -> None:
        guard = Guard()
        guard.use({"a": hashed("right")})
        for password in ("", "right", "x" * 100, "a\0b"):
            assert await ask(guard, password, user="nobody") == 401
        assert await ask(guard, "right") == 200
        await guard.close()

    run(test)


def test_guesses_come_back_with_time() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        assert [await ask(guard, f"guess {number}") for number in range(GUESSES)] == [401] * GUESSES
        found = await guard.judge(header("a", "another"), "192.0.2.1", b"")
        assert isinstance(found, Refusal)
        assert (found.status, found.why, found.headers) == (429, "guessing", {"Retry-After": "10"})
        assert await ask(guard, "another") == 429
        clock.now += 10
        assert await ask(guard, "another") == 401
        assert await ask(guard, "one more") == 429
        assert len(compare.compared) == GUESSES + 1

    guarded(test)


def test_right_passwords_use_up_no_guesses() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        users = {f"user {number}": f"right {number}" for number in range(3 * GUESSES)}
        guard.use(users)
        for user, password in users.items():
            assert await ask(guard, password, user=user) == 200
        assert await ask(guard, "wrong") == 401

    guarded(test)


def test_an_address_that_guesses_learns_nothing_from_what_others_have_proved() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        assert await ask(guard, "right", peer="198.51.100.1") == 200
        for number in range(GUESSES):
            await ask(guard, f"guess {number}")
        # A comparison with what is remembered would be as fast as the network.
        assert await ask(guard, "right") == 429
        assert await ask(guard, "right", peer="198.51.100.1") == 200

    guarded(test)


def test_a_connections_proof_is_worth_what_its_password_is_worth() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        proof = await guard.judge(header("a", "right"), "192.0.2.1", b"")
        assert isinstance(proof, bytes)
        for number in range(GUESSES + 1):
            await ask(guard, f"guess {number}")
        assert await ask(guard, "right", before=proof) == 200
        assert await ask(guard, "wrong", before=proof) == 429
        guard.use({"a": "changed"})
        assert await ask(guard, "right", before=proof) == 429
        guard.use({"b": "right"})
        assert await ask(guard, "right", before=proof) == 429
        assert await ask(guard, "right", before=proof, peer="198.51.100.9") == 401

    guarded(test)


def test_many_who_show_the_same_wait_for_one_comparison() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        compare.open.clear()
        asked = [asyncio.create_task(ask(guard, "right", peer=f"192.0.2.{number % 5}")) for number in range(100)]
        await until(lambda: bool(compare.compared))
        asked[0].cancel()
        compare.open.set()
        assert await asyncio.gather(*asked[1:]) == [200] * 99
        assert len(compare.compared) == 1

    guarded(test)


def test_comparisons_that_wait_are_few_for_an_address_and_for_all() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        compare.open.clear()
        waiting: list[asyncio.Task[int]] = []
        for number in range(WAITING):
            peer = f"192.0.2.{number // AT_ONCE}"
            waiting.append(asyncio.create_task(ask(guard, f"guess {number}", peer=peer)))
        await until(lambda: bool(compare.compared))
        found = await guard.judge(header("a", "one more"), "192.0.2.0", b"")
        assert isinstance(found, Refusal)
        assert (found.status, found.why, found.headers) == (503, "busy", {"Retry-After": "2"})
        assert await ask(guard, "one more", peer="198.51.100.1") == 503
        compare.open.set()
        assert await asyncio.gather(*waiting) == [401] * WAITING
        # Who was sent away has used up no guess, and is let in now.
        assert await ask(guard, "right", peer="198.51.100.1") == 200

    guarded(test)


def test_guesses_at_once_are_counted_before_they_are_compared() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        statuses = []
        for number in range(GUESSES * 2):
            statuses += await asyncio.gather(*(ask(guard, f"guess {number} {part}") for part in range(AT_ONCE)))
        assert statuses.count(401) == GUESSES
        assert statuses.count(200) == 0

    guarded(test)


def test_comparisons_step_back_behind_everything_else() -> None:
    nice: list[int] = []

    def compare(password: bytes, kept: bytes) -> bool:
        nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return False

    async def test() -> None:
        guard = Guard(Clock(), compare)
        guard.use({"a": "right"})
        await ask(guard, "x")
        await guard.close()

    before = os.getpriority(os.PRIO_PROCESS, 0)
    run(test)
    assert nice == [min(19, credentials.NICE)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_what_is_remembered_is_bounded() -> None:
    async def test(guard: Guard, clock: Clock, compare: Comparer) -> None:
        for number in range(REMEMBERED + 50):
            assert await ask(guard, f"guess {number}", peer=f"10.0.{number // 250}.{number % 250}") == 401
        assert len(guard._bad) == REMEMBERED
        assert len(guard._good) == 0
        assert (len(guard._checks), len(guard._checking)) == (0, 0)
        await ask(guard, "right", peer="10.9.9.9")
        assert len(guard._good) == 1

    guarded(test)


def test_addresses_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MAX_SOURCES", 10)
    found = Buckets(2, 1)
    for number in range(100):
        found.of(str(number), 0.0).take(0.0)
    assert len(found) == 10
    assert found.of("99", 0.0).take(0.0)
    assert not found.of("99", 0.0).take(0.0)


def test_a_password_does_not_stand_in_any_readable_form() -> None:
    pair = parse(header("user", "hunter2"))
    assert pair is not None
    assert "hunter2" not in repr(pair)
    assert "user" not in repr(pair)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (header("a", "b"), (b"a", b"b")),
        (header("a", ""), (b"a", b"")),
        (header("", "b"), (b"", b"b")),
        (header("a", "b:c"), (b"a", b"b:c")),
        (["basic   YTpi  "], (b"a", b"b")),
        (["Basic YTpi", "Basic YTpi"], None),
        (["Basic"], None),
        (["Basic YQ=="], None),
        (["Basic Y T p i"], None),
        (["Basic \udcff"], None),
        (["Digest YTpi"], None),
        ([], None),
    ],
)
def test_the_header_is_read_as_rfc_7617_says(headers: list[str], expected: tuple[bytes, bytes] | None) -> None:
    found = parse(headers)
    assert (found and (found.user, found.password)) == expected


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "unix"),
    ],
)
def test_whom_an_address_belongs_to(peer: str, expected: str) -> None:
    assert source(peer) == expected


def test_a_bucket_gives_what_it_gets() -> None:
    bucket = Bucket(2, 0.5, 0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.wait(0.0) == pytest.approx(2.0)
    assert bucket.wait(1.0) == pytest.approx(1.0)
    assert bucket.take(2.0)
    bucket.give_back()
    assert bucket.take(2.0)
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]
