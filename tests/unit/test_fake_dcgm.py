"""The fake libdcgm itself: that it is as strict, and as treacherous, as DCGM's headers and sources say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.dcgm import HostEngine, World, install, worlds
from tests.fakes.dcgm.world import GPU

pytestmark = pytest.mark.gcc

PRELUDE = """
import ctypes, json, struct, sys, time
lib = ctypes.CDLL("libdcgm.so." + sys.argv[2])
h, out = ctypes.c_size_t(0), ctypes.c_size_t(0)
def call(name, *arguments):
    return getattr(lib, name)(*arguments)
def made(size, version):
    buffer = ctypes.create_string_buffer(size)
    struct.pack_into("=I", buffer, 0, version)
    return buffer
def connect():
    parameters = made(16, 0x02000010)
    struct.pack_into("=III", parameters, 4, 0, 1000, 1)
    return call("dcgmConnect_v2", sys.argv[1].encode(), parameters, ctypes.byref(h))
def group(*entities):
    call("dcgmGroupCreate", h, 1, b"g", ctypes.byref(out))
    made = out.value
    for kind, entity in entities:
        call("dcgmGroupAddEntity", h, ctypes.c_size_t(made), kind, entity)
    return ctypes.c_size_t(made)
def fields(name, *numbers):
    ids = (ctypes.c_ushort * len(numbers))(*numbers)
    code = call("dcgmFieldGroupCreate", h, len(numbers), ids, name, ctypes.byref(out))
    return ctypes.c_size_t(out.value) if code == 0 else code
def watch(g, f, seconds):
    return call("dcgmWatchFields", h, g, f, ctypes.c_longlong(int(seconds * 1e6)), ctypes.c_double(600), 0)
def read(pairs, numbers, flags=0):
    flat = [word for pair in pairs for word in pair]
    entities, ids = (ctypes.c_uint * len(flat))(*flat), (ctypes.c_ushort * len(numbers))(*numbers)
    records = ctypes.create_string_buffer(4128 * len(pairs) * len(numbers))
    code = call("dcgmEntitiesGetLatestValues", h, entities, len(pairs), ids, len(numbers), flags, records)
    if code:
        return code
    found = []
    for place in range(len(pairs) * len(numbers)):
        _, eg, entity, field, kind, status, at = struct.unpack_from("=IiIHHi4xq", records, place * 4128)
        value = struct.unpack_from("=d" if kind == ord("d") else "=q", records, place * 4128 + 32)[0]
        found.append([eg, entity, field, chr(kind), status, value, at])
    return found
"""


def ask(folder: Path, world: World, program: str, major: int = 4) -> Any:
    """What a program prints that has a connection to the fake, as JSON."""
    fake = install(folder / "dcgm", world, (major,))
    with HostEngine(folder / "engine") as engine:
        result = subprocess.run(
            [sys.executable, "-c", PRELUDE + program, engine.address, str(major)],
            env=fake.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    assert result.stderr == ""
    return json.loads(result.stdout)


LOGIN = "call('dcgmInit'); assert connect() == 0\n"


def test_nothing_works_before_init_and_connect(tmp_path: Path) -> None:
    program = "print(json.dumps([connect(), call('dcgmUpdateAllFields', h, 1)]))"
    assert ask(tmp_path, worlds.h100(1), program) == [-10, -21]


def test_a_value_is_there_once_it_is_watched_and_sampled(tmp_path: Path) -> None:
    program = (
        LOGIN
        + """
first = read([(1, 0)], [150])[0][3:6]
g, f = group((1, 0), (1, 1)), fields(b"f", 150, 155)
watch(g, f, 30)
second = read([(1, 0)], [150])[0][3:6]
call("dcgmUpdateAllFields", h, 1)
print(json.dumps([first, second, read([(1, 0), (1, 1)], [150, 155])]))
"""
    )
    before, waiting, records = ask(tmp_path, worlds.h100(2), program)
    assert before == ["i", -16, 0x7FFFFFFFFFFFFFF0]
    assert waiting == ["i", -14, 0x7FFFFFFFFFFFFFF0]
    # By field first: not in the order of the question.
    assert [record[:6] for record in records] == [
        [GPU, 0, 150, "i", 0, 50],
        [GPU, 1, 150, "i", 0, 51],
        [GPU, 0, 155, "d", 0, 310.5],
        [GPU, 1, 155, "d", 0, 311.5],
    ]
    assert all(time.time() - 60 < record[6] / 1e6 <= time.time() for record in records)


def test_a_value_stays_readable_after_its_watch_has_ended(tmp_path: Path) -> None:
    program = (
        LOGIN
        + """
g, f = group((1, 0)), fields(b"f", 156)
watch(g, f, 0.1)
call("dcgmUpdateAllFields", h, 1)
call("dcgmUnwatchFields", h, g, f)
first = read([(1, 0)], [156])
time.sleep(0.4)
print(json.dumps([first[0], read([(1, 0)], [156])[0]]))
"""
    )
    first, later = ask(tmp_path, worlds.h100(1), program)
    assert first == later
    assert first[4] == 0


@pytest.mark.parametrize(
    ("blank", "integer", "real"),
    [
        ("blank", 0x7FFFFFFFFFFFFFF0, 140737488355328.0),
        ("not_found", 0x7FFFFFFFFFFFFFF1, 140737488355329.0),
        ("not_supported", 9223372036854775794, 140737488355330.0),
        ("no_permission", 0x7FFFFFFFFFFFFFF3, 140737488355331.0),
    ],
)
def test_blanks_have_dcgms_values_and_a_good_status(tmp_path: Path, blank: str, integer: int, real: float) -> None:
    world = worlds.h100(1).with_values((GPU, 0), {150: blank, 155: blank})
    records = ask(tmp_path, world, LOGIN + "print(json.dumps(read([(1, 0)], [150, 155], 1)))")
    assert [record[4:6] for record in records] == [[0, integer], [0, real]]


def test_groups_are_refused_for_what_dcgm_refuses_them(tmp_path: Path) -> None:
    program = (
        LOGIN
        + """
