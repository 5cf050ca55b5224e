"""--raw-counters: a counters file of dcgm-exporter says which raw series are served, and how they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import h100_values as h100
from tests.e2e.agent import TEXT, Agent
from tests.e2e.worlds import place
from tests.fakes.nvml import scenarios
from tests.fakes.nvml.gpus import MIB

pytestmark = pytest.mark.gcc

COUNTERS = """\
# Format
# If line starts with a '#' it is considered a comment
# DCGM FIELD, Prometheus metric type, help message

# Clocks
DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_DEC_UTIL ,          gauge, Decoder utilization (in %).
# Temperature, under its name of DCGM 4.6
DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, GPU temperature, as of DCGM 4.6 (in C).

# Not in the default file
DCGM_FI_DEV_POWER_VIOLATION,       counter, Throttling duration due to power constraints (in us).
DCGM_FI_PROF_SM_ACTIVE,            gauge, The ratio of cycles an SM has at least 1 warp assigned.
# An old type of a rate
DCGM_FI_PROF_PCIE_TX_BYTES,        counter, The rate of data transmitted over the PCIe bus.

DCGM_FI_DRIVER_VERSION,        label, Driver Version
# Of a file for other machines
DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX, counter, Sent.
DCGM_FI_DEV_NO_SUCH_FIELD, gauge, Nothing.
"""


def test_a_counters_file_chooses_names_types_and_helps(tmp_path: Path) -> None:
    counters = tmp_path / "counters.csv"
    counters.write_text(COUNTERS)
    here = place(tmp_path, scenarios.h100(2))
    with Agent.start(tmp_path, here.environ, here.config(), "--raw-counters", str(counters)) as agent:
        seen = agent.wait_for(lambda seen: seen.has("DCGM_FI_PROF_SM_ACTIVE", gpu="1"))
        expected = {
            "DCGM_FI_DEV_SM_CLOCK": 1980 - 15,
            "DCGM_FI_DEV_DEC_UTIL": 11,
            "DCGM_FI_DEV_GPU_TEMP_CELSIUS": 51,
            "DCGM_FI_DEV_POWER_VIOLATION": 1_000_000_001,
            "DCGM_FI_PROF_SM_ACTIVE": 0.71,
            "DCGM_FI_PROF_PCIE_TX_BYTES": 1001 * MIB,
        }
        found = {sample.name: sample for sample in seen.samples if sample.labels.get("gpu") == "1"}
        assert {name: sample.value for name, sample in found.items()} == pytest.approx(expected)
        assert {tuple(sample.labels.items()) for sample in found.values()} == {tuple(h100.raw_labels(1).items())}

        text = agent.get("/metrics?schema=raw", accept=TEXT).body.decode()
        for name, kind, words in (
            ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "gauge", "GPU temperature, as of DCGM 4.6 (in C)."),
            ("DCGM_FI_DEV_POWER_VIOLATION", "counter", "Throttling duration due to power constraints (in us)."),
            ("DCGM_FI_PROF_PCIE_TX_BYTES", "counter", "The rate of data transmitted over the PCIe bus."),
        ):
            assert f"# HELP {name} {words}\n# TYPE {name} {kind}\n" in text

        # The common schema does not depend on which raw series are shown.
        assert seen.value("accel_temperature_celsius", device="1", sensor="die") == 51
        assert seen.value("accel_power_watts", device="1") == 311
        warnings = [event["message"] for event in agent.log if event["level"] == "warning"]
        assert len(warnings) == 1
        assert "DCGM_FI_DEV_NO_SUCH_FIELD" in warnings[0]
        assert (
            f"{counters}:{COUNTERS.splitlines().index('DCGM_FI_DEV_NO_SUCH_FIELD, gauge, Nothing.') + 1}" in warnings[0]
        )


def test_fields_of_the_type_label_stand_on_all_raw_series(tmp_path: Path) -> None:
    """The label fields that dcgm-exporter's own file has as comments. NVML knows no brand as DCGM spells it."""
    fields = "NVML_VERSION DEV_BRAND DEV_SERIAL DEV_OEM_INFOROM_VER DEV_ECC_INFOROM_VER DEV_POWER_INFOROM_VER"
    fields += " DEV_INFOROM_IMAGE_VER DEV_VBIOS_VERSION DRIVER_VERSION"
    lines = ["DCGM_FI_DEV_SM_CLOCK, gauge, Clock.", *(f"DCGM_FI_{field}, label, Text." for field in fields.split())]
    counters = tmp_path / "counters.csv"
    counters.write_text("\n".join(lines))
    here = place(tmp_path, scenarios.h100(1))
    with Agent.start(tmp_path, here.environ, here.config(), "--raw-counters", str(counters)) as agent:
        seen = agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_SM_CLOCK"))
        [labels] = [dict(sample.labels) for sample in seen.samples if sample.name == "DCGM_FI_DEV_SM_CLOCK"]
        assert [event["message"] for event in agent.log if event["level"] == "warning"] == []
    assert {name: text for name, text in labels.items() if name not in h100.raw_labels(0)} == {
        "DCGM_FI_DEV_ECC_INFOROM_VER": "7.16",
        "DCGM_FI_DEV_INFOROM_IMAGE_VER": "G520.0200.00.05",
        "DCGM_FI_DEV_OEM_INFOROM_VER": "2.1",
        "DCGM_FI_DEV_SERIAL": "1650000000100",
        "DCGM_FI_DEV_VBIOS_VERSION": "96.00.A5.00.00",
        "DCGM_FI_NVML_VERSION": "13.580.95.05",
    }


def test_a_counters_file_is_read_again_on_reload(tmp_path: Path) -> None:
    counters = tmp_path / "counters.csv"
    counters.write_text("DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n")
    here = place(tmp_path, scenarios.h100(1))
    config = here.config(schema={"raw_counters": str(counters)})
    with Agent.start(tmp_path, here.environ, config) as agent:
        agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_SM_CLOCK"))
        counters.write_text("DCGM_FI_DEV_PSTATE, gauge, Performance state.\n")
        agent.reload(config)
        agent.wait_for(lambda seen: seen.has("DCGM_FI_DEV_PSTATE") and not seen.has("DCGM_FI_DEV_SM_CLOCK"))
        counters.write_text("DCGM_FI_DEV_PSTATE, gage, Performance state.\n")
        agent.reload(config)
        seen = agent.wait_for(lambda seen: seen.value("accel_exporter_config_reload_success") == 0)
        assert seen.has("DCGM_FI_DEV_PSTATE")
