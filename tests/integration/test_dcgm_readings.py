"""What the collector makes of an engine's values: each kind of entity, blanks, old values, ratios, intervals."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from collectors.nvidia.dcgm.made import CAPACITY, LINK_UP, LINKS, LINKS_UP
from tests.fakes.dcgm import worlds
from tests.fakes.dcgm.world import CPU_CORE, GPU, LINK, NONE, SWITCH
from tests.fakes.nvml.gpus import pci, uuid
from tests.integration.collector_child import Answer
from tests.integration.dcgm_rig import DEV, NODE, PROF, readable, rig

pytestmark = pytest.mark.gcc

# Field → series, of what each GPU of the H100 world tells.
BY_FIELD = {
    100: "SM_CLOCK", 101: "MEM_CLOCK", 112: "CLOCKS_EVENT_REASONS", 140: "MEMORY_TEMP", 150: "GPU_TEMP",
    155: "POWER_USAGE", 157: "POWER_USAGE_INSTANT", 164: "ENFORCED_POWER_LIMIT", 202: "PCIE_REPLAY_COUNTER",
    203: "GPU_UTIL", 204: "MEM_COPY_UTIL", 206: "ENC_UTIL", 207: "DEC_UTIL", 238: "PCIE_LINK_WIDTH",
    240: "POWER_VIOLATION", 245: "RELIABILITY_VIOLATION", 250: "FB_TOTAL", 251: "FB_FREE", 252: "FB_USED",
    253: "FB_RESERVED", 254: "FB_USED_PERCENT", 300: "ECC_CURRENT", 310: "ECC_SBE_VOL_TOTAL", 312: "ECC_SBE_AGG_TOTAL",
    385: "BANKS_REMAP_ROWS_AVAIL_MAX", 393: "UNCORRECTABLE_REMAPPED_ROWS", 394: "CORRECTABLE_REMAPPED_ROWS",
    395: "ROW_REMAP_FAILURE", 409: "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 449: "NVLINK_BANDWIDTH_TOTAL",
    526: "VGPU_LICENSE_STATUS", 1523: "GET_GPU_RECOVERY_ACTION", 1501: "PCIE_COUNT_CORRECTABLE_ERRORS",
    170: "FABRIC_MANAGER_STATUS",
}  # fmt: skip
RATIOS = {
    1001: "GR_ENGINE_ACTIVE", 1002: "SM_ACTIVE", 1003: "SM_OCCUPANCY", 1004: "PIPE_TENSOR_ACTIVE", 1005: "DRAM_ACTIVE",
    1006: "PIPE_FP64_ACTIVE", 1007: "PIPE_FP32_ACTIVE", 1008: "PIPE_FP16_ACTIVE", 1016: "PIPE_INT_ACTIVE",
}  # fmt: skip


def numbers(answer: Answer, series: str) -> dict[tuple[int, str], int | float]:
    """Device and the value of the first label → value."""
    return {
        (one.device, one.labels[0][1] if one.labels else ""): one.value
        for one in answer.sample.readings
        if one.series == series
    }


def test_every_gpu_is_listed_with_its_facts(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(3)) as (child, _, _):
        devices = child.discover()
    assert [device.index for device in devices] == ["0", "1", "2"]
    second = devices[1]
    assert (second.uuid, second.pci_bus_id) == (uuid(worlds.H100, 1), pci(1))
    assert (second.model, second.serial) == ("NVIDIA H100 80GB HBM3", "1650000000101")
    assert (second.driver_version, second.firmware_version) == ("580.95.05", "96.00.A5.00.01")
    # The minor number is another: what GKE and DRA call the GPU follows it.
    assert second.ids == {
        "index": "1", "uuid": second.uuid, "minor": "0", "device_name": "nvidia0", "dra": "gpu-0",
    }  # fmt: skip
    assert second.raw_labels == (
        ("gpu", "1"),
        ("UUID", second.uuid),
        ("pci_bus_id", pci(1)),
        ("device", "nvidia1"),
        ("modelName", "NVIDIA H100 80GB HBM3"),
        ("Hostname", "node-a"),
        ("DCGM_FI_DRIVER_VERSION", "580.95.05"),
    )


def test_fields_that_a_counters_file_makes_labels_stand_in_its_order(tmp_path: Path) -> None:
    """What DCGM's attributes tell; the others of dcgm-exporter's file are left out."""
    asked = [f"DCGM_FI_DEV_{field}" for field in ("VBIOS_VERSION", "SERIAL", "BRAND", "INFOROM_IMAGE_VER")]
    fields = {"label_fields": [*asked, "DCGM_FI_DEV_ECC_INFOROM_VER", "DCGM_FI_NVML_VERSION"]}
    with rig(tmp_path, worlds.h100(1), options=fields) as (child, _, _):
        [device] = child.discover()
    assert device.raw_labels[6:] == (
        ("DCGM_FI_DEV_BRAND", "Tesla"),
        ("DCGM_FI_DEV_INFOROM_IMAGE_VER", "G520.0200.00.05"),
        ("DCGM_FI_DEV_SERIAL", "1650000000100"),
        ("DCGM_FI_DEV_VBIOS_VERSION", "96.00.A5.00.00"),
        ("DCGM_FI_DRIVER_VERSION", "580.95.05"),
    )


def test_values_come_under_dcgm_exporters_names_in_its_units(tmp_path: Path) -> None:
    world = worlds.h100(2)
    with rig(tmp_path, world) as (child, _, _):
        child.discover()
        answer = child.sample()
    for i in (0, 1):
        for field, series in BY_FIELD.items():
            assert answer.value(DEV + series, i) == pytest.approx(world.value((GPU, i), field)), series
        for field, series in RATIOS.items():
            assert answer.value(PROF + series, i) == pytest.approx(worlds.ratio(field, i)), series
        for field, series in ((1009, "PCIE_TX_BYTES"), (1012, "NVLINK_RX_BYTES")):
            assert answer.value(PROF + series, i) == (field - 1008) * 10**9 + i
        assert answer.value(CAPACITY, i) == worlds.TOTAL
    assert answer.sample.errors == []
    assert answer.sample.lost == []


def test_a_counter_grows_with_the_engines_samples(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1), {"fast": [DEV + "TOTAL_ENERGY_CONSUMPTION"]}) as (child, _, _):
        child.discover()
        first = child.sample("fast").value(DEV + "TOTAL_ENERGY_CONSUMPTION")
        deadline = time.monotonic() + 10
        while (later := child.sample("fast").value(DEV + "TOTAL_ENERGY_CONSUMPTION")) == first:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert isinstance(first, int)
    # One interval of a second at 310.5 W is 310500 mJ.
    assert 0 < later - first < 5 * 310_500


@pytest.mark.parametrize("blank", ["blank", "not_found", "not_supported", "no_permission"])
def test_blanks_are_absent_whatever_their_type(tmp_path: Path, blank: str) -> None:
    world = worlds.h100(2).with_values((GPU, 0), dict.fromkeys((150, 155, 252, 1002), blank))
    with rig(tmp_path, world) as (child, _, _):
        child.discover()
        first, second = child.sample(), child.sample()
    for series in (DEV + "GPU_TEMP", DEV + "POWER_USAGE", DEV + "FB_USED", PROF + "SM_ACTIVE"):
        assert first.values(series, 0) == []
        assert len(first.values(series, 1)) == 1
    denied = [(error.device, error.kind) for error in first.sample.errors]
    assert denied == ([(0, "permission")] * 4 if blank == "no_permission" else [])
    assert second.sample.errors == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [(-14, None), (-16, None), (-6, None), (-13, None), (-17, "permission"), (-3, "transient"), (-57, "timeout")],
)
def test_a_record_with_a_bad_status_is_no_value(tmp_path: Path, status: int, kind: str | None) -> None:
    world = worlds.h100(1).with_values((GPU, 0), {150: 77}, status)
    with rig(tmp_path, world, {"normal": [DEV + "GPU_TEMP", DEV + "SM_CLOCK"]}) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.values(DEV + "GPU_TEMP") == []
    assert answer.value(DEV + "SM_CLOCK") == 1980
    assert [error.kind for error in answer.sample.errors] == ([kind] if kind else [])


def test_sentinels_of_32_bits_in_a_64_bit_field_are_no_value(tmp_path: Path) -> None:
    world = worlds.h100(1).with_values((GPU, 0), {100: 0x7FFFFFF0, 101: 0x7FFFFFF2})
    with rig(tmp_path, world) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.values(DEV + "SM_CLOCK") == answer.values(DEV + "MEM_CLOCK") == []


def test_what_a_series_calls_no_reading_is_absent(tmp_path: Path) -> None:
    world = worlds.h100(1).with_values((GPU, 0), {140: 0, 170: 0})
    with rig(tmp_path, world) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.values(DEV + "MEMORY_TEMP") == answer.values(DEV + "FABRIC_MANAGER_STATUS") == []


def test_a_record_that_the_engine_leaves_out_is_no_value(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(2).with_system(unfilled=150)) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.values(DEV + "GPU_TEMP", 0) == []
    assert answer.value(DEV + "SM_CLOCK", 1) == 1965


def test_switches_and_their_links_are_of_the_node(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.dgx()) as (child, _, _):
        child.discover()
        answer = child.sample()
    temperature = [one for one in answer.sample.readings if one.series == DEV + "NVSWITCH_TEMPERATURE_CURRENT"]
    assert [(one.device, one.value, one.labels) for one in temperature] == [
        (NODE, 40, (("nvswitch", "nvswitch0"), ("Hostname", "node-a"))),
        (NODE, 41, (("nvswitch", "nvswitch1"), ("Hostname", "node-a"))),
    ]
    sent = {
        (dict(one.labels)["nvswitch"], dict(one.labels)["nvlink"]): one.value
        for one in answer.sample.readings
        if one.series == DEV + "NVSWITCH_LINK_THROUGHPUT_TX"
    }
    # Switch 1 has no fourth link.
    assert sent == {
        (f"nvswitch{switch}", str(link)): 100 * switch + link for switch in (0, 1) for link in range(4 - switch)
    }
    # No SXid so far.
    assert answer.values(DEV + "NVSWITCH_FATAL_ERRORS", NODE) == []


def test_an_sxid_stays_however_old_it_is(tmp_path: Path) -> None:
    world = worlds.dgx().with_values((SWITCH, 1), {856: f"20034@{time.time() - 5000:.3f}"})
    with rig(tmp_path, world) as (child, _, _):
        child.discover()
        assert numbers(child.sample(), DEV + "NVSWITCH_FATAL_ERRORS") == {(NODE, "nvswitch1"): 20034}


def test_links_of_gpus_are_counted_and_read_by_link(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.dgx(), links="each") as (child, _, _):
        child.discover()
        answer = child.sample()
    for i in (0, 1):
        assert (answer.value(LINKS, i), answer.value(LINKS_UP, i)) == (4, 3)
        assert [answer.value(LINK_UP, i, link=str(link)) for link in range(4)] == [1, 1, 1, 0]
    rates = numbers(answer, PROF + "NVLINK_RX_BYTES_PER_LINK")
    assert rates == {(i, str(link)): 2000 * i + link for i in (0, 1) for link in range(4)}


def test_without_links_each_no_series_is_by_link(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.dgx()) as (child, _, _):
        child.discover()
        assert numbers(child.sample(), LINK_UP) == {}


@pytest.mark.parametrize(("engine", "majors"), [("4.2.3", (4,)), ("4.4.1", (4,)), ("3.3.9", (3,))])
def test_links_have_other_numbers_in_other_versions(tmp_path: Path, engine: str, majors: tuple[int, ...]) -> None:
    world = worlds.dgx(engine)
    if engine == "3.3.9":
        for switch in (0, 1):
            for link in range(4):
                world = world.with_values((LINK, SWITCH | link << 8 | switch << 16), {780: 100 * switch + link})
    with rig(tmp_path, world, majors=majors) as (child, _, _):
        child.discover()
        answer = child.sample()
    found = numbers(answer, DEV + "NVSWITCH_LINK_THROUGHPUT_TX")
    # From 4.0 to 4.2 the number has no room for the switch.
    assert len(set(found.values())) == (0 if engine == "4.2.3" else 4)
    assert answer.value(LINKS, 0) == 4


def test_grace_cpus_and_cores_are_of_the_node(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.gb200(), profile="hostname-lowercase") as (child, _, _):
        child.discover()
        answer = child.sample()
    assert numbers(answer, DEV + "CPU_TEMP_CURRENT") == {(NODE, "0"): 45.5, (NODE, "1"): 46.5}
    assert numbers(answer, DEV + "CPU_POWER_UTIL_CURRENT") == {(NODE, "0"): 120.5, (NODE, "1"): 121.5}
    cores = [one for one in answer.sample.readings if one.series == DEV + "CPU_UTIL_TOTAL"]
    assert [one.value for one in cores] == pytest.approx([0.25, 0.35, 0.45, 0.55])
    assert [one.labels for one in cores] == [
        (("cpucore", str(core)), ("cpu", str(core // 2)), ("hostname", "node-a")) for core in range(4)
    ]


def test_a_field_of_the_node_is_repeated_on_each_gpu_as_dcgm_exporter_does(tmp_path: Path) -> None:
    world = worlds.h100(2).with_values((NONE, 0), {1503: 2})
    with rig(tmp_path, world) as (child, _, _):
        child.discover()
        assert numbers(child.sample(), "DCGM_FI_IMEX_DAEMON_STATUS") == {(0, ""): 2, (1, ""): 2}


def test_nothing_is_read_that_is_not_wanted(tmp_path: Path) -> None:
    wanted = {"normal": [DEV + "GPU_TEMP"], "slow": [DEV + "FB_TOTAL"]}
    with rig(tmp_path, worlds.gb200(), wanted) as (child, _, dcgm):
        child.discover()
        assert {one.series for one in child.sample().sample.readings} == {DEV + "GPU_TEMP"}
        assert {one.series for one in child.sample("slow").sample.readings} == {DEV + "FB_TOTAL"}
        calls = [call.function for call in dcgm.calls()]
    # One for each group of series, one for Xids.
    assert calls.count("dcgmFieldGroupCreate") == 3
    assert "dcgmHealthSet" not in calls
    assert "dcgmProfGetSupportedMetricGroups" not in calls


def test_a_field_that_the_library_does_not_know_is_left_out(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1).without_fields(150, 1523)) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.values(DEV + "GPU_TEMP") == answer.values(DEV + "GET_GPU_RECOVERY_ACTION") == []
    assert answer.value(DEV + "SM_CLOCK") == 1980
    assert answer.sample.errors == []


def test_a_field_that_only_the_engine_does_not_know_costs_the_others_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1).with_lines(("refused", 150), ("refused", 393))) as (child, _, _):
        child.discover()
        answer = child.sample()
    assert answer.values(DEV + "GPU_TEMP") == []
    missing = {DEV + "GPU_TEMP", DEV + "UNCORRECTABLE_REMAPPED_ROWS"}
    for field, series in BY_FIELD.items():
        assert len(answer.values(DEV + series)) == (0 if DEV + series in missing else 1), field


def test_the_engine_samples_as_often_as_it_is_asked(tmp_path: Path) -> None:
    with rig(tmp_path, worlds.h100(1), {"normal": [DEV + "GPU_TEMP", PROF + "SM_ACTIVE"]}) as (child, _, dcgm):
        child.discover()
        began = len(dcgm.calls())
        deadline = time.monotonic() + 20
        while not (told := [c for c in dcgm.calls()[began:] if c.function == "dcgmWatchFields"]):
            assert time.monotonic() < deadline
            child.sample()
            time.sleep(0.5)
        assert child.sample().value(DEV + "GPU_TEMP") == 50
    # Both field groups, at about the half second that passes between two samples, instead of five.
    assert len(told) == 2
    assert all(400_000 <= int(call.detail.split()[2]) <= 1_500_000 for call in told)


def test_all_that_the_table_promises_is_known_to_the_fake(tmp_path: Path) -> None:
    """So that no test passes because a field is unknown. Those of 4.6.1 are not in 4.6.0."""
    with rig(tmp_path, worlds.h100(1), {"normal": readable()}) as (child, _, dcgm):
        child.discover()
        watched = worlds.fields()
        assert dcgm.calls()
    assert not set(range(1600, 1613)) & watched.keys()
    assert {150, 858, 1100, 1503, 1532, 780} <= watched.keys()


def test_core_ids_are_those_of_the_node(tmp_path: Path) -> None:
    world = worlds.gb200().without_lines("cores").with_lines(("cores", 0, 0, 72), ("cores", 1, 72, 72))
    world = world.with_values((CPU_CORE, 143), {1100: 0.75})
    with rig(tmp_path, world, {"normal": [DEV + "CPU_UTIL_TOTAL"]}) as (child, _, _):
        child.discover()
        last = child.sample().readings(DEV + "CPU_UTIL_TOTAL", NODE)[-1]
    assert (last.labels[:2], last.value) == ((("cpucore", "143"), ("cpu", "1")), 0.75)
