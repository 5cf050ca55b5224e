"""What is served in each world, as others read it: two parsers, promtool, and the tables that say what may be there."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import collectors.nvidia
from exporter.negotiation import Format
from tests.e2e.agent import parse
from tests.e2e.conftest import Exposed
from tests.e2e.worlds import WITHOUT_DEVICES, WORLDS

pytestmark = pytest.mark.gcc

World = Callable[[str], Exposed]


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    """The raw series that are documented, by name."""
    text = (Path(collectors.nvidia.__file__).parent / "series.toml").read_text()
    return {series["name"]: series for series in tomllib.loads(text)["series"]}


@pytest.mark.parametrize("world", WORLDS)
def test_both_formats_say_the_same_and_no_series_twice(exposed: World, world: str) -> None:
    openmetrics = parse(exposed(world).openmetrics)
    text = parse(exposed(world).text, Format.TEXT)
    devices = [
        # The parser of the text format lets each counter's name end in _total.
        {
            (sample.name.removesuffix("_total"), tuple(sorted(sample.labels.items())))
            for sample in seen.samples
            if not sample.name.startswith(("accel_exporter_", "process_"))
        }
        for seen in (openmetrics, text)
    ]
    assert devices[0] == devices[1]
    assert any(name == "accel_info" for name, _ in devices[0]) == (world not in WITHOUT_DEVICES)


@pytest.mark.prometheus
@pytest.mark.parametrize("world", WORLDS)
def test_promtool_finds_nothing_wrong_with_the_common_schema(exposed: World, world: str) -> None:
    """Raw names are the vendor's, whose style is not ours: they are left out."""
    body = exposed(world).common_text
    assert not {name for name in parse(body, Format.TEXT).names if not name.startswith(("accel_", "process_"))}
    result = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.parametrize("world", WORLDS)
def test_raw_series_are_those_of_the_table(exposed: World, table: dict[str, Any], world: str) -> None:
    raw = [sample for sample in exposed(world).raw.samples if sample.name.startswith(("DCGM_", "nvml_"))]
    identity = {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"}
    instance = {"GPU_I_PROFILE", "GPU_I_ID"}
    for sample in raw:
        series = table[sample.name]
        further = sample.labels.keys() - identity - instance
        assert identity <= sample.labels.keys(), sample
        assert (sample.labels.keys() & instance) in (set(), instance), sample
        assert further <= set(series.get("labels", ())), sample
        proper = series["type"] == "gauge" or sample.name.endswith("_total")
        assert sample.type == (series["type"] if proper else "unknown"), sample


def test_every_native_series_is_served_in_some_world(exposed: World, table: dict[str, Any]) -> None:
    """The others come through DCGM or through the bridge alone, whose tests have them."""
    seen = {name for world in WORLDS for name in exposed(world).raw.names}
    native = {
        name for name, series in table.items() if "native" in series and "nvml" in series.get("sources", ("nvml",))
    }
    assert sorted(native - seen) == []
    assert sorted(seen & (table.keys() - native)) == []
