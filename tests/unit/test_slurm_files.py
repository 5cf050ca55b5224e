"""Files that prologs of Slurm write, one for each device."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution.claims import Claim
from exporter.attribution.slurm import MAX_BYTES, MAX_JOBS, File, boot_time, files, in_order, of_lines, of_objects

BOOT = 1_700_000_000.0


def lines(folder: Path, booted: float = 0.0) -> list[tuple[Mapping[str, str], str]]:
    problems: list[str] = []
    found = list(of_lines(files(folder, booted, problems), "nvidia"))
    assert not problems
    assert all(claim.raw == {"hpc_job": claim.job_name} and claim.vendor == "nvidia" for claim in found)
    assert all(claim.job_kind == "SlurmJob" for claim in found)
    return [(claim.names, claim.job_name) for claim in found]


def objects(folder: Path, booted: float = 0.0) -> list[Claim]:
    problems: list[str] = []
    found = list(of_objects(files(folder, booted, problems), "amd"))
    assert not problems
    return found


def variables(job: str, devices: str | None, gpus: str | None = None, **more: str) -> str:
    told = {
        "SLURM_JOB_ID": job,
        "SLURM_JOB_USER": "alice",
        "SLURM_JOB_PARTITION": "mi300",
        "SLURM_CLUSTER_NAME": "c1",
        "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
        "SLURM_JOB_GPUS": gpus,
        "CUDA_VISIBLE_DEVICES": devices,
        **more,
    }
    return json.dumps({name: value for name, value in told.items() if value is not None})


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("0", {"index": "0"}),
        ("15", {"index": "15"}),
        ("0.7", {"index": "0", "gi": "7"}),
        ("0-7", {"index": "0", "gi": "7"}),
        ("3.0", {"index": "3", "gi": "0"}),
        ("007", {"index": "7"}),
    ],
)
def test_a_files_name_is_the_device_or_its_part(tmp_path: Path, name: str, names: Mapping[str, str]) -> None:
    (tmp_path / name).write_text("4711\n")
    assert lines(tmp_path) == [(names, "4711")]


@pytest.mark.parametrize("name", ["a", "0.x", "-1", "0.7.1", ".0", "0~", "12345", "gpu0", "٣"])
def test_other_files_are_none_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("4711\n")
    assert lines(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        pytest.param("4711\n", ["4711"], id="as written by echo"),
        pytest.param("4711", ["4711"], id="without an end of line"),
        pytest.param("4711\n4712\n", ["4711", "4712"], id="two jobs share"),
        pytest.param("4711\r\n 4712 \n", ["4711", "4712"], id="blanks"),
        pytest.param("4711\n4711\n", ["4711"], id="twice"),
        pytest.param("\n\n", [], id="blank lines"),
        pytest.param("", [], id="just truncated"),
        pytest.param("4711_3\n", ["4711_3"], id="any word is a job"),
        pytest.param("\0\0\0\0\n4711\n", ["4711"], id="a hole"),
        pytest.param("x" * 200 + "\n4711\n", ["4711"], id="no id is so long"),
    ],
)
def test_each_line_is_a_job(tmp_path: Path, text: str, jobs: list[str]) -> None:
    (tmp_path / "0").write_text(text, newline="")
    assert [job for _, job in lines(tmp_path)] == jobs


def test_a_huge_file_is_read_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("".join(f"{job}\n" for job in range(1_000_000)))
    assert len(lines(tmp_path)) == MAX_JOBS
    (tmp_path / "0").write_text("1" * 2 * MAX_BYTES)
    assert lines(tmp_path) == []


def test_a_left_over_from_before_the_boot_is_no_job(tmp_path: Path) -> None:
    for name, age in (("0", -1), ("1", 1)):
        (tmp_path / name).write_text("4711\n")
        os.utime(tmp_path / name, (BOOT + age, BOOT + age))
    assert lines(tmp_path, BOOT) == [({"index": "1"}, "4711")]


def test_the_time_of_the_boot_is_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 3\nintr 5\nbtime 1700000000\nprocesses 9\n")
    assert boot_time(str(tmp_path)) == BOOT
    assert boot_time(str(tmp_path / "none")) == 0.0
    (tmp_path / "stat").write_text("cpu 1\n")
    assert boot_time(str(tmp_path)) == 0.0


def test_a_directory_that_is_not_there_has_no_jobs(tmp_path: Path) -> None:
    assert lines(tmp_path / "none") == []
    (tmp_path / "file").write_text("")
    assert lines(tmp_path / "file") == []


def test_an_epilog_that_is_faster_than_we_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "0").symlink_to(tmp_path / "gone")
    (tmp_path / "1").write_text("4711\n")
    (tmp_path / "2").mkdir()
    os.mkfifo(tmp_path / "3")
    assert lines(tmp_path) == [({"index": "1"}, "4711")]


def test_what_cannot_be_read_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    # A file that not even root can read from its beginning.
    (tmp_path / "0").symlink_to("/proc/self/mem")
    (tmp_path / "1").write_text("2\n")
    problems: list[str] = []
    assert [file.text for file in files(tmp_path, 0.0, problems)] == ["2\n"]
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("devices", "gpus", "indices"),
    [
        pytest.param("0,1", "0,1", ["0", "1"], id="both variables"),
        pytest.param("", "0,1", ["0", "1"], id="without CUDA the first is empty"),
        pytest.param(None, "3", ["3"], id="or absent"),
        pytest.param("128,135", None, ["0", "7"], id="minors of render nodes"),
        pytest.param("1, 2", None, ["1", "2"], id="blanks"),
        pytest.param("1,1", None, ["1"], id="twice"),
        pytest.param("", "", ["5"], id="none: the file's name"),
        pytest.param("GPU-abc,x,-1", None, ["5"], id="no numbers: the file's name"),
    ],
)
def test_the_object_lists_the_devices_of_the_job(
    tmp_path: Path, devices: str | None, gpus: str | None, indices: list[str]
) -> None:
    (tmp_path / "5").write_text(variables("4711", devices, gpus))
    found = objects(tmp_path)
    assert [claim.names for claim in found] == [{"index": index} for index in indices]
    assert {(claim.job_name, claim.queue, claim.vendor) for claim in found} == {("4711", "mi300", "amd")}
    assert found[0].raw == {"job_id": "4711", "job_user": "alice", "job_partition": "mi300", "cluster_name": "c1"}


def test_a_device_with_a_file_of_its_own_is_told_by_that_alone(tmp_path: Path) -> None:
    """The first job had two devices, and its epilog removed one file only; the second job has the other device."""
    (tmp_path / "1").write_text(variables("1", "0,1"))
    (tmp_path / "0").write_text(variables("2", "0"))
    assert [(claim.names["index"], claim.job_name) for claim in objects(tmp_path)] == [("0", "2"), ("1", "1")]


def test_both_files_of_a_job_tell_each_device_once(tmp_path: Path) -> None:
    for name in ("0", "1"):
        (tmp_path / name).write_text(variables("1", "128,129"))
    assert [claim.names["index"] for claim in objects(tmp_path)] == ["0", "1"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="created and not yet written"),
        pytest.param(variables("4711", "0")[:40], id="half"),
        pytest.param(variables("", "0"), id="no job"),
        pytest.param('{"CUDA_VISIBLE_DEVICES": "0"}', id="no job's variable"),
        pytest.param('{"SLURM_JOB_ID": null}', id="null"),
        pytest.param('{"SLURM_JOB_ID": true}', id="true"),
        pytest.param('["4711"]', id="a list"),
        pytest.param("4711", id="a number"),
        pytest.param("[" * 50_000, id="without bottom"),
    ],
)
def test_half_an_object_is_no_job(tmp_path: Path, text: str) -> None:
    (tmp_path / "0").write_text(text)
    assert objects(tmp_path) == []


def test_numbers_may_be_numbers_and_another_variable_may_be_anything(tmp_path: Path) -> None:
    (tmp_path / "0").write_text('{"SLURM_JOB_ID": 4711, "SLURM_JOB_USER": ["x"], "OTHER": {"deep": [1]}}')
    (claim,) = objects(tmp_path)
    assert (claim.job_name, claim.raw["job_user"]) == ("4711", "")


TEXTS = st.text(max_size=60) | st.dictionaries(
    st.sampled_from(["SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_JOB_USER"]),
    st.none() | st.integers() | st.text(max_size=12) | st.lists(st.integers(), max_size=2),
).map(json.dumps)


@given(st.lists(st.tuples(st.integers(0, 300), TEXTS), max_size=4))
def test_any_text_is_read_and_no_job_is_made_up(written: Sequence[tuple[int, str]]) -> None:
    found = [File(str(index), "", text) for index, text in written]
    for claim in (*of_lines(found, ""), *of_objects(found, "")):
        assert claim.job_name
        assert claim.job_name.isprintable()
        assert claim.names["index"].isdecimal()
        assert len(claim.job_name) <= 128


def test_slurms_numbers_become_indices_where_its_order_is_another() -> None:
    """Without AutoDetect a device's number is that in the name of its file: nvidia2 may be the first on the bus."""
    found = list(of_lines([File("0", "", "1"), File("2", "7", "2"), File("3", "", "3")], "nvidia"))
    placed = [in_order(claim, (2, 1, 0)) for claim in found]
    assert [(claim.names, claim.job_name) for claim in placed] == [
        ({"index": "2"}, "1"),
        ({"index": "0", "gi": "7"}, "2"),
        ({"index": "3"}, "3"),
    ]
    assert [in_order(claim, ()) for claim in found] == found
