"""What ``squeue`` prints: its JSON in the shapes of several versions, and its text."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution.claims import Claim
from exporter.attribution.squeue import Details, JobDetails, jobs, jobs_of_text, text_format
from tests.attribution_rig import Heard

KNOWN = Details("4711", "physics", "alice", "gpu")


def number(value: int, *, is_set: bool = True) -> dict[str, Any]:
    return {"set": is_set, "infinite": False, "number": value}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(
            {"job_id": 4711, "account": "physics", "user_name": "alice", "partition": "gpu", "job_state": "RUNNING",
             "array_job_id": 0, "array_task_id": None, "core_spec": None},
            id="21.08: plain numbers and nulls",
        ),
        pytest.param(
            {"job_id": 4711, "account": "physics", "user_name": "alice", "partition": "gpu", "job_state": ["RUNNING"],
             "array_job_id": number(4700), "array_task_id": number(0, is_set=False)},
            id="23.11: numbers that may be unset, a list of states",
        ),
        pytest.param(
            {"job_id": number(4711), "account": "physics", "user_name": "alice", "partition": "gpu",
             "step_id": {"sluid": "", "step_id": "TBD"}},
            id="a job id that may be unset",
        ),
    ],
)  # fmt: skip
def test_jobs_are_told_in_the_shapes_of_all_versions(job: dict[str, Any]) -> None:
    answer = {"meta": {"plugin": {}}, "errors": [], "jobs": [job, {"job_id": number(1, is_set=False)}, {}]}
    assert jobs(json.dumps(answer).encode()) == {"4711": KNOWN}


def test_a_job_is_found_by_its_sluid_where_the_controller_tells_it() -> None:
    job = {"job_id": 4711, "account": "physics", "user_name": "alice", "partition": "gpu",
           "step_id": {"sluid": "sEKNKTV3WPV500"}}  # fmt: skip
    assert jobs(json.dumps({"jobs": [job]}).encode())["seknktv3wpv500"] == KNOWN


def test_what_is_missing_or_of_another_kind_stays_empty() -> None:
    job = {"job_id": 1, "account": None, "user_name": 1000, "partition": "a\nb"}
    assert jobs(json.dumps({"jobs": [job]}).encode()) == {"1": Details("1", "", "", "ab")}


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"jobs": null}', b'{"jobs": [5]}', b'{"jobs": [{"job_id": 1}', b"slurm: error", b"\xff"],
)
def test_another_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match="not understood"):
        jobs(answer)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["jobs", "job_id", "account", "set", "number", "step_id", "sluid"]), inner),
    max_leaves=10,
).map(lambda told: json.dumps(told).encode()))  # fmt: skip
def test_any_answer_is_read_or_refused(answer: bytes) -> None:
    with suppress(ValueError):
        assert all(details.job.isdecimal() for details in jobs(answer).values())


MARK = "0123456789abcdef"


def test_the_text_of_jobs_is_read_as_squeue_prints_it() -> None:
    """As Slurm 22.05 printed it for this format; the account of the second was "phys|ics", with a line feed."""
    assert text_format("X") == "%A|X%a|X%u|X%P|X"
    answer = "4711|Xphysics|Xalice|Xgpu|X\n3|Xphys|ics\n1|evil|root|gpu|Xbob|Xgpu|X\n"
    assert jobs_of_text(answer.replace("X", MARK).encode(), MARK) == {
        "4711": KNOWN,
        "3": Details("3", "phys|ics1|evil|root|gpu", "bob", "gpu"),
    }


def test_no_job_runs() -> None:
    assert jobs_of_text(b"", MARK) == jobs_of_text(b"\n", MARK) == {}


@pytest.mark.parametrize("answer", [f"1|{MARK}", f"1|{MARK}a|{MARK}b|{MARK}c", "squeue: error", f"|{MARK}" * 4 + "x"])
def test_half_a_list_or_another_text_is_refused(answer: str) -> None:
    with pytest.raises(ValueError, match="not understood"):
        jobs_of_text(answer.encode(), MARK)


@given(st.lists(st.tuples(st.integers(1, 2**32), *[st.text(max_size=20)] * 3), max_size=5), st.binary(max_size=50))
def test_whatever_fields_hold_each_job_has_its_own(rows: list[tuple[int, str, str, str]], rest: bytes) -> None:
    text = "".join("".join(f"{field}|{MARK}" for field in row) + "\n" for row in rows)
    found = jobs_of_text(text.encode("utf-8", "replace"), MARK)
    assert set(found) == {str(row[0]) for row in rows}
    with suppress(ValueError):
        jobs_of_text(rest, MARK)


def claim(job: str, **more: Any) -> Claim:
    return Claim(source="processes", job_name=job, job_kind="SlurmJob", **more)


def test_a_claim_is_filled_with_what_is_known_and_its_own_facts_stay() -> None:
    heard = Heard()
    details = JobDetails(300, changed=heard.changed, failed=heard.failed)
    details._known = {"4711": KNOWN, "seknktv3wpv500": KNOWN, "5": Details("5", "", "bob", "")}
    filled = details.fill(claim("4711"))
    assert (filled.tenant, filled.queue) == ("physics", "gpu")
    assert details.fill(claim("sEKNKTV3WPV500")).job_name == "4711"
    assert details.fill(claim("4711", queue="own", tenant="own")).queue == "own"
    assert details.fill(claim("5")).tenant == "bob"
    assert details.fill(claim("6")) == claim("6")
    service = Claim(source="processes", job_name="4711", job_kind="Service")
    assert details.fill(service) == service
