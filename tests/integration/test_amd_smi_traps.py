"""The ways in which amdsmi fails: not there, not its library, hanging, crashing, refused, gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from collectors.amd import smi_probe
from collectors.amd.smi_load import Place as Where
from tests.fakes.amd import Tree, build, smi_worlds, worlds
from tests.fakes.amd.library import Installation, Scenario, install, write
from tests.fakes.amd.smi_worlds import handle
from tests.fakes.amd.wheels import VERSIONS, wheel
from tests.integration.amd_child import Child, settings
from tests.integration.collector_child import RefusedError

pytestmark = pytest.mark.gcc

NEW = VERSIONS[-1]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return build(tmp_path / "host", worlds.mi300x(2))


@pytest.fixture
def library(tmp_path: Path) -> Callable[..., Installation]:
    def make(change: Callable[[Scenario], object] | None = None, version: str = NEW, **more: Any) -> Installation:
        package = wheel(version)
        scenario = smi_worlds.mi300x(package)
        if change is not None:
            change(scenario)
        return install(tmp_path / "smi", package, scenario, **more)

    return make


def refusal(
    tree: Tree, installation: Installation | None, environ: Mapping[str, str] | None = None, **more: Any
) -> Any:
    with Child(settings(tree, source="amdsmi", **more), installation, **(environ or {})) as child:
        with pytest.raises(RefusedError) as caught:
            child.discover()
        return caught.value.refused


def falls_back(tree: Tree, installation: Installation | None, environ: Mapping[str, str] | None = None) -> list[str]:
    """With source auto everything is read from sysfs; returns what is said of it."""
    with Child(settings(tree), installation, **(environ or {})) as child:
        assert child.found().source == "sysfs"
        first, second = child.sample(), child.sample()
        assert [first.value("gpu_power_usage", device) for device in (0, 1)] == [255, 256]
        assert second.sample.errors == []
        return [error.detail for error in first.sample.errors]


def test_without_the_package_sysfs_is_read_silently(tree: Tree) -> None:
    assert falls_back(tree, None) == []
    refused = refusal(tree, None)
    assert refused.state == "no_library"
    assert "amd-smi-lib" in refused.hint


@pytest.mark.parametrize("version", VERSIONS)
def test_without_the_library_the_package_fails_at_import(
    tree: Tree, library: Callable[..., Installation], tmp_path: Path, version: str
) -> None:
    """It raises KeyError, after two lines on standard output."""
    installation = library(version=version)
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert falls_back(tree, installation, environ) == []
    refused = refusal(tree, installation, environ)
    assert refused.state == "no_library"
    assert "libamd_smi.so" in refused.hint


@pytest.mark.parametrize(
    ("version", "major"), [("6.4.4", 26), ("7.0.2", 25), ("7.0.2", 24), ("7.0.2", 27)], ids=lambda value: str(value)
)
def test_a_library_of_another_version_is_refused_before_anything_else_is_called(
    tree: Tree, library: Callable[..., Installation], version: str, major: int
) -> None:
    installation = library(lambda scenario: smi_worlds.version(scenario, version, major), version)
    [said] = falls_back(tree, installation)
    assert "made for library version" in said
    refused = refusal(tree, installation)
    assert (refused.state, refused.restart) == ("version_mismatch", True)
    assert set(installation.calls()) == {"amdsmi_get_lib_version"}


def test_a_symbol_that_the_library_lacks_is_a_mismatch(tree: Tree, library: Callable[..., Installation]) -> None:
    """As with the package of 6.4 and a library of 7.0."""
    installation = library(version="6.4.4", without=["amdsmi_get_power_info_v2"])
    [said] = falls_back(tree, installation)
    assert "amdsmi_get_power_info_v2" in said
    assert refusal(tree, installation).state == "version_mismatch"


@pytest.mark.parametrize(
    ("function", "structure"),
    [
        ("amdsmi_get_gpu_metrics_info", "amdsmi_gpu_metrics_t"),
        ("amdsmi_get_gpu_board_info", "amdsmi_board_info_t"),
    ],
)
def test_a_library_that_writes_beyond_a_structure_is_found_out(
    tree: Tree, library: Callable[..., Installation], function: str, structure: str
) -> None:
    """A version within the same major whose structure has grown."""

    def grow(scenario: Scenario) -> None:
        size = scenario.layout.structures[structure]["size"]
        scenario.answer(function, handle(0), actions=[write(1, b"\1" * (size + 8))])

    installation = library(grow)
    [said] = falls_back(tree, installation)
    assert structure in said
    assert refusal(tree, installation).state == "version_mismatch"


def test_a_library_that_hangs_when_it_is_opened_is_given_up(
    tree: Tree, library: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = library(lambda scenario: scenario.answer("amdsmi_init", actions=["sleep=0"]))
    for name, value in installation.environ.items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    verdict = smi_probe.ask(Where(str(installation.wheel.folder)), timeout=1.0)
    assert 1.0 <= time.monotonic() - began < 10
    assert verdict.state == "hangs"
    assert not _children_named("smi_probe")


def _children_named(word: str) -> list[str]:
    """Command lines of processes of ours, zombies included, that have the word in them."""
    found = []
    for pid in (Path("/proc/self/task") / str(os.getpid()) / "children").read_text().split():
        line = (Path("/proc") / pid / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if word in line or not line:
            found.append(f"{pid} {line}")
    return found


def test_a_library_that_crashes_takes_nobody_along(tree: Tree, library: Callable[..., Installation]) -> None:
    installation = library(lambda scenario: scenario.answer("amdsmi_init", actions=["crash"]))
    [said] = falls_back(tree, installation)
    assert "SIGSEGV" in said
    assert refusal(tree, installation).state == "no_library"


@pytest.mark.parametrize(("code", "state"), [(10, "no_permission"), (34, "no_driver"), (18, "no_driver")])
def test_a_library_that_cannot_be_opened_says_why(
    tree: Tree, library: Callable[..., Installation], code: int, state: str
) -> None:
    installation = library(lambda scenario: scenario.answer("amdsmi_init", result=code))
    refused = refusal(tree, installation)
    assert refused.state == state
    assert "source sysfs" in refused.hint or "source to sysfs" in refused.hint or "kernel" in refused.hint
    # Not to be allowed to open it is no fault of the host: containers without /dev/dri read sysfs.
    assert len(falls_back(tree, installation)) == (0 if state == "no_permission" else 1)


def test_what_the_probe_prints_is_its_verdict_alone(
    library: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = library(lambda scenario: scenario.answer("amdsmi_init", actions=["say=" + "x" * 5000]))
    for name, value in installation.environ.items():
        monkeypatch.setenv(name, value)
    assert smi_probe.ask(Where(str(installation.wheel.folder))).state == "ok"


def test_a_driver_that_goes_away_ends_the_collector(tree: Tree, library: Callable[..., Installation]) -> None:
    installation = library()
    with Child(settings(tree), installation) as child:
        child.discover()
        child.sample()
        scenario = smi_worlds.mi300x(installation.wheel)
        scenario.answer("amdsmi_get_gpu_metrics_info", handle(0), result=34)
        installation.apply(scenario)
        with pytest.raises(RefusedError) as caught:
            child.sample()
        assert caught.value.refused.state == "no_driver"
        installation.apply(smi_worlds.mi300x(installation.wheel))
        assert child.found().source == "amdsmi"
        assert child.sample().value("gpu_power_usage") == 255


def test_rocms_own_package_comes_before_the_one_that_is_installed(
    tree: Tree, library: Callable[..., Installation]
) -> None:
    """And is used with the library beside it, whatever LD_LIBRARY_PATH says."""
    installation = library(lambda scenario: smi_worlds.version(scenario, NEW, 24))
    root = tree.root / "opt/rocm-7.0.2"
    (root / "share/amd_smi").mkdir(parents=True)
    (root / "share/amd_smi/amdsmi").symlink_to(installation.wheel.folder / "amdsmi")
    (root / "lib").mkdir()
    (root / "lib/libamd_smi.so").symlink_to(installation.library / "libamd_smi.so")
    good = Installation(installation.library, installation.wheel, tree.root / "scenario.txt", tree.root / "calls.log")
    good.apply(smi_worlds.mi300x(installation.wheel))
    environ = {
        "LD_LIBRARY_PATH": "/nonexistent",
        "FAKE_AMDSMI_SCENARIO": str(good.scenario_file),
        "FAKE_AMDSMI_LOG": str(good.log_file),
        "PYTHONPATH": "",
    }
    with Child(settings(tree), good, **environ) as child:
        assert child.found().source == "amdsmi"


def test_an_option_says_where_rocm_is(tree: Tree, library: Callable[..., Installation], tmp_path: Path) -> None:
    installation = library()
    root = tmp_path / "elsewhere"
    (root / "share/amd_smi").mkdir(parents=True)
    (root / "share/amd_smi/amdsmi").symlink_to(installation.wheel.folder / "amdsmi")
    (root / "lib").mkdir()
    (root / "lib/libamd_smi.so").symlink_to(installation.library / "libamd_smi.so")
    environ = {"LD_LIBRARY_PATH": "", "PYTHONPATH": ""}
    with Child(settings(tree, options={"rocm_path": str(root)}), installation, **environ) as child:
        assert child.found().source == "amdsmi"
    with Child(settings(tree), installation, **environ) as child:
        assert child.found().source == "sysfs"


def test_a_package_of_unknown_structures_is_used_only_with_its_own_library(
    tree: Tree, library: Callable[..., Installation], tmp_path: Path
) -> None:
    """A later ROCm: nothing is known of it but that package and library came together."""
    installation = library(lambda scenario: smi_worlds.version(scenario, NEW, 26, 9))
    root = tmp_path / "rocm-9"
    package = root / "share/amd_smi/amdsmi"
    package.mkdir(parents=True)
    for file in (installation.wheel.folder / "amdsmi").glob("*.py"):
        text = file.read_text()
        if file.name == "amdsmi_wrapper.py":
            fields = "struct_amdsmi_gpu_metrics_t._fields_ = ["
            assert fields in text
            text = text.replace(fields, f"{fields}('later', ctypes.c_uint64),")
        (package / file.name).write_text(text)
    environ = {"PYTHONPATH": ""}
    (root / "lib").mkdir()
    shared = root / "lib/libamd_smi.so"
    shared.write_bytes((installation.library / "libamd_smi.so").read_bytes())
    options = {"rocm_path": str(root)}
    with Child(settings(tree, options=options), installation, **environ, LD_LIBRARY_PATH="") as child:
        assert child.found().source == "amdsmi"
    shared.unlink()
    refused = refusal(tree, installation, environ, options=options)
    assert refused.state == "version_mismatch"
    assert "not known" in refused.hint
