"""The small parts of the DCGM source: blanks, addresses, versions, links, intervals, passes."""

from __future__ import annotations

import struct
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.base import HostPaths, Settings, Unavailable
from collectors.nvidia.dcgm import abi, codes, fields, links, profiling
from collectors.nvidia.dcgm.address import DEFAULTS, Address, candidates, listens, parse
from collectors.nvidia.dcgm.engine import Engine
from collectors.nvidia.dcgm.incidents import error
from collectors.nvidia.dcgm.library import Library, Version, parse_version, understands
from collectors.nvidia.dcgm.pace import Pace
from collectors.nvidia.identity import node_label, pci_address
from tests.integration.dcgm_rig import TABLE, readable

KINDS = ("nothing", "nothing", "unsupported", "permission")


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        (base + step if not isinstance(base, float) else base + float(step), kind)
        for base in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328.0)
        for step, kind in enumerate(KINDS)
    ],
)
def test_a_blank_says_why_there_is_no_value(base: int | float, kind: str) -> None:
    assert abi.blank(base) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<<<NULL>>>", "nothing"),
        ("<<<NOT_FOUND>>>", "nothing"),
        ("<<<NOT_SUPPORTED>>>", "unsupported"),
        ("<<<NOT_PERM>>>", "permission"),
        ("NVIDIA H100", None),
    ],
)
def test_a_text_can_be_blank(text: str, kind: str | None) -> None:
    assert abi.blank(text) == kind


@given(st.integers(-(2**31), 0x7FFFFFEF) | st.integers(0x7FFFFFF4, 0x7FFFFFFFFFFFFFEF))
def test_no_other_integer_is_blank(value: int) -> None:
    assert abi.blank(value) is None


@given(st.floats(allow_nan=False, max_value=140737488355327.0) | st.floats(min_value=140737488355332.0))
def test_no_other_real_number_is_blank(value: float) -> None:
    assert abi.blank(value) is None


@given(st.binary(min_size=32, max_size=32), st.integers(0, 255))
def test_a_record_of_any_bytes_is_read_without_harm(data: bytes, kind: int) -> None:
    value = abi.union(data + bytes(abi.TEXT_SIZE), 0, kind)
    assert value is None or isinstance(value, int | float | str)
    assert (value is None) == (chr(kind) not in "dits")


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (abi.CONNECT, 16),
        (abi.CONNECT_URI, 12),
        (abi.EMBEDDED, 72),
        (abi.VERSION_INFO, 516),
        (abi.ATTRIBUTES, 5220),
        (abi.HIERARCHY, 73480),
        (abi.METRIC_GROUPS, 1376),
        (abi.CPUS, 1160),
        (abi.HEALTH[4], 1069068),
        (abi.HEALTH[3], 66828),
        (abi.LINK_STATUS[3], 5564),
        (abi.LINK_STATUS[4], 14780),
        (abi.LINK_STATUS[5], 17084),
        (abi.VALUE, 4128),
        (abi.PAST_VALUE, 4120),
    ],
)
def test_a_structure_begins_with_its_size_and_number(layout: tuple[int, int], size: int) -> None:
    assert layout[0] == size
    assert layout[1] & 0xFFFFFF == size
    assert struct.unpack_from("=I", abi.structure(layout), 0)[0] == layout[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", Address("tcp", "localhost", 5555)),
        ("10.0.0.7:6000", Address("tcp", "10.0.0.7", 6000)),
        ("tcp://gpu-node:5556", Address("tcp", "gpu-node", 5556)),
        ("[fd00::1]:5555", Address("tcp", "fd00::1", 5555)),
        ("tcp://[fd00::1]", Address("tcp", "fd00::1", 5555)),
        ("/run/nvidia/hostengine", Address("unix", "/run/nvidia/hostengine")),
        ("unix:///run/hostengine", Address("unix", "/run/hostengine")),
        ("vsock://3:5555", Address("vsock", "3", 5555)),
    ],
)
def test_an_address_is_understood_in_each_of_its_forms(text: str, expected: Address) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":5555", "host:", "host:0", "host:65536", "host:port", "a b", "http://host", "unix://relative", "vsock://x:1",
     "host:5555/path", "[::1", "tcp://"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|port"):
        parse(text)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except ValueError:
        return
    assert parse(str(found)) == found


def test_without_an_option_the_engines_own_defaults_are_tried() -> None:
    assert candidates({}) == DEFAULTS == (Address("unix", "/tmp/nv-hostengine"), Address("tcp", "127.0.0.1", 5555))


def test_a_wrong_option_says_what_would_be_right() -> None:
    with pytest.raises(Unavailable, match="dcgm_address") as caught:
        candidates({"dcgm_address": "http://x"})
    assert caught.value.state == "no_driver"


def test_an_address_that_no_socket_can_have_is_one_where_nothing_listens() -> None:
    assert not listens(Address("unix", "/" + "x" * 300), 0.1)
    assert not listens(Address("tcp", "host.invalid"), 0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version:4.5.3;arch:x86_64;buildtype:Release;", (4, 5, 3)),
        ("arch:x86_64;version:3.3.9", (3, 3, 9)),
        ("arch:x86_64;", ()),
        ("", ()),
        ("version:4.x;", ()),
        ("version:;", ()),
    ],
)
def test_a_version_is_the_numbers_of_its_key(text: str, expected: Version) -> None:
    assert parse_version(text) == expected


