"""The measuring of the benchmarks. No test here looks at how fast anything is."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import measure, table
from benchmarks.__main__ import SUBJECTS, main
from benchmarks.client import BadAnswer, Order, scrape
from benchmarks.processes import free_port, server
from benchmarks.table import Row, Subject

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@contextmanager
def child(code: str) -> Iterator[int]:
    """A Python that has done what the code says, and waits. Its number."""
    command = [sys.executable, "-c", f"{code}\nprint('ready', flush=True)\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process.pid
        finally:
            process.stdin.write("\n")
            process.stdin.close()
            process.wait(20)


def test_memory_grows_by_what_a_process_takes() -> None:
    with child("pass") as small, child(f"kept = bytearray({64 * MIB}); kept[::1024] = b'x' * {64 * 1024}") as big:
        less, more = measure.memory(small), measure.memory(big)

    assert 60 * MIB < more.pss - less.pss < 68 * MIB
    assert 60 * MIB < more.rss - less.rss < 68 * MIB
    assert less.pss < less.rss, "the interpreter's own pages are shared with this test"


def test_the_time_of_a_process_is_that_of_all_its_threads() -> None:
    # Threads that have ended are counted, too.
    code = """
import threading, time
def burn():
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
threads = [threading.Thread(target=burn) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    with child(code) as pid:
        assert measure.cpu_seconds(pid) >= 0.55


def test_a_tree_is_a_process_with_its_children_and_theirs() -> None:
    code = """
import subprocess, sys
leaf = "import sys; print(1, flush=True); sys.stdin.read()"
script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {leaf!r}])"
kept = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
kept.stdout.readline()
"""
    with child(code) as pid:
        found = measure.usage(pid)
        assert measure.descendants(pid) == list(found.cpu)
        assert len(found.cpu) == 3
        assert found.memory.pss == pytest.approx(sum(measure.memory(member).pss for member in found.cpu), rel=0.2)
        assert found.descriptors >= 9, "each has at least its three standard ones"


def test_open_descriptors_are_counted() -> None:
    before = measure.descriptors(os.getpid())
    reading, writing = os.pipe()
    try:
        assert measure.descriptors(os.getpid()) == before + 2
    finally:
        os.close(reading)
        os.close(writing)


def test_the_time_between_counts_new_processes_whole_and_refuses_those_that_ended() -> None:
    nothing = measure.Memory(0, 0)
    before = measure.Usage(nothing, {1: 2.0, 2: 5.0}, 0)

    assert measure.cpu_between(before, measure.Usage(nothing, {1: 2.5, 2: 5.25, 3: 0.125}, 0)) == 0.875
    with pytest.raises(ValueError, match=r"\[2\] ended"):
        measure.cpu_between(before, measure.Usage(nothing, {1: 2.5}, 0))


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 15), (0.05, 15), (0.3, 20), (0.4, 20), (0.5, 35), (0.99, 50), (1.0, 50)]
)
def test_a_percentile_is_one_of_the_values_by_the_nearest_rank(share: float, expected: float) -> None:
    assert measure.percentile([35, 20, 15, 50, 40], share) == expected


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected values"):
        measure.percentile([], 0.5)
    with pytest.raises(ValueError, match="share from 0 to 1"):
        measure.percentile([1.0], 50)


@pytest.mark.parametrize(("values", "expected"), [([3, 1, 2], 2), ([4, 1, 3, 2], 2.5), ([7], 7)])
def test_the_median_is_the_middle(values: list[float], expected: float) -> None:
    assert measure.median(values) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (0.04567, "0.0457"), (1.2345, "1.23"), (56.78, "56.8"), (50_003, "50,003")]
)
def test_numbers_show_three_figures(value: float, expected: str) -> None:
    assert table.number(value) == expected


def test_the_table_says_what_was_met_and_compares() -> None:
    subject = Subject(
        "Something",
        [
            Row(what="fast", value=0.5, unit="ms", below=2.0, beside="other", other=5.0),
            Row(what="slow", value=3.0, unit="ms", below=2.0),
            Row(what="plain", value=4.0, unit=""),
        ],
        ["What to know."],
    )

    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.lines([subject]) if "|" in line]

    assert lines[2:] == [
        ["**Something**", "", "", "", "", ""],
        ["fast", "0.500 ms", "< 2 ms", "yes", "other: 5.00 ms", "10.0×"],
        ["slow", "3.00 ms", "< 2 ms", "NO", "", ""],
        ["plain", "4.00", "", "", "", ""],
    ]
    assert list(table.lines([subject]))[-1] == "- What to know."


def test_a_page_gets_the_new_table_in_place_of_the_old_one() -> None:
    page = f"Above.\n{table.BEGIN}\nold\n{table.END}\nBelow.\n"

    assert table.replaced(page, "new") == f"Above.\n{table.BEGIN}\nnew\n{table.END}\nBelow.\n"
    with pytest.raises(ValueError, match="no place for the table"):
        table.replaced("Above.\n", "new")


@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
def test_the_client_reads_every_answer_to_its_end(gzip: bool, fresh: bool) -> None:
    port, size = free_port(), 1_000_000
    with server((sys.executable, "-m", "benchmarks.bare", str(port), str(size)), port, {}):
        report = scrape(Order(port=port, requests=3, gzip=gzip, fresh=fresh))

    assert len(report.seconds) == 3
    assert min(report.seconds) > 0
    assert report.size == size


def test_the_client_takes_no_error_for_an_answer() -> None:
    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        busy = threading.Thread(target=answer)
        busy.start()
        with pytest.raises(BadAnswer, match="503"):
            scrape(Order(port=listening.getsockname()[1], requests=1))
        busy.join(20)


def test_a_short_run_prints_a_table() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "renderer"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)

    assert done.returncode == 0, done.stderr
    assert "quick: too short to compare" in done.stdout
    assert done.stdout.count("generate_latest: ") == 4, "two formats, each the first time and again"
    assert "growth" not in done.stdout


def test_a_subject_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "renderer,speed"])

    assert "speed: expected some of renderer, " in capsys.readouterr().err


def test_what_cannot_be_measured_is_told_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: argparse.Namespace) -> Subject:
        raise RuntimeError("there is no compiler")

    monkeypatch.setitem(SUBJECTS, "peers", ("peers", broken))
    monkeypatch.setitem(
        SUBJECTS, "growth", ("growth", lambda _: Subject("Growth", [Row(what="all", value=1, unit="%")]))
    )
    assert main(["--quick", "--only", "peers,growth"]) == 1

    printed = capsys.readouterr().out
    assert "- peers could not be measured: there is no compiler" in printed
    assert "1.00 %" in printed
