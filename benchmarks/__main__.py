"""``python -m benchmarks``: measure, and print one table."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import absent, footprint, growth, otlp, peers, renderer, scaling, scrape
from benchmarks.table import Subject, lines, machine, replaced

Measure = Callable[[argparse.Namespace], Subject]

SUBJECTS: Mapping[str, tuple[str, Measure]] = {
    "renderer": ("writing against prometheus_client", lambda args: renderer.run(quick=args.quick)),
    "otlp": ("encoding for OTLP", lambda args: otlp.run(quick=args.quick)),
    "scrape": ("latency of the real server", lambda args: scrape.run(quick=args.quick)),
    "scaling": ("cost by number of series", lambda args: scaling.run(quick=args.quick)),
    "footprint": ("processor time and memory", lambda args: footprint.run(quick=args.quick, seconds=args.seconds)),
    "peers": (
        "other exporters on the same devices",
        lambda args: peers.run(quick=args.quick, seconds=args.seconds, all_smi=args.all_smi),
    ),
    "absent": ("vendors that are not there", lambda args: absent.run(quick=args.quick, seconds=args.seconds)),
    "growth": ("memory over a day of readings", lambda args: growth.run(quick=args.quick, seconds=args.seconds)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 if every subject was measured, whether its targets are met or not; 1 if one could not be."""
    args = _parser().parse_args(argv)
    if args.seconds is None:
        args.seconds = 5.0 if args.quick else 60.0
    head = f"Measured on {machine()}"
    subjects: list[Subject] = []
    failed = False
    for name in args.only:
        words, measure = SUBJECTS[name]
        print(f"{name}: {words} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            subjects.append(measure(args))
        except (OSError, ValueError, RuntimeError, subprocess.CalledProcessError) as error:
            failed = True
            subjects.append(Subject(words, (), (f"{name} could not be measured: {error}",)))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    text = "\n".join((head + (", quick: too short to compare" if args.quick else ""), "", *lines(subjects)))
    print(text)
    if args.write is not None:
        args.write.write_text(replaced(args.write.read_text(encoding="utf-8"), text), encoding="utf-8")
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = ", ".join(SUBJECTS)
    parser.add_argument("--quick", action="store_true", help="a minute or two: shows that it works")
    parser.add_argument(
        "--only", type=_names, default=tuple(SUBJECTS), metavar="NAME,…", help=f"only these subjects, of {known}"
    )
    parser.add_argument(
        "--seconds", type=_seconds, help="how long each process is watched (default: 60, with --quick 5)"
    )
    parser.add_argument("--all-smi", action="store_true", help="build all-smi with cargo and compare with it, too")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the table into a page, too, in place of the one that it has"
    )
    return parser


def _names(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    unknown = [name for name in found if name not in SUBJECTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(SUBJECTS)}")
    return found


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 86400:
        raise argparse.ArgumentTypeError(f"expected seconds from 1 to 86400, got {text}")
    return found


if __name__ == "__main__":
    sys.exit(main())