@pytest.mark.parametrize(
    ("library", "engine", "good"),
    [
        ((4, 6, 0), (4, 6, 0), True),
        ((4, 6, 0), (4, 5, 3), False),
        ((4, 5, 3), (4, 6, 0), True),
        ((4, 5, 3), (4, 2, 0), True),
        ((4, 0, 0), (3, 3, 9), False),
        ((3, 3, 9), (4, 6, 1), True),
        ((3, 3, 9), (3, 1, 0), True),
        ((4, 6, 1), (), True),
        ((), (3, 3, 9), True),
    ],
)
def test_a_library_is_understood_by_engines_of_its_own_requests_and_newer(
    library: Version, engine: Version, good: bool
) -> None:
    assert understands(library, engine) is good


class NoLibrary(Library):
    """Stands where a library is not called."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((4, 3, 0), 1 | 2 << 8 | 5 << 24),
        ((4, 6, 1), 1 | 2 << 8 | 5 << 24),
        ((4, 2, 3), None),
        ((4, 0, 0), None),
        ((3, 3, 9), 1 | 2 << 8 | 5 << 16),
        ((), None),
    ],
)
def test_a_link_has_a_number_by_the_engines_version(version: Version, expected: int | None) -> None:
    engine = Engine(library=NoLibrary(), handle=1, where="", version=version)
    found = links.entity(engine, abi.GPU, 5, 2)
    assert found == (None if expected is None else (abi.LINK, expected))


def test_the_interval_follows_two_periods_that_agree() -> None:
    pace = Pace("normal")
    assert (pace.seconds, pace.note(100.0), pace.note(130.0)) == (5.0, False, False)
    assert (pace.note(160.5), pace.seconds) == (True, 30.5)
    assert [pace.note(now) for now in (191.0, 222.0, 253.0)] == [False] * 3


def test_one_late_sample_changes_nothing() -> None:
    pace = Pace("normal")
    assert not any(pace.note(now) for now in (0.0, 5.0, 10.0, 40.0, 45.0, 50.0))
    assert pace.seconds == 5.0


@given(st.lists(st.floats(0, 1e6, allow_nan=False), max_size=30))
def test_the_interval_stays_within_what_an_engine_takes(steps: list[float]) -> None:
    pace, now = Pace("fast"), 0.0
    for step in steps:
        now += step
        pace.note(now)
        assert 0.1 <= pace.seconds <= 3600


def test_one_pass_takes_the_best_group_of_each_set_of_counters() -> None:
    groups = [(1, frozenset({1001, 1002})), (1, frozenset({1004, 1006, 1007})), (2, frozenset({1009, 1010}))]
    assert profiling.one_pass(groups, [1001, 1004, 1006, 1009]) == {1004, 1006, 1009}
    assert profiling.one_pass(groups, [1001]) == {1001}
    assert profiling.one_pass([], [1001]) == frozenset()
    assert profiling.offered(groups) == {1001, 1002, 1004, 1006, 1007, 1009, 1010}


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (-21, "gone"),
        (codes.FUNCTION_NOT_FOUND, "mismatch"),
        (codes.VERSION_MISMATCH, "mismatch"),
        (-18, "lost"),
        (-19, "lost"),
        (-67, "lost"),
        (-17, "permission"),
        (-29, "permission"),
        (-6, "unsupported"),
        (-33, "unsupported"),
        (-14, "nothing"),
        (-16, "nothing"),
        (-11, "timeout"),
        (-57, "timeout"),
        (-3, "transient"),
        (-1234, "transient"),
    ],
)
def test_each_code_has_a_verdict_and_a_name(code: int, verdict: str) -> None:
    assert codes.judge(code) == verdict
    assert str(code) in codes.name(code)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "DCGM_FR_OK"),
        (13, "DCGM_FR_NVLINK_ERROR_THRESHOLD"),
        (81, "DCGM_FR_UNCONTAINED_ERROR"),
        (120, "DCGM_FR_FALLEN_OFF_BUS"),
        (999, "DCGM_FR_UNKNOWN(999)"),
    ],
)
def test_an_incidents_code_is_spelled_as_in_dcgms_header(code: int, name: str) -> None:
    assert error(code) == name


def test_only_what_dcgm_gives_is_read() -> None:
    names = [row["name"] for row in tomllib.loads(TABLE.read_text())["series"]]
    found = {entry.name: entry.field for entry in fields.entries(TABLE, names)}
    assert found["DCGM_FI_DEV_GPU_TEMP"] == 150
    assert found["DCGM_FI_PROF_SM_ACTIVE"] == 1002
    assert found["DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT"] == 858
    assert not [name for name in found if name.startswith("nvml_")]
    # DCGM has not supported these two for years.
    assert not found.keys() & {"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "DCGM_FI_DEV_PCIE_RX_THROUGHPUT"}
    assert found.keys() <= set(readable())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:1A:00.0", (0, 0x1A, 0)),
        ("0001:ff:1f.0", (1, 255, 31)),
        ("", None),
        ("1A:00.0", None),
        ("x:y:z.0", None),
    ],
)
def test_a_pci_address_is_read_or_is_none(text: str, expected: tuple[int, int, int] | None) -> None:
    assert pci_address(text) == expected


def test_the_node_is_spelled_as_the_profile_says() -> None:
    def label(node: str, profile: str) -> tuple[tuple[str, str], ...]:
        return node_label(Settings(wanted={}, node=node, profile=profile, paths=HostPaths()))

    assert label("a", "default") == (("Hostname", "a"),)
    assert label("a", "hostname-lowercase") == (("hostname", "a"),)
    assert label("", "default") == ()
