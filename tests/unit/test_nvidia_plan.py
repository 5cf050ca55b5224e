"""The table of the NVIDIA collector's series, and what a group's plan makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.nvidia import fields
from collectors.nvidia.plan import compile_plan
from collectors.nvidia.sources import ALL_LINKS, Call, Field, Gpm
from collectors.nvidia.table import BY_LINK, TABLE
from exporter.catalogue import Catalogue, Series, load

NVIDIA = Path(__file__).parents[2] / "collectors" / "nvidia"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load(NVIDIA, "collectors.nvidia")


def native(catalogue: Catalogue) -> dict[str, Series]:
    """What NVML gives."""
    return {
        series.name: series
        for series in catalogue.series.values()
        if series.native and "nvml" in (series.sources or catalogue.collector.sources)
    }


def test_every_native_series_of_the_catalogue_is_read(catalogue: Catalogue) -> None:
    assert native(catalogue).keys() == set(TABLE) | set(BY_LINK)


def test_levels_agree_with_the_catalogue(catalogue: Catalogue) -> None:
    by_part = {name for name, source in TABLE.items() if isinstance(source, Call | Gpm) and source.level == "part"}
    declared = {name for name, series in native(catalogue).items() if series.level == "part"}
    counted = {name for name in declared if type(TABLE[name]).__name__ == "Special"}
    assert by_part == declared - counted


def test_every_series_of_dcgm_exporters_default_file_is_read() -> None:
    default = (
        "SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER GPU_UTIL "
        "MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED NVLINK_BANDWIDTH_TOTAL "
        "VGPU_LICENSE_STATUS UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE"
    )
    profiling = "GR_ENGINE_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES"
    names = {f"DCGM_FI_DEV_{name}" for name in default.split()} | {f"DCGM_FI_PROF_{name}" for name in profiling.split()}
    assert len(names) == 25
    assert names <= set(TABLE)


@pytest.mark.parametrize(
    ("series", "field"),
    [
        ("POWER_VIOLATION", 74), ("THERMAL_VIOLATION", 75), ("SYNC_BOOST_VIOLATION", 76), ("BOARD_LIMIT_VIOLATION", 77),
        ("LOW_UTIL_VIOLATION", 78), ("RELIABILITY_VIOLATION", 79), ("ECC_SBE_VOL_TOTAL", 3), ("ECC_DBE_VOL_TOTAL", 4),
        ("ECC_SBE_AGG_TOTAL", 5), ("ECC_DBE_AGG_TOTAL", 6), ("CORRECTABLE_REMAPPED_ROWS", 142),
        ("UNCORRECTABLE_REMAPPED_ROWS", 143), ("ROW_REMAP_PENDING", 144), ("ROW_REMAP_FAILURE", 145),
        ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 38), ("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 45),
        ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", 52), ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 59),
        ("NVLINK_COUNT_TX_BYTES", 202), ("NVLINK_COUNT_RX_SYMBOL_ERRORS", 221), ("GET_GPU_RECOVERY_ACTION", 230),
        ("PCIE_COUNT_CORRECTABLE_ERRORS", 173), ("POWER_USAGE_INSTANT", 186), ("C2C_LINK_ERROR_INTR", 231),
    ],
)  # fmt: skip
def test_a_field_value_has_nvmls_number(series: str, field: int) -> None:
    source = TABLE[f"DCGM_FI_DEV_{series}"]
    assert isinstance(source, Field)
    assert source.id == field
    assert (source.scope == ALL_LINKS) is series.startswith("NVLINK_COUNT")


@pytest.mark.parametrize(
    ("series", "metric"),
    [
        ("GR_ENGINE_ACTIVE", 1), ("SM_ACTIVE", 2), ("SM_OCCUPANCY", 3), ("PIPE_INT_ACTIVE", 4),
        ("PIPE_TENSOR_ACTIVE", 5),
        ("PIPE_TENSOR_DFMA_ACTIVE", 6), ("PIPE_TENSOR_HMMA_ACTIVE", 7), ("PIPE_TENSOR_IMMA_ACTIVE", 9),
        ("DRAM_ACTIVE", 10), ("PIPE_FP64_ACTIVE", 11), ("PIPE_FP32_ACTIVE", 12), ("PIPE_FP16_ACTIVE", 13),
        ("PCIE_TX_BYTES", 20), ("PCIE_RX_BYTES", 21), ("NVDEC7_ACTIVE", 37), ("NVJPG0_ACTIVE", 40),
        ("NVOFA1_ACTIVE", 51),
        ("NVLINK_RX_BYTES", 60), ("NVLINK_TX_BYTES", 61), ("NVLINK_L0_RX_BYTES", 62), ("NVLINK_L17_TX_BYTES", 97),
        ("C2C_TX_ALL_BYTES", 100), ("C2C_RX_ALL_BYTES", 101), ("C2C_TX_DATA_BYTES", 102), ("C2C_RX_DATA_BYTES", 103),
        ("HOSTMEM_CACHE_HIT", 160), ("PEERMEM_CACHE_MISS", 163), ("SM_CYCLES_ELAPSED_TOTAL", 248),
        ("PCIE_TX_BYTES_TOTAL", 255), ("PCIE_RX_BYTES_TOTAL", 256), ("FP16_CYCLES_ACTIVE_TOTAL", 260),
    ],
)  # fmt: skip
def test_a_profiling_figure_has_gpms_number(series: str, metric: int) -> None:
    source = TABLE[f"DCGM_FI_PROF_{series}"]
    assert isinstance(source, Gpm)
    assert source.id == metric


def test_a_plan_shares_calls_and_leaves_out_what_is_not_wanted() -> None:
    plan = compile_plan(
        frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_NVSWITCH_POWER_VDD"})
    )
    [shared] = plan.device_calls
    assert {series for series, _ in shared.outputs} == {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"}
    assert (plan.part_calls, plan.batches, plan.device_gpm, plan.specials) == ((), (), (), ())


@given(st.lists(st.builds(Field, st.integers(1, 308), st.just(0), family=st.sampled_from(["", "ecc", "nvlink5"]))))
def test_batches_hold_each_field_once_and_keep_families_apart(wanted: list[Field]) -> None:
    groups = fields.batches(wanted)
    families: dict[tuple[int, int], set[str]] = {}
    for field in wanted:
        families.setdefault((field.id, field.scope), set()).add(field.family)
    assert {key for group in groups for key in group} == set(families)
    assert all(0 < len(group) <= 16 for group in groups)
    for group in groups:
        assert set.intersection(*(families[key] for key in group))


def test_the_collector_imports_nothing_heavy() -> None:
    program = "import sys, collectors.nvidia.nvml; print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = set(output.split())
    assert "pynvml" in loaded
    assert not loaded & {
        "asyncio",
        "aiohttp",
        "prometheus_client",
        "dataclasses",
        "logging",
        "ssl",
        "exporter",
    }


def test_opening_needs_no_driver_and_no_device() -> None:
    program = """
from collectors.base import Settings
from collectors.nvidia import open_collector
open_collector(Settings(wanted={}))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("source", ["auto", "nvml"])
def test_without_the_binding_the_user_is_told_what_to_install(source: str, tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["pynvml"] = None
from collectors.base import Settings, Unavailable
from collectors.nvidia import open_collector
try:
    settings = Settings(wanted={{}}, source={source!r}, options={{"dcgm_address": {str(tmp_path / "engine")!r}}})
    open_collector(settings).discover()
except Unavailable as error:
    print(error.state, error.hint)
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.startswith("no_library ")
    assert "pip install nvidia-ml-py" in output


def test_a_node_without_an_engine_loads_nothing_of_dcgm(tmp_path: Path) -> None:
    program = f"""
import sys
from collectors.base import Settings, Unavailable
from collectors.nvidia import open_collector
try:
    open_collector(Settings(wanted={{}}, options={{"dcgm_address": {str(tmp_path / "engine")!r}}})).discover()
except Unavailable:
    pass
print(" ".join(name for name in sys.modules if name.startswith("collectors.nvidia.dcgm.")))
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["collectors.nvidia.dcgm.address"]
