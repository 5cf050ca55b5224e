"""The lists of metrics: up to date, kept, and compared with the last release's by rules."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pytest

from exporter import __version__
from exporter.schema import METRICS
from releases import files
from releases.files import complaints, history, parsed, released
from releases.listing import Entry, Listing, present, read, text
from releases.rules import changes, named, problems
from tests.unit.test_repository import ROOT

STABLE: Final = Entry(
    type="gauge",
    unit="watts",
    labels={"device": (), "limit": ("min", "max")},
    otlp=("hw.power",),
    stability="stable",
)
TRIAL: Final = msgspec.structs.replace(STABLE, stability="experimental")
OLD: Final = msgspec.structs.replace(STABLE, stability="deprecated")


def listing(common: Mapping[str, Entry], **groups: Mapping[str, Entry]) -> Listing:
    return Listing(common=common, **{"agent": {}, "recorded": {}, "otlp": {}, **groups})


def judged(before: Mapping[str, Entry], now: Mapping[str, Entry], changelog: str = "") -> list[str]:
    """What is wrong with 0.2.0 after a 0.1.0."""
    return problems({(0, 1, 0): listing(before)}, (0, 2, 0), listing(now), changelog)


def altered(entry: Entry, **fields: object) -> Entry:
    return msgspec.structs.replace(entry, **fields)


# This tree


def test_this_tree_keeps_the_promises_of_the_last_release() -> None:
    assert complaints() == []


def test_each_released_version_has_its_list_and_the_present_one_has_a_draft() -> None:
    wanted = {*released(ROOT), __version__}
    assert {path.stem for path in (ROOT / "releases").glob("*.toml")} == wanted


def test_the_list_has_what_prometheus_and_receivers_of_otlp_see() -> None:
    found = tomllib.loads((ROOT / f"releases/{__version__}.toml").read_text())
    power = found["common"]["accel_power_watts"]
    assert (power["type"], power["unit"], power["stability"]) == ("gauge", "watts", "stable")
    assert {"vendor", "device", "uuid", "partition", "namespace", "pod", "job_name"} <= power["labels"].keys()
    assert "hw.power" in power["otlp"]
    assert found["common"]["accel_health_state"]["labels"]["state"] == ["healthy", "degraded", "failed", "unknown"]
    assert found["agent"]["accel_exporter_collector_up"] == {
        "type": "gauge",
        "labels": {"collector": []},
        "otlp": ["accel.exporter_collector_up"],
    }
    assert found["agent"]["accel_exporter_collector_duration_seconds"]["type"] == "histogram"
    assert "tenant:accel_energy_joules:rate5m" in found["recorded"]
    assert found["otlp"]["hw.temperature"] == {"type": "gauge", "unit": "Cel"}
    assert len(found["common"]) == len(METRICS)


def test_a_list_is_read_as_it_was_written() -> None:
    assert read(text(present(), "1.2.3")) == present()


def test_the_command_is_the_one_of_the_makefile() -> None:
    assert "$(python) -m releases" in (ROOT / "Makefile").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "releases", "--check"], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# The rules


def test_what_is_the_same_needs_no_word() -> None:
    both = {"a_stable": STABLE, "a_trial": TRIAL, "a_old": OLD}
    assert judged(both, both) == []


def test_the_first_release_has_nothing_to_keep() -> None:
    assert problems({}, (0, 1, 0), listing({"a": STABLE}), "") == []


@pytest.mark.parametrize("changelog", ["", "a_new is there", "`a_new_too` and `b_*`"])
def test_a_new_metric_that_the_changelog_does_not_name_is_a_problem(changelog: str) -> None:
    [problem] = judged({}, {"a_new": TRIAL}, changelog)
    assert problem == "a_new is new: CHANGELOG.md does not name it under Unreleased"


@pytest.mark.parametrize("changelog", ["- `a_new`.", "`a_*`", "`a_{old,new}`", "`a_new{device=…}` `x a_new`"])
def test_a_new_metric_is_named_alone_or_among_others(changelog: str) -> None:
    assert judged({}, {"a_new": TRIAL}, changelog) == []


ALTERATIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "type": {"type": "counter"},
    "unit": {"unit": "kilowatts"},
    "label lost": {"labels": {"limit": ("min", "max")}},
    "label got": {"labels": {**STABLE.labels, "slot": ()}},
    "value lost": {"labels": {"device": (), "limit": ("max",)}},
    "values fixed": {"labels": {"device": ("0",), "limit": ("min", "max")}},
    "OTLP": {"otlp": ("hw.watts",)},
}
ANY_ALTERATION = pytest.mark.parametrize("which", ALTERATIONS)


@ANY_ALTERATION
def test_an_experimental_metric_changes_if_the_changelog_names_it_itself(which: str) -> None:
    now = {"a_trial": altered(TRIAL, **ALTERATIONS[which])}
    assert judged({"a_trial": TRIAL}, now, "`a_trial` is another") == []
    # Among others it would not be found by who has it in a dashboard.
    for changelog in ("", "`a_*` are others"):
        [problem] = judged({"a_trial": TRIAL}, now, changelog)
        assert "CHANGELOG.md does not name it" in problem


@ANY_ALTERATION
@pytest.mark.parametrize("promised", [STABLE, OLD], ids=["stable", "deprecated"])
def test_a_promised_metric_does_not_change_whatever_the_changelog_says(which: str, promised: Entry) -> None:
    [problem] = judged({"a": promised}, {"a": altered(promised, **ALTERATIONS[which])}, "`a`")
    assert "breaks a promise" in problem


def test_more_values_of_a_label_may_come_at_any_time() -> None:
    more = altered(STABLE, labels={"device": (), "limit": ("min", "max", "default")})
    assert judged({"a": STABLE}, {"a": more}) == []


def test_an_experimental_metric_goes_if_the_changelog_names_it() -> None:
    assert judged({"a": TRIAL}, {}, "`a` is gone") == []
    assert judged({"a": TRIAL}, {}) != []


def test_a_stable_metric_does_not_go() -> None:
    [problem] = judged({"a": STABLE}, {}, "`a` is gone")
    assert "mark it deprecated and serve it beside its successor" in problem


@pytest.mark.parametrize(
    ("version", "allowed"), [((0, 3, 0), False), ((0, 3, 9), False), ((0, 4, 0), True), ((1, 0, 0), True)]
)
def test_a_deprecated_metric_goes_two_minor_releases_later(version: tuple[int, int, int], allowed: bool) -> None:
    releases = {(0, 1, 0): listing({"a": STABLE}), (0, 2, 0): listing({"a": OLD}), (0, 3, 0): listing({"a": OLD})}
    found = problems(releases, version, listing({}), "`a` is gone")
    assert (found == []) is allowed
    if not allowed:
        assert "it stays for 2 minor releases after the one that deprecated it" in found[0]


def test_the_time_counts_from_the_last_deprecation() -> None:
    releases = {
        (0, 1, 0): listing({"a": OLD}),
        (0, 2, 0): listing({"a": STABLE}),
        (0, 3, 0): listing({"a": OLD}),
    }
    assert problems(releases, (0, 4, 0), listing({}), "`a`") != []


@pytest.mark.parametrize(
    ("before", "now", "allowed"),
    [(TRIAL, STABLE, True), (STABLE, OLD, True), (OLD, STABLE, True), (STABLE, TRIAL, False), (OLD, TRIAL, False)],
)
def test_a_promise_is_not_taken_back(before: Entry, now: Entry, allowed: bool) -> None:
    assert (judged({"a": before}, {"a": now}, "`a`") == []) is allowed
    assert judged({"a": before}, {"a": now}) != []


def test_an_instrument_of_otlp_that_comes_with_its_metric_is_told_once() -> None:
    metric, instrument = altered(TRIAL, otlp=("accel.new",)), Entry(type="gauge", unit="W")
    now = listing({"a_new": metric}, otlp={"accel.new": instrument})
    assert problems({(0, 1, 0): listing({})}, (0, 2, 0), now, "`a_new`") == []
    alone = listing({}, otlp={"accel.new": instrument})
    assert problems({(0, 1, 0): listing({})}, (0, 2, 0), alone, "`a_new`") != []


def test_all_groups_are_compared() -> None:
    full = present()
    names = {change.name for change in changes({}, full.entries())}
    for group in (full.common, full.agent, full.recorded, full.otlp):
        assert group.keys() <= names


def test_names_in_braces_are_several() -> None:
    assert named("`a_{b,c}_{d,e}` and `f`") == {"a_b_d", "a_b_e", "a_c_d", "a_c_e", "f"}


# A release, step by step


def test_a_release_freezes_its_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "releases").mkdir()
    log = tmp_path / "CHANGELOG.md"
    log.write_text("# Changelog\n\n## Unreleased\n\nThe first version.\n")
    assert files.main([], tmp_path, "0.1.0") == 0
    draft = tmp_path / "releases/0.1.0.toml"
    first = draft.read_text()
    # A draft follows the code.
    draft.write_text(first + "\n")
    assert files.main(["--check"], tmp_path, "0.1.0") == 1
    assert "is not up to date: run `make docs`" in capsys.readouterr().err
    assert files.main([], tmp_path, "0.1.0") == 0
    assert draft.read_text() == first
    # Of another version there is none beside it.
    assert files.main([], tmp_path, "0.2.0") == 1
    assert "releases/0.1.0.toml is of no release: remove it" in capsys.readouterr().err
    (tmp_path / "releases/0.2.0.toml").unlink()

    log.write_text("# Changelog\n\n## Unreleased\n\n## 0.1.0, 2026-01-02\n\nThe first version. `accel_*`\n")
    assert history(tmp_path).keys() == {(0, 1, 0)}
    assert complaints(tmp_path, "0.1.0") == []
    now = present()
    common = {name: entry for name, entry in now.common.items() if name != "accel_fabric_state"}
    changed = msgspec.structs.replace(now, common={**common, "accel_domain_state": now.common["accel_fabric_state"]})
    assert complaints(tmp_path, "0.1.0", changed) == [
        "the metrics are no more those of 0.1.0: give exporter/__init__.py the next version"
    ]
    assert files.main([], tmp_path, "0.1.0") == 0
    assert draft.read_text() == first

    (tmp_path / "releases/0.2.0.toml").write_text(text(changed, "0.2.0"))
    # What an earlier release's section names does not count.
    assert complaints(tmp_path, "0.2.0", changed) == [
        "accel_domain_state is new: CHANGELOG.md does not name it under Unreleased",
        "accel_fabric_state is gone: CHANGELOG.md does not name it under Unreleased",
    ]
    log.write_text(
        log.read_text().replace(
            "## Unreleased\n", "## Unreleased\n\n`accel_fabric_state` is now `accel_domain_state`\n"
        )
    )
    assert complaints(tmp_path, "0.2.0", changed) == []


def test_a_release_without_its_list_is_told(tmp_path: Path) -> None:
    (tmp_path / "releases").mkdir()
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## [0.1.0]\n")
    assert complaints(tmp_path, "0.2.0") == [
        "releases/0.1.0.toml is missing, though CHANGELOG.md says that it is released"
    ]


def test_versions_are_compared_as_numbers() -> None:
    assert parsed("0.10.0") > parsed("0.9.9")
