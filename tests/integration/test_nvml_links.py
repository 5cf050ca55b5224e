"""What the NVIDIA collector reads of links between GPUs, in sums and one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.nvml import Installation, Scenario, install, scenarios
from tests.fakes.nvml.gpus import nvlink5_counter
from tests.integration.collector_child import Answer
from tests.integration.nvml_child import Child, second_sample, settings

pytestmark = pytest.mark.gcc

MIB = 1 << 20
DEV = "DCGM_FI_DEV_"
PROF = "DCGM_FI_PROF_"


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[Scenario], Installation]:
    return lambda scenario: install(tmp_path / "nvml", scenario)


def test_link_bandwidth_is_a_rate_with_dcgms_arithmetic(fake: Callable[[Scenario], Installation]) -> None:
    with Child(fake(scenarios.h100(1)), settings()) as child:
        child.discover()
        first = child.sample()
        assert first.readings(DEV + "NVLINK_BANDWIDTH_TOTAL") == []
        time.sleep(0.5)
        second = child.sample()
    # Link n sends n+1 and receives 2(n+1) MiB/s; DCGM divides KiB/s by 1000.
    kib = sum(3 * 1024 * (n + 1) for n in range(18))
    value = second.value(DEV + "NVLINK_BANDWIDTH_TOTAL")
    assert isinstance(value, int)
    assert value == pytest.approx(kib / 1000, rel=0.05)
    assert second.value(DEV + "NVLINK_TX_BANDWIDTH_TOTAL") == pytest.approx(kib / 3 / 1000, rel=0.05)
    assert second.value(DEV + "NVLINK_RX_BANDWIDTH_L17") == pytest.approx(2 * 18 * 1024 / 1000, rel=0.1)


def test_link_errors_are_summed_where_the_driver_gives_them_by_link_only(
    fake: Callable[[Scenario], Installation],
) -> None:
    gone = ["field.38", "field.52", "field.161", "field.162", "field.163"]
    by_link = {f"field.161.{link}": f"ull:{link * link}" for link in range(18)}
    scenario = scenarios.h100(1).without_keys("gpu 0", gone).with_keys("gpu 0", {**by_link, "field.162.all": "ull:5"})
    answer = second_sample(fake(scenario))
    assert answer.value(DEV + "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL") == sum(range(18))
    assert answer.value(DEV + "NVLINK_REPLAY_ERROR_COUNT_TOTAL") == sum(range(18))
    assert answer.value(DEV + "NVLINK_ERROR_DL_REPLAY") == sum(link * link for link in range(18))
    assert answer.value(DEV + "NVLINK_ERROR_DL_RECOVERY") == 5
    assert answer.readings(DEV + "NVLINK_ERROR_DL_CRC") == []


def test_blackwell_links_are_read_as_sums_of_the_new_counters(fake: Callable[[Scenario], Installation]) -> None:
    scenario = scenarios.b200(2)
    scenario = scenario.with_keys(
        "gpu 0", {"field.220.all": f"ull:{1 << 8 | 15}", "field.222.all": f"ull:{3 << 8 | 12}"}
    )
    answer = second_sample(fake(scenario))
    for i in range(2):
        counters = {"RX_PACKETS": 203, "RX_BYTES": 204}
        expected = {
            f"{DEV}NVLINK_COUNT_{name}": sum((i + 1) * 10**12 + field * 10**9 + link for link in range(18))
            for name, field in counters.items()
        }
        expected |= {
            f"{DEV}NVLINK_COUNT_{name}": sum(i + link for link in range(18))
            for name in ("TX_DISCARDS", "EFFECTIVE_ERRORS")
        }
        expected[f"{DEV}NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS"] = 0
        assert {series: answer.value(series, i) for series in expected} == expected
        assert answer.readings(DEV + "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", i) == []
        assert answer.readings(DEV + "NVLINK_BANDWIDTH_TOTAL", i) == []
    assert answer.value(DEV + "NVLINK_COUNT_EFFECTIVE_BER") == 1 << 8 | 15
    assert answer.value(DEV + "NVLINK_COUNT_EFFECTIVE_BER_FLOAT") == pytest.approx(1e-15)
    assert answer.value(DEV + "NVLINK_COUNT_SYMBOL_BER_FLOAT") == pytest.approx(3e-12)
    assert answer.readings(DEV + "NVLINK_COUNT_SYMBOL_BER", 1) == []
    assert answer.value(DEV + "MEMORY_UNREPAIRABLE_FLAG") == 0
    assert answer.value(DEV + "FABRIC_CLIQUE_ID") == 7


def test_link_counters_are_never_asked_for_together_with_ecc(fake: Callable[[Scenario], Installation]) -> None:
    installation = fake(scenarios.b200(1))
    second_sample(installation)
    asked = [call.detail for call in installation.calls() if call.function == "nvmlDeviceGetFieldValues"]
    sets = [{int(field.split(".")[0]) for field in detail.split(",")} for detail in asked]
    assert sets
    assert not [ids for ids in sets if ids & {3, 4, 5, 6} and ids & set(range(201, 223))]
    assert max(len(ids) for ids in sets) <= 16


def test_grace_blackwell_gives_its_c2c_links(fake: Callable[[Scenario], Installation]) -> None:
    answer = second_sample(fake(scenarios.b200(1, grace=True)))
    expected = {
        DEV + "C2C_LINK_COUNT": 14,
        DEV + "C2C_LINK_STATUS": 1,
        DEV + "C2C_MAX_BANDWIDTH": 44712,
        DEV + "C2C_LINK_ERROR_REPLAY": 10,
        PROF + "C2C_TX_ALL_BYTES": 1000 * MIB,
        PROF + "C2C_RX_DATA_BYTES": 1030 * MIB,
    }
    assert {series: answer.value(series) for series in expected} == expected


def test_links_are_told_one_by_one_on_demand(fake: Callable[[Scenario], Installation]) -> None:
    scenario = scenarios.h100(1).with_keys("gpu 0", {"nvlink.5.state": 0})
    wanted = ["nvml_nvlink_link_up", "nvml_nvlink_sent_kibibytes_total", "nvml_nvlink_links_up", "nvml_nvlink_links"]
    answer = second_sample(fake(scenario), wanted={"normal": wanted}, links="each")
    up = {dict(one.labels)["link"]: one.value for one in answer.readings("nvml_nvlink_link_up")}
    assert up == {str(link): int(link != 5) for link in range(18)}
    assert len(answer.readings("nvml_nvlink_sent_kibibytes_total")) == 18
    assert answer.value("nvml_nvlink_links") == 18
    assert answer.value("nvml_nvlink_links_up") == 17


def by_link(answer: Answer, series: str) -> dict[str, int | float]:
    return {dict(one.labels)["nvlink"]: one.value for one in answer.readings(series)}


def test_link_errors_are_told_one_by_one_on_demand(fake: Callable[[Scenario], Installation]) -> None:
    errors = {f"field.161.{link}": f"ull:{3 * link}" for link in range(18) if link != 7}
    scenario = scenarios.h100(1).with_keys("gpu 0", errors | {"field.161.7": "rc:3"})
    answer = second_sample(fake(scenario), links="each", wanted={"normal": LINK_ERRORS})
    assert by_link(answer, DEV + "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL") == {str(link): link for link in range(18)}
    assert by_link(answer, DEV + "NVLINK_REPLAY_ERROR_COUNT_TOTAL") == {str(link): link for link in range(18)}
    assert by_link(answer, DEV + "NVLINK_ERROR_DL_REPLAY") == {str(link): 3 * link for link in range(18) if link != 7}
    assert answer.readings(DEV + "NVLINK_COUNT_RX_ERRORS") == []
    assert answer.sample.errors == []


LINK_ERRORS = [
    DEV + "NVLINK_" + name
    for name in ("CRC_FLIT_ERROR_COUNT_TOTAL", "REPLAY_ERROR_COUNT_TOTAL", "ERROR_DL_REPLAY", "COUNT_RX_ERRORS")
]


def test_blackwells_links_are_told_one_by_one_on_demand(fake: Callable[[Scenario], Installation]) -> None:
    names = {"COUNT_RX_BYTES": 204, "COUNT_RX_ERRORS": 208, "COUNT_TX_DISCARDS": 212, "COUNT_RX_SYMBOL_ERRORS": 221}
    wanted = {"normal": [DEV + "NVLINK_" + name for name in names]}
    answer = second_sample(fake(scenarios.b200(2)), links="each", wanted=wanted)
    for name, field in names.items():
        expected = {str(link): nvlink5_counter(0, field, link) for link in range(18)}
        assert by_link(answer, DEV + "NVLINK_" + name) == expected


def test_peers_are_told_with_their_link_status(fake: Callable[[Scenario], Installation]) -> None:
    scenario = scenarios.h100(3).with_keys("gpu 0", {"p2p.2": 3})
    answer = second_sample(fake(scenario), wanted={"normal": ["DCGM_EXP_P2P_STATUS"]})
    assert {one.labels: one.value for one in answer.readings("DCGM_EXP_P2P_STATUS", 0)} == {
        (("link_status", "OK"), ("peer_gpu", "1")): 0,
        (("link_status", "TopologyNotSupported"), ("peer_gpu", "2")): 3,
    }
