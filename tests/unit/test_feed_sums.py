"""A common value that is the sum of several raw series of a device."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import collectors
from collectors.base import Device
from exporter.catalogue import CatalogueError, load
from exporter.mapping import how
from exporter.model import GroupSample
from exporter.normalize import make_plan
from tests.acme import FOLDER, Row, device, sample

MIB = 1024 * 1024
VENDORS = Path(collectors.__path__[0])


def values(vendor: str, devices: list[Device], rows: GroupSample, metric: str) -> dict[str, tuple[float, str]]:
    """uuid → the value in base units, and how exact it is."""
    plan = make_plan(load(VENDORS / vendor, vendor), devices, {"normal": rows.layout})
    return {
        output.id.uuid: (output.evaluate(rows.values), output.exactness)
        for output in plan.outputs
        if output.id.metric == metric
    }


def test_dcgm_exporters_defaults_tell_how_much_memory_there_is() -> None:
    """An H100 by default-counters.csv since 4.3.1, one by an older file, and one of which something is missing."""
    used, free, reserved = (f"DCGM_FI_DEV_FB_{what}" for what in ("USED", "FREE", "RESERVED"))
    rows: list[Row] = [(used, 0, 1234), (used, 1, 10), (used, 2, 5)]
    rows += [(free, 0, 79_734), (free, 1, 81_079), (reserved, 0, 591), (reserved, 2, 591)]
    found = values("nvidia", [device("0"), device("1"), device("2")], sample(rows), "accel_memory_total_bytes")
    assert found == {"ACME-0": (81_559 * MIB, "derived"), "ACME-1": (81_089 * MIB, "approximate")}


def test_the_total_that_the_vendor_tells_is_preferred() -> None:
    rows = sample(
        [
            ("DCGM_FI_DEV_FB_USED", 0, 1),
            ("DCGM_FI_DEV_FB_FREE", 0, 2),
            ("DCGM_FI_DEV_FB_RESERVED", 0, 3),
            ("DCGM_FI_DEV_FB_TOTAL", 0, 7),
        ]
    )
    found = values("nvidia", [device("0")], rows, "accel_memory_total_bytes")
    assert found == {"ACME-0": (7 * MIB, "exact")}


def test_what_an_mi200_sent_is_the_sum_over_its_links() -> None:
    """Counters of 32 bytes: six links where they are opened, else two neighbours."""
    rows: list[Row] = [(f"gpu_xgmi_nbr_{link}_tx_thrput", 0, 10**link) for link in range(6)]
    rows += [(f"gpu_xgmi_nbr_{link}_beats_tx", position, 7) for link in range(2) for position in range(2)]
    metric = "accel_interconnect_sent_bytes_total"
    found = values("amd", [device("0"), device("1")], sample(rows), metric)
    assert found == {"ACME-0": (111_111 * 32, "approximate"), "ACME-1": (14 * 32, "approximate")}


SUM = """
[[series]]
name = "acme_memory_free_mib"
type = "gauge"
unit = "UNIT"
level = "part"
help = "Memory that is free."
native = "memory()"
feeds = [
  { metric = "accel_memory_total_bytes", labels = { memory = "device" }, aggregate = "AGGREGATE", plus = ["OTHER"] },
]
"""


def load_with(
    folder: Path, unit: str = "mebibytes", aggregate: str = "sum", other: str = "acme_memory_used_mib"
) -> str:
    shutil.copytree(FOLDER, folder / "acme")
    with (folder / "acme/series.toml").open("a") as file:
        file.write(SUM.replace("UNIT", unit).replace("AGGREGATE", aggregate).replace("OTHER", other))
    return how(load(folder / "acme", "acme").series["acme_memory_free_mib"].feeds[0])


def test_a_reader_of_the_mapping_sees_the_sum(tmp_path: Path) -> None:
    assert load_with(tmp_path) == "sum with acme_memory_used_mib"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"unit": "bytes"}, "another unit"),
        ({"aggregate": "max"}, "aggregate"),
        ({"other": "acme_nothing"}, "'acme_nothing'"),
        ({"other": "acme_link_bytes"}, "another unit, group or shape"),
    ],
)
def test_a_sum_of_what_cannot_be_added_is_a_mistake(tmp_path: Path, wrong: dict[str, str], told: str) -> None:
    with pytest.raises(CatalogueError, match=told):
        load_with(tmp_path, **wrong)


def test_what_is_only_added_is_read_as_well(tmp_path: Path) -> None:
    load_with(tmp_path)
    wanted = load(tmp_path / "acme", "acme").wanted(frozenset(), common=True)
    assert {"acme_memory_free_mib", "acme_memory_used_mib"} <= wanted["normal"]
