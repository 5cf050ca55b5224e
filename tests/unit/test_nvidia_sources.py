"""The parts of the NVIDIA collector that need no driver: kernel log, counting, arithmetic, return codes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.nvidia import codes, kernel_xids, partitions, picks, processes, xid
from collectors.nvidia.binding import NvmlFailure
from collectors.nvidia.ledger import DeviceLostError, DriverGoneError, Ledger
from collectors.nvidia.rates import Rates, dcgm_megabytes
from collectors.nvidia.sources import Pick

NVIDIA = Path(__file__).parents[2] / "collectors" / "nvidia"


# The kernel's log


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "3,1410,5120000000,-;NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', GPU has fallen off the bus.",
            kernel_xids.KernelXid(pci=(0, 0x1A, 0), xid=79, uptime=5120.0),
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics Exception",
            kernel_xids.KernelXid(pci=(0, 0x3B, 0), xid=13, gi=1, ci=2),
        ),
        (
            "6,1,2500000,c,caller=T7;NVRM: Xid (PCI:000f:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel",
            kernel_xids.KernelXid(pci=(15, 1, 0), xid=94, gi=5, uptime=2.5),
        ),
        (
            "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout",
            kernel_xids.KernelXid(pci=(0, 0x9B, 0), xid=119),
        ),
        ("NVRM: GPU at PCI:0000:9b:00: GPU-d70eda0c-1173-da78-c2d4-8f423563b8f9", None),
        ("3,1,2,-;usb 1-1: NVRM-like text Xid (PCI:0000:1a:00): 79", None),
        ("", None),
    ],
    ids=["record", "compute instance", "GPU instance", "dmesg", "other NVRM line", "not the driver", "empty"],
)
def test_an_xid_line_tells_gpu_code_and_instance(line: str, expected: kernel_xids.KernelXid | None) -> None:
    assert kernel_xids.parse(line) == expected


@given(st.text())
def test_no_text_of_the_kernel_breaks_the_parser(text: str) -> None:
    found = kernel_xids.parse(text)
    assert found is None or "Xid" in text


# Counting


def test_the_same_event_of_the_other_source_is_no_new_one() -> None:
    twins = xid.Twins()
    twins.next_drain()
    assert twins.is_new("GPU-a", 79, "nvml", 100.0)
    assert not twins.is_new("GPU-a", 79, "kmsg", 103.0)
    assert twins.is_new("GPU-a", 79, "kmsg", 104.0), "the first pair is used up"


def test_another_gpu_another_code_and_a_later_time_are_new_events() -> None:
    twins = xid.Twins()
    twins.next_drain()
    assert twins.is_new("GPU-a", 79, "nvml", 100.0)
    assert twins.is_new("GPU-b", 79, "kmsg", 100.0)
    assert twins.is_new("GPU-a", 48, "kmsg", 100.0)
    twins.next_drain()
    twins.next_drain()
    assert twins.is_new("GPU-a", 79, "kmsg", 100.0 + xid.SAME_EVENT + 1)


def test_sources_that_are_read_seldom_may_be_one_read_apart() -> None:
    twins = xid.Twins()
    twins.next_drain()
    assert twins.is_new("GPU-a", 79, "kmsg", 100.0)
    twins.next_drain()
    assert not twins.is_new("GPU-a", 79, "nvml", 160.0)


def test_a_flood_of_xids_is_told_apart_in_bounded_time_and_memory() -> None:
    twins = xid.Twins()
    began = time.process_time()
    for drain in range(10):
        twins.next_drain()
        for number in range(2000):
            assert twins.is_new("GPU-a", 10_000 * drain + number, "kmsg", 100.0 + drain)
            assert twins.is_new("GPU-a", 7, "kmsg", 100.0 + drain)
    # To look at all that are remembered, for each event, takes a minute.
    assert time.process_time() - began < 3
    assert len(twins._single) <= 4096
    assert not twins.is_new("GPU-a", 90_001, "nvml", 110.0)
    assert not twins.is_new("GPU-a", 7, "nvml", 110.0)


def test_a_window_counts_by_code_and_forgets() -> None:
    window = xid.Window(10.0)
    for at, code in ((0.0, 31), (4.0, 79), (5.0, 31)):
        window.add("GPU-a", code, at)
    assert window.counts("GPU-a", 9.0) == {31: 2, 79: 1}
    assert window.counts("GPU-a", 10.5) == {31: 1, 79: 1}
    assert window.counts("GPU-a", 15.5) == {}
    assert window.counts("GPU-b", 9.0) == {}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "No Error"), (79, "GPU has fallen off the bus"), (13, "Graphics Engine Exception"), (5, "Unused"),
        (70, "CE3: Unknown Error"), (108, "Reserved"), (118, "Display Pixel Pipeline Error"), (173, "Unknown Error"),
    ],
)  # fmt: skip
def test_an_xid_has_the_text_of_dcgm_exporter(code: int, text: str) -> None:
    assert xid.message(xid.messages(NVIDIA / "faults.toml"), code) == text


def test_a_missing_fault_table_leaves_xids_without_text(tmp_path: Path) -> None:
    assert xid.message(xid.messages(tmp_path / "faults.toml"), 79) == "Unknown Error"


# Arithmetic


def test_a_rate_needs_two_values_and_a_counter_that_did_not_go_back() -> None:
    rates = Rates()
    assert rates.per_second("a", 1_000, 10.0) is None
    assert rates.per_second("a", 6_000, 12.0) == 2_500.0
    assert rates.per_second("a", 500, 14.0) is None
    assert rates.per_second("a", 1_500, 16.0) == 500.0
    assert rates.per_second("b", 1, 16.0) is None


def test_a_rate_over_no_time_keeps_the_older_value() -> None:
    rates = Rates()
    rates.per_second("a", 0, 10.0)
    assert rates.per_second("a", 10, 10.001) is None
    assert rates.per_second("a", 100, 11.0) == 100.0


def test_link_bandwidth_divides_kibibytes_by_a_thousand_and_truncates() -> None:
    assert dcgm_megabytes(25_999.9) == 25
    assert isinstance(dcgm_megabytes(25_999.9), int)


@pytest.mark.parametrize(
    ("code", "ratio"),
    [(0, 0.0), (1 << 8 | 15, 1e-15), (9 << 8 | 7, 9e-7), (15 << 8 | 255, 1.5e-254), (0xF000 | 2 << 8 | 1, 0.2)],
)
def test_a_bit_error_rate_has_four_bits_of_mantissa_and_eight_of_exponent(code: int, ratio: float) -> None:
    assert picks.link_error_rate(code) == pytest.approx(ratio, rel=1e-12)


@pytest.mark.parametrize(
    ("pick", "answer", "value"),
    [
        (picks.integer, 0xFFFFFFFF, None),
        (picks.integer, 1980, 1980),
        (picks.counter, 0xFFFFFFFFFFFFFFFF, None),
        (picks.counter, 0xFFFFFFFF, 0xFFFFFFFF),
        (picks.milliwatts, 68_412, 68.412),
        (picks.milliwatts, 0xFFFFFFFF, None),
        (picks.temperature, 200, 200),
        (picks.temperature, 201, None),
        (picks.memory_temperature, 0, None),
        (picks.margin, -8, -8),
        (picks.margin, 0xFFFFFFF8, -8),
        (picks.kilobytes_to_bytes, 1_000, 1_000_000),
    ],
)
def test_what_the_driver_says_becomes_a_value_or_nothing(pick: Pick, answer: int, value: float | None) -> None:
    assert pick(answer) == value


@pytest.mark.parametrize(
    ("supported", "features", "value"),
    [(0, [], 0), (1, [(1, 1)], 1), (1, [(1, 0)], 0), (1, [(2, 1), (1, 1)], 1), (1, [(2, 1)], None), (1, [], None)],
)
def test_the_license_is_that_of_the_vgpu_feature(
    supported: int, features: list[tuple[int, int]], value: int | None
) -> None:
    entries = [SimpleNamespace(featureCode=code, featureState=state) for code, state in features]
    answer = SimpleNamespace(
        isGridLicenseSupported=supported, licensableFeaturesCount=len(entries), gridLicensableFeatures=entries
    )
    assert picks.vgpu_license(answer) == value


def test_used_memory_is_a_share_of_what_is_not_reserved() -> None:
    assert picks.used_ratio(SimpleNamespace(total=100, reserved=20, used=40)) == 0.5
    assert picks.used_ratio(SimpleNamespace(total=100, used=40)) == 0.4
    assert picks.used_ratio(SimpleNamespace(total=0, used=0)) is None


def test_a_fabric_that_completed_with_an_error_failed() -> None:
    assert picks.fabric_status(SimpleNamespace(state=3, status=0)) == 3
    assert picks.fabric_status(SimpleNamespace(state=3, status=999)) == 4
    assert picks.fabric_status(SimpleNamespace(state=2, status=0)) == 2
    assert picks.fabric_status(SimpleNamespace(state=4, status=0)) is None, "NVML knows no such state"


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [(3, 0, 0), (3, 3, -6), (3, 15, -18), (3, 999, -8), (3, 77, -8), (2, 0, None), (1, 999, None)],
)
def test_why_a_gpu_is_in_no_fabric_is_told_by_dcgms_code(state: int, status: int, code: int | None) -> None:
    assert picks.fabric_error(SimpleNamespace(state=state, status=status)) == code


def test_the_sms_of_an_instance_are_known_where_one_compute_instance_has_them_all() -> None:
    def attributes(computes: int) -> SimpleNamespace:
        return SimpleNamespace(multiprocessorCount=60, gpuInstanceSliceCount=3, computeInstanceSliceCount=computes)

    assert picks.instance_units(attributes(3)) == 60
    assert picks.instance_units(attributes(1)) is None


# Names and layouts


def test_a_mig_device_is_named_as_the_dra_driver_names_it() -> None:
    instance = partitions.Instance(gi=2, profile="2g.47gb", profile_id=14, placement=0, computes=())
    assert partitions.dra_name(1, instance) == "gpu-1-mig-2g47gb-14-0"
    media = partitions.Instance(gi=7, profile="1g.10gb+me", profile_id=20, placement=6, computes=())
    assert partitions.dra_name(0, media) == "gpu-0-mig-1g10gb-me-20-6"


@pytest.mark.parametrize(
    ("symbols", "wide"),
    [
        (set(), False),
        ({"nvmlDeviceGetConfComputeMemSizeInfo"}, True),
        ({"nvmlDeviceGetConfComputeMemSizeInfo", "nvmlDeviceGetRunningProcessDetailList"}, False),
        ({"nvmlDeviceGetRunningProcessDetailList"}, False),
    ],
)
def test_wide_process_records_are_told_by_two_symbols(symbols: set[str], wide: bool) -> None:
    assert processes.has_wide_records(symbols.__contains__) is wide


# Return codes


def test_a_lost_device_and_a_driver_that_is_gone_end_the_reading() -> None:
    ledger = Ledger()
    for code in (15, 16):
        with pytest.raises(DeviceLostError):
            ledger.failed(0, "power", failure(code))
    for code in (1, 9, 18):
        with pytest.raises(DriverGoneError):
            ledger.failed(0, "power", failure(code))


@pytest.mark.parametrize(
    ("code", "skipped", "kinds"),
    [(3, True, []), (13, True, []), (25, True, []), (26, True, []), (22, True, []), (2, True, []),
     (4, True, ["permission"]), (21, False, []), (27, False, []), (6, False, []),
     (10, False, ["transient"]), (20, False, ["transient"]), (999, False, ["transient"]), (77, False, ["transient"])],
)  # fmt: skip
def test_each_code_has_its_consequence(code: int, skipped: bool, kinds: list[str]) -> None:
    ledger = Ledger()
    ledger.failed(3, "power", failure(code))
    assert ledger.skips(3, "power") is skipped
    assert not ledger.skips(2, "power")
    assert [(error.device, error.kind) for error in ledger.take_errors()] == [(3, kind) for kind in kinds]
    assert ledger.take_errors() == ()


def failure(code: int) -> NvmlFailure:
    return NvmlFailure(code, "nvmlDeviceGetPowerUsage")


def test_a_flood_of_errors_is_cut() -> None:
    ledger = Ledger()
    for _ in range(1000):
        ledger.report(0, "transient", "again")
    assert len(ledger.take_errors()) == 100


def test_every_code_that_is_judged_has_a_name() -> None:
    for code in (1, 2, 3, 4, 6, 9, 13, 15, 16, 18, 21, 22, 25, 26, 27, 28):
        assert "unlisted" not in codes.name(code)
    assert codes.name(1234) == "unlisted error (1234)"
