"""docs/scaling.md tells what a node sends: measured again, on the same simulated nodes."""

from __future__ import annotations

import functools
import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from exporter.schema import METRICS

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/scaling.md"
DEVICES: Final = 8
TOLERANCE: Final = 0.15
"""Numbers come and go with the catalogues; the page is to be right, not exact."""
ROW: Final = re.compile(r"^\| (\w+) \| [^|]+ \| " + r" \| ".join([r"([\d.]+)"] * 7) + r" \|$", flags=re.MULTILINE)


def rows() -> dict[str, list[float]]:
    """Vendor → the figures of its row."""
    table = PAGE.read_text().partition("<!-- Sizes")[2].partition("<!-- End of sizes. -->")[0]
    return {vendor: [float(figure) for figure in figures] for vendor, *figures in ROW.findall(table)}


@functools.cache
def bodies(vendor: str) -> tuple[str, str]:
    """What a node of this vendor sends: the common schema, and the vendor's own series."""
    settings = ["labels.node=false", "simulate.distinct=true", "simulate.scenario=training"]
    command = [sys.executable, "-m", "exporter", "once", "--simulate", f"{vendor}={DEVICES}"]
    done = subprocess.run(
        [*command, *(word for setting in settings for word in ("--set", setting))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    parts: dict[bool, list[str]] = {True: [], False: []}
    for line in done.stdout.splitlines(keepends=True):
        parts[line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith("accel_")].append(line)
    return "".join(parts[True]), "".join(parts[False])


def series_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def sizes(text: str) -> list[float]:
    """KiB of a body, as it is and compressed."""
    return [len(text) / 1024, len(gzip.compress(text.encode(), 6)) / 1024]


def measured(vendor: str) -> list[float]:
    """Common series of each device and of the node, and the sizes; raw series by device, and the sizes."""
    common, raw = bodies(vendor)
    each = sum('uuid="' in line for line in series_of(common)) / DEVICES
    node = len(series_of(common)) - each * DEVICES
    return [each, node, *sizes(common), len(series_of(raw)) / DEVICES, *sizes(raw)]


def test_every_vendor_that_can_be_simulated_is_there() -> None:
    assert set(rows()) == {path.parent.name for path in ROOT.glob("collectors/*/simulation.toml")}


@pytest.mark.parametrize("vendor", rows())
def test_a_vendors_row_is_right(vendor: str) -> None:
    found = measured(vendor)
    row = " | ".join(f"{figure:.0f}" if figure > 20 else f"{figure:.1f}" for figure in found)
    assert found == pytest.approx(rows()[vendor], rel=TOLERANCE, abs=2), f"its row would be: {row}"


def test_the_share_of_series_that_churn_is_right() -> None:
    (share,) = re.findall(r"its marked series \(NVIDIA: (\d+) %\)", PAGE.read_text())
    series = [line for line in series_of(bodies("nvidia")[0]) if 'uuid="' in line]
    marked = [line for line in series if METRICS[line.partition("{")[0]].workload]
    assert 100 * len(marked) / len(series) == pytest.approx(float(share), abs=5)
