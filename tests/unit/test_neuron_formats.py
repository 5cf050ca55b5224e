"""The driver's texts, and the stream of neuron-monitor's reports."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.neuron import formats, hardware_errors, neuron_ls, sysfs
from collectors.neuron.formats import Cycles, Power
from collectors.neuron.report import decode
from collectors.neuron.stream import NOT_UNDERSTOOD, Splitter
from collectors.neuron.sysfs import Slot
from tests.fakes.neuron.machines import MACHINES, RuntimeData, pe_text, report

NOW = 1719000100.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("POWER_STATUS_VALID,1719000060,3.10,41.27,22.54\n", Power(3.10, 41.27, 22.54)),
        ("POWER_STATUS_VALID,1719000060,0.00,0.00,0.00\n", Power(0, 0, 0)),
        ("POWER_STATUS_INVALID,1719000060,3.10,41.27,22.54\n", None),  # VALID stands in it
        ("POWER_STATUS_NO_DATA,1719000060,0.00,0.00,0.00\n", None),  # zeros that are no readings
        ("POWER_STATUS_MAX,1719000060,3.10,41.27,22.54\n", None),
        ("POWER_STATUS_VALID,1718999979,3.10,41.27,22.54\n", None),  # 121 s old
        ("POWER_STATUS_VALID,1718999981,3.10,41.27,22.54\n", Power(3.10, 41.27, 22.54)),  # 119 s old
        ("POWER_STATUS_VALID,1719000060,3.10,41.27\n", None),
        ("POWER_STATUS_VALID,1719000060,nan,inf,22.54\n", None),
        ("", None),
    ],
)
def test_power_is_taken_only_if_valid_and_new(text: str, expected: Power | None) -> None:
    assert formats.power(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("19fcda00f5ff6eb9\n", "19fcda00f5ff6eb9"),
        ("\n", ""),
        ("0000000000000000\n", ""),
        ("deadbeef12345678\n", ""),
        ("12345678deadbeef\n", ""),
        ("19fcda00f5ff6eb\n", ""),
    ],
)
def test_a_serial_number_that_the_firmware_did_not_tell_is_none(text: str, expected: str) -> None:
    assert formats.serial(text) == expected


def test_rows_of_the_tensor_engine_are_taken_if_complete() -> None:
    text = "xrow_grp,mm_active,wl_active,idle\n0,123456,234,999999\n1,1,2,3\n2,x,2,3\n3,99999999999999999"
    assert formats.cycles(text) == {0: Cycles(123456, 234, 999999), 1: Cycles(1, 2, 3)}
    assert formats.cycles("xrow_grp,mm_active,wl_active,idle\n0,1,2,99999999999999999999\n") == {}


def test_a_row_that_the_drivers_buffer_cut_off_is_left_out_even_if_it_looks_whole() -> None:
    """The buffer has 256 bytes: the last of four rows with long counters loses digits and its newline."""
    text = pe_text(10**17, 10**17, 10**17)[:255]
    assert len(formats.cycles(text)) == 3


def test_a_counter_that_was_read_in_halves_is_mended_by_the_second_read() -> None:
    """One read of the middle counter is 2**32 too low."""
    first = formats.cycles(pe_text(100, 2**33 - 2**32, 7))
    second = formats.cycles(pe_text(101, 2**33 + 5, 8))
    assert formats.untorn(first, second)[0] == Cycles(101, 2**33 + 5, 8)
    assert formats.untorn(second, first)[0] == Cycles(101, 2**33 + 5, 8)


def test_the_matrix_share_is_over_all_groups_that_did_not_go_back() -> None:
    before, now = formats.cycles(pe_text(100, 100, 100)), dict(formats.cycles(pe_text(400, 200, 700)))
    assert formats.matrix_share(before, now) == (4 * 300, 4 * (300 + 100 + 600))
    now[2] = Cycles(5, 5, 5)
    assert formats.matrix_share(before, now) == (3 * 300, 3 * 1000)
    assert formats.matrix_share({}, now) == (0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cc:00.0", "0000:cc:00.0"), ("0000:CC:00.0", "0000:cc:00.0"), ("10000:cc:00.0", "10000:cc:00.0"), ("cc", "")],
)
def test_pci_addresses_have_the_kernels_form(text: str, expected: str) -> None:
    assert formats.pci_address(text) == expected


@pytest.mark.parametrize(
    ("text", "generation"),
    [("16.0 GT/s PCIe", 4), ("8 GT/s", 3), ("32.0 GT/s PCIe\n", 5), ("Unknown", None), ("", None)],
)
def test_a_link_speed_tells_the_generation(text: str, generation: int | None) -> None:
    assert formats.pcie_generation(text) == generation


def test_versions_compare_as_numbers() -> None:
    assert formats.version("2.24.7.0") < (2, 28) < formats.version("2.30.2.0")
    assert formats.version("unknown") == ()


@pytest.mark.parametrize(
    ("path", "slot"),
    [
        ("stats/hardware/mem_ecc_uncorrected", Slot("ecc", "mem_ecc_uncorrected")),
        ("metrics/anything/mem_ecc_uncorrected", Slot("ecc", "mem_ecc_uncorrected")),
        ("stats/power/utilization", Slot("power")),
        ("stats/hardware/health_status/unhealthy_components", Slot("health", "unhealthy_components")),
        ("stats/hardware/health_status/hbm_ue", Slot("health_count", "hbm_ue")),
        ("stats/memory_usage/host_mem/tensors/total", Slot("host", "tensors")),
        ("neuron_core3/stats/memory_usage/device_mem/total", Slot("memory", "", 3)),
        ("neuron_core3/stats/memory_usage/device_mem/tensors/total", Slot("memory", "tensors", 3)),
        ("cores/core3/mem/device_mem/tensors/total", Slot("memory", "tensors", 3)),
        ("neuron_core3/stats/memory_usage/device_mem/peak", Slot("peak", "", 3)),
        ("neuron_core3/stats/memory_usage/device_mem/present", None),  # the size of the last allocation
        ("neuron_core3/stats/memory_usage/host_mem/total", Slot("core_host", "", 3)),
        ("neuron_core0/stats/status/hw_hbm_ue_error/total", Slot("status", "hw_hbm_ue_error", 0)),
        ("neuron_core0/stats/status/infer_timeout/total", Slot("status", "timeout", 0)),
        ("neuron_core0/stats/status/hw_hbm_ue_error/present", None),
        ("neuron_core0/stats/other_info/flop_count/total", Slot("count", "flop_count", 0)),
        ("neuron_core0/stats/other_info/flop_count", Slot("count", "flop_count", 0)),
        ("neuron_core0/stats/new_metric_17/total", None),
        ("neuron_core0/stats/tensor_engine/pe_cntrs", Slot("pe", "", 0)),
        ("info/serial_number", Slot("fact", "serial_number")),
        ("reset", None),
        ("info/notify_delay", None),
        ("power/control", None),
        ("uevent", None),
    ],
)
def test_a_file_is_known_by_its_name_and_its_nearest_folders(path: str, slot: Slot | None) -> None:
    assert sysfs.classify(tuple(path.split("/"))) == slot


LINE = "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR instance-id=i-0abc hostname=h nd-id=3 nc-id=1 serial-num=00000000deadb001 action=TERMINATE_INSTANCE"  # fmt: skip # noqa: E501


@pytest.mark.parametrize("before", ["3,1234,56000000,-;", "[   56.000000] ", "kernel: "])
def test_a_hardware_error_is_read_from_the_kernels_log(before: str) -> None:
    found = hardware_errors.parse(before + LINE)
    assert found is not None
    assert (found.kind, found.device, found.serial) == ("HBM_UNCORRECTABLE_ERROR", 3, "00000000deadb001")
    assert found.uptime == (56.0 if before.startswith("3,") else None)


def test_a_hardware_error_may_lack_every_field() -> None:
    found = hardware_errors.parse("3,1,1,-;NEURON_HW_ERR=DMA_ERROR affecting neuron devices")
    assert found is not None
    assert (found.kind, found.device, found.serial) == ("DMA_ERROR", None, "")
    assert hardware_errors.parse("3,1,1,-;neuron:npid_detach: pid=90193, slot=0") is None


# Reports

TRN1 = MACHINES["trn1"]
REPORT = report(TRN1, [RuntimeData(784315, "535", {0: 1.5}), RuntimeData(784318, "538", {1: 42.5})])
COMPACT = json.dumps(REPORT).encode()


def split(*chunks: bytes, limit: int = 1 << 20) -> tuple[int, int]:
    """How many reports there are in these chunks, and how many malformed pieces."""
    splitter = Splitter(decode, limit)
    found = [one for chunk in chunks for one in splitter.feed(chunk)]
    assert all(one.hardware == decode(COMPACT).hardware for one in found)
    return len(found), splitter.malformed


def test_reports_are_found_however_they_lie_in_the_stream() -> None:
    pretty = json.dumps(REPORT, indent=2).encode()
    assert split(COMPACT + b"\n") == (1, 0)
    assert split(COMPACT + b"\n\n" + pretty + b"\n" + COMPACT + COMPACT + b"\n") == (4, 0)
    every_byte = [bytes([byte]) for byte in COMPACT + b"\n" + pretty + b"\n"]
    assert split(*every_byte) == (2, 0)
    assert split(COMPACT) == (0, 0)


def test_half_a_report_costs_no_other() -> None:
    assert split(COMPACT[: len(COMPACT) // 2] + b"\n" + COMPACT + b"\n") == (1, 1)
    pretty = json.dumps(REPORT, indent=1).encode()
    assert split(pretty[: len(pretty) // 2] + b"\n" + COMPACT + b"\n" + COMPACT + b"\n") == (2, 1)


def test_garbage_between_reports_is_counted_and_dropped() -> None:
    assert split(b"FATA[0000] no driver\n" + COMPACT + b"\n\xff\xfe\x00\n{}\n[1]\n" + COMPACT + b"\n")[0] == 2


def test_a_line_without_end_takes_bounded_memory() -> None:
    chunk = b"x" * 65536
    splitter = Splitter(decode, 1 << 20)
    for _ in range(160):
        assert splitter.feed(chunk) == []
        assert len(splitter._tail) + len(splitter._open) <= (1 << 20) + len(chunk)
    assert splitter.malformed == 1
    assert len(splitter.feed(b"\n" + COMPACT + b"\n")) == 1
    for _ in range(160):
        splitter.feed(b'{"neuron_runtime_data":[\n' + b'{"a":[\n' * 8000)
        assert len(splitter._open) <= (1 << 20) + 65536


@given(
    st.lists(st.binary(max_size=200) | st.sampled_from([COMPACT, b"\n", COMPACT[:40], b"{", b"}", b'"']), max_size=30)
)
def test_no_stream_makes_the_splitter_raise_or_invent_reports(chunks: list[bytes]) -> None:
    splitter = Splitter(decode, 1 << 16)
    found = [one for chunk in chunks for one in splitter.feed(chunk)]
    assert len(found) <= b"".join(chunks).count(b"neuron_runtime_data") + b"".join(chunks).count(b"system_data") + len(
        chunks
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
KEYS = (
    ["neuron_runtime_data"], ["neuron_runtime_data", 0], ["neuron_runtime_data", 0, "report"],
    ["neuron_runtime_data", 0, "report", "neuroncore_counters"],
    ["neuron_runtime_data", 0, "report", "neuroncore_counters", "neuroncores_in_use"],
    ["neuron_runtime_data", 0, "report", "neuroncore_counters", "neuroncores_in_use", "0"],
    ["neuron_runtime_data", 0, "report", "execution_stats", "latency_stats"],
    ["neuron_runtime_data", 0, "report", "execution_stats", "error_summary"],
    ["neuron_runtime_data", 0, "report", "memory_used", "neuron_runtime_used_bytes"],
    ["neuron_runtime_data", 0, "neuron_runtime_tag"], ["neuron_runtime_data", 0, "pid"],
    ["system_data"], ["system_data", "neuron_hw_counters"], ["system_data", "neuron_hw_counters", "neuron_devices"],
    ["system_data", "vcpu_usage", "average_usage"], ["system_data", "memory_info"], ["instance_info"],
    ["neuron_hardware_info"], ["neuron_hardware_info", "neuron_device_count"],
)  # fmt: skip


@given(st.sampled_from(KEYS), json_values)
def test_a_part_of_another_shape_costs_no_other_part(path: list[str | int], value: object) -> None:
    data = json.loads(COMPACT)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    found = None
    # Where the list of runtimes or of groups itself is something else, there is no report.
    with contextlib.suppress(*(NOT_UNDERSTOOD if len(path) == 1 else ())):
        found = decode(json.dumps(data).encode())
    if found is None:
        return
    if path[0] != "instance_info":
        assert dict(found.instance or ())["instance_id"] == "i-0a1b2c3d4e5f60718"
    if path[0] != "neuron_runtime_data":
        assert [runtime.tag for runtime in found.runtimes] == ["535", "538"]
        assert found.runtimes[1].cores is not None
        assert found.runtimes[1].cores[1].utilization == 42.5
    for runtime in found.runtimes:
        for use in (runtime.cores or {}).values():
            assert math.isfinite(use.utilization)
        assert len(runtime.tag) <= 255


def test_what_is_missing_null_or_in_error_is_none_and_told() -> None:
    data = json.loads(COMPACT)
    first, second = data["neuron_runtime_data"]
    first["report"]["neuroncore_counters"]["error"] = "cannot read"
    first["report"]["memory_used"] = None
    del first["report"]["execution_stats"]
    second["error"] = "runtime is gone"
    data["system_data"]["neuron_hw_counters"]["neuron_devices"] = None
    found = decode(json.dumps(data).encode())
    assert [(one.cores, one.memory, one.errors, one.latency) for one in found.runtimes] == [(None,) * 4] * 2
    assert found.ecc is None
    assert found.blind
    assert not found.cores_known
    told = "\n".join(found.problems)
    assert "cannot read" in told
    assert "runtime is gone" in told
    assert "/dev/neuron" in told


def test_an_idle_report_is_no_blind_one() -> None:
    for nothing in (b"[]", b"null"):
        found = decode(b'{"neuron_runtime_data":' + nothing + b',"system_data":null}')
        assert (found.runtimes, found.cores_known, found.blind, found.problems) == ((), True, False, ())


def test_a_process_of_another_container_is_no_trouble() -> None:
    data = json.loads(COMPACT)
    group = data["neuron_runtime_data"][0]["report"]["neuron_runtime_vcpu_usage"]
    group |= {"error": "open /proc/784315/stat: no such file or directory", "vcpu_usage": {"user": 0, "system": 0}}
    found = decode(json.dumps(data).encode())
    assert found.problems == ()
    assert [runtime.vcpu is None for runtime in found.runtimes] == [True, False]


def test_old_spellings_are_understood() -> None:
    old = {
        "runtime_data": [
            {
                "pid": 31961,
                "address": "unix:/run/neuron.sock",
                "report": {
                    "nc_counters": {"neuron_cores": {"0": {"neuroncore_utilization": 12}}, "error": ""},
                    "inference_stats": {"inference_summary": {"completed": 5}, "error": ""},
                },
            }
        ],
        "system_data": {"hw_counters": {"neuron_devices": [{"device_index": 0, "mem_ecc_corrected": 2}], "error": ""}},
        "instance_data": {"instance_id": "i-0a1b2c3d4e5f60718"},
    }
    found = decode(json.dumps(old).encode())
    [runtime] = found.runtimes
    assert runtime.tag == "unix:/run/neuron.sock"
    assert runtime.cores is not None
    assert runtime.cores[0].utilization == 12
    assert runtime.statuses == {"completed": 5}
    assert found.ecc == {0: {"mem_ecc_corrected": 2}}
    assert dict(found.instance or ())["instance_id"] == "i-0a1b2c3d4e5f60718"


def test_logical_cores_tell_of_the_physical_ones_behind_them() -> None:
    data = report(MACHINES["trn2"], [RuntimeData(1, "1", {0: 42}, physical={0: {0: 21.0, 1: 63.0}})])
    [runtime] = decode(json.dumps(data).encode()).runtimes
    assert runtime.cores is not None
    assert runtime.cores[0].physical == {0: 21.0, 1: 63.0}


def test_neuron_ls_is_understood_with_few_or_many_fields() -> None:
    rows = [
        {"neuron_device": 0, "bdf": "cc:00.0", "connected_to": None, "nc_count": 2, "memory_size": 34359738368},
        {
            "neuron_device": 1, "bdf": "0000:CD:00.0", "numa_node": "1", "connected_to": [0, 2], "nc_count": 4,
            "logical_neuroncore_config": 2, "memory_size": 103079215104, "neuroncore_ids": [4, 5, 6, 7],
        },
        {"neuron_device": "x"},
        None,
    ]  # fmt: skip
    found = neuron_ls.parse(json.dumps(rows).encode())
    assert set(found) == {0, 1}
    assert (found[0].bdf, found[0].cores, found[0].lnc, found[0].neighbours) == ("0000:cc:00.0", 2, 0, None)
    assert (found[1].bdf, found[1].numa_node, found[1].lnc, found[1].core_ids) == ("0000:cd:00.0", "1", 2, (4, 5, 6, 7))
    assert found[1].neighbours == 2


@given(st.binary(max_size=300) | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_output_of_neuron_ls_makes_the_parser_raise(text: bytes) -> None:
    neuron_ls.parse(text)


@given(st.text(max_size=300))
def test_no_text_of_the_driver_makes_a_parser_raise(text: str) -> None:
    number = formats.count(text)
    assert number is None or str(number) == text.strip().lstrip("0").rjust(1, "0")
    formats.power(text, NOW)
    formats.cycles(text)
    formats.serial(text)
    formats.components(text)
    formats.pci_address(text)
    formats.pcie_generation(text)
    formats.version(text)
    hardware_errors.parse(text)