good = fields(b"same", 150)
print(json.dumps([
    fields(b"same", 150), fields(b"unknown", 150, 9999), fields(b"refused", 100), fields(b"many", *[150] * 129),
    watch(ctypes.c_size_t(40), good, 1),
    [code for code in (call("dcgmGroupCreate", h, 1, b"x", ctypes.byref(out)) for _ in range(65)) if code],
    read([(1, 0)] * 9, [150] * 129),
]))
"""
    )
    found = ask(tmp_path, worlds.h100(1).with_lines(("refused", 100)), program)
    assert found == [-26, -1, -1, -1, -5, [-24], -1]


@pytest.mark.parametrize(("major", "most"), [(3, 64), (4, 1024)])
def test_the_number_of_entities_is_bounded_as_in_its_version(tmp_path: Path, major: int, most: int) -> None:
    program = (
        LOGIN
        + f"""
g = group(*[(1, 0)] * {most})
one_more = call("dcgmGroupAddEntity", h, g, 1, 0)
print(json.dumps([one_more, read([(1, 0)] * {most + 1}, [150]), len(read([(1, 0)] * {most}, [150]))]))
"""
    )
    engine = "3.3.9" if major == 3 else "4.6.0"
    assert ask(tmp_path, worlds.h100(1, engine), program, major) == [-24, -1, most]


def test_a_structure_of_another_version_is_refused(tmp_path: Path) -> None:
    program = (
        LOGIN
        + """
g = group((1, 0))
call("dcgmHealthSet", h, g, 0xFFFFFFFF)
codes = []
for version in (0x0510500C, 0x0401050C):
    codes.append(call("dcgmHealthCheck", h, g, made(1069068, version)))
codes.append(call("dcgmGetNvLinkLinkStatus", h, made(5564, 0x030015BC)))
print(json.dumps(codes))
"""
    )
    assert ask(tmp_path, worlds.h100(1), program) == [0, -12, -12]


@pytest.mark.parametrize(("library", "code"), [("4.5.3", -12), ("4.6.0", 0)])
def test_the_link_status_with_room_for_36_links_is_of_4_6(tmp_path: Path, library: str, code: int) -> None:
    program = LOGIN + "print(json.dumps(call('dcgmGetNvLinkLinkStatus', h, made(17084, 0x050042BC))))"
    assert ask(tmp_path, worlds.h100(1, "4.6.0", library), program) == code


@pytest.mark.parametrize(
    ("library", "engine", "code"),
    [("4.6.0", "4.5.3", -20), ("4.5.3", "4.6.0", 0), ("4.2.0", "3.3.9", -20), ("4.0.0", "4.5.3", 0)],
)
def test_a_newer_library_is_not_understood(tmp_path: Path, library: str, engine: str, code: int) -> None:
    found = ask(tmp_path, worlds.h100(1, engine, library), LOGIN + "print(json.dumps(read([(1, 0)], [150])))")
    assert (found if code else found[0][4]) == (code or -16)


def test_the_hierarchy_comes_without_its_version_word(tmp_path: Path) -> None:
    program = (
        LOGIN
        + """
buffer = made(73480, 0x02011F08)
code = call("dcgmGetGpuInstanceHierarchy", h, buffer)
print(json.dumps([code, *struct.unpack_from("=II", buffer, 0)]))
"""
    )
    assert ask(tmp_path, worlds.a100_mig(), program) == [0, 0, 6]


def test_a_ratio_needs_two_intervals(tmp_path: Path) -> None:
    program = (
        LOGIN
        + """
g, f = group((1, 0)), fields(b"f", 1002)
watch(g, f, 0.2)
call("dcgmUpdateAllFields", h, 1)
first = read([(1, 0)], [1002])[0][4]
time.sleep(0.5)
print(json.dumps([first, read([(1, 0)], [1002])[0][4:6]]))
"""
    )
    assert ask(tmp_path, worlds.h100(1), program) == [-14, [0, pytest.approx(worlds.ratio(1002, 0))]]


def test_a_closed_connection_takes_groups_and_watches_with_it(tmp_path: Path) -> None:
    fake = install(tmp_path / "dcgm", worlds.h100(1))
    program = (
        PRELUDE
        + LOGIN
        + """
g = group((1, 0))
print("ready", flush=True)
sys.stdin.readline()
gone = call("dcgmUpdateAllFields", h, 1)
again = connect()
print(json.dumps([gone, again, call("dcgmGroupDestroy", h, g)]))
"""
    )
    with HostEngine(tmp_path / "engine") as engine:
        child = subprocess.Popen(
            [sys.executable, "-c", program, engine.address, "4"],
            env=fake.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stdout is not None
            assert child.stdin is not None
            assert child.stdout.readline() == "ready\n"
            engine.stop()
            engine.start()
            child.stdin.write("go\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline()) == [-21, 0, -5]


def test_a_scenario_that_is_not_understood_is_said(tmp_path: Path) -> None:
    fake = install(tmp_path / "dcgm", worlds.h100(1).with_lines(("nonsense", 1)))
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + "print(call('dcgmInit'))", "-", "4"],
        env=fake.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "-3\n"
    assert "not understood: nonsense" in result.stderr
