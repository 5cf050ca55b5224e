"""Rules that the repository keeps, checked on its files."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import exporter

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("exporter", "collectors")
MAX_LINES = 450

# Written so that this file does not hold what it looks for.
HOSTS = re.compile(
    r"py[p]i\.org|pythonhoste[d]\.org|npmj[s]\.(org|com)|deb\.debia[n]\.org|crate[s]\.io|proxy\.golan[g]\.org"
)
# GKE has its drivers in such a place.
PLACES = re.compile(r"/wor[k]/|/roo[t]/|/hom[e]/(?!kubernetes/)|/tmp/bas[h]")
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|NotImplementedErro[r])\b")
# fmt: off
VENDORS = [
    "amd", "amdsmi", "ascend", "aws", "biren", "cambricon", "cnmon", "dcgm", "dcmi", "dcu", "enflame", "furiosa",
    "gaudi", "google", "habana", "habanalabs", "hami", "hlml", "huawei", "hygon", "iluvatar", "intel", "ixml",
    "kunlunxin", "maca", "metax", "mig", "mlu", "mthreads", "neuron", "neuroncore", "nvidia", "nvml", "qualcomm",
    "rebellions", "rocm", "tenstorrent", "tpu", "xcp", "xid", "xpum",
]
# fmt: on
KINDS_OF_DEVICE = {"tpu"}
"""Also a value of the label ``kind``, which is no vendor's name where it stands alone."""


def repository_files() -> list[Path]:
    """What is in the repository, or would be after ``git add``; in an unpacked source archive, everything."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        made = re.compile(r"(^|/)(\.git|\.venv[^/]*|\.[a-z]+_cache|\.hypothesis|__pycache__|build|dist)/")
        return [path for path in ROOT.rglob("*") if path.is_file() and not made.search(str(path.relative_to(ROOT)))]
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


FILES = repository_files()
MODULES = [path for path in FILES if path.suffix == ".py"]
PACKAGED = [path for path in MODULES if path.relative_to(ROOT).parts[0] in PACKAGES]


def texts() -> Iterator[tuple[str, str]]:
    for path in FILES:
        try:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert lines_matching(HOSTS) == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert lines_matching(PLACES) == []


def test_nothing_is_left_for_later() -> None:
    assert lines_matching(UNFINISHED) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_enough_to_be_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def words_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Identifiers and strings, docstrings included."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str(text)):
                yield line, text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield line, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name
            case ast.alias(name=name):
                yield line, name
            case ast.ImportFrom(module=str(name)):
                yield line, name


def vendors_named(source: str) -> list[str]:
    folders = {path.parent.name for path in FILES if path.match("collectors/*/collector.toml")}
    words = set(VENDORS) | folders
    pattern = re.compile(rf"(?<![a-z])({'|'.join(sorted(words))})(?![a-z])", re.IGNORECASE)
    found = []
    for line, text in words_of(ast.parse(source)):
        if text.lower() not in KINDS_OF_DEVICE:
            found += [f"{line}: {match}" for match in pattern.findall(text)]
    return found


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("x = 'DCGM_FI_DEV_GPU_TEMP'", ["1: DCGM"]),
        ("import collectors.nvidia", ["1: nvidia"]),
        ("def read_nvml(): ...", ["1: nvml"]),
        ("kinds = ('gpu', 'npu', 'tpu')", []),
        ("migrate = intelligence = 1", []),
    ],
)
def test_a_vendors_name_is_found_wherever_it_stands(source: str, named: list[str]) -> None:
    assert vendors_named(source) == named


@pytest.mark.parametrize("path", [p for p in PACKAGED if module_name(p).startswith("exporter")], ids=module_name)
def test_the_core_names_no_vendor(path: Path) -> None:
    assert vendors_named(path.read_text()) == []


def imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(name)):
                found.add(name.partition(".")[0])
    return found


@pytest.mark.parametrize("path", [p for p in PACKAGED if module_name(p).startswith("collectors")], ids=module_name)
def test_a_collector_knows_nothing_of_the_core(path: Path) -> None:
    assert imported(ast.parse(path.read_text())) & {"exporter", "asyncio", "aiohttp", "prometheus_client"} == set()


IN_WORKERS = sorted({module_name(p) for p in PACKAGED if module_name(p).startswith("collectors")} | {"exporter.worker"})


def test_a_worker_carries_none_of_the_agents_weight() -> None:
    code = f"""
import importlib, sys
for name in {IN_WORKERS!r}:
    importlib.import_module(name)
heavy = {{"asyncio", "aiohttp", "prometheus_client"}} & set(sys.modules)
assert not heavy, f"a worker imports {{sorted(heavy)}}"
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def swallowing(tree: ast.Module) -> list[int]:
    """Lines where any exception at all is dropped without a word."""
    everything = {"Exception", "BaseException"}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = (
                {ast.unparse(name) for name in ast.walk(node.type) if isinstance(name, ast.Name)}
                if node.type
                else everything
            )
            silent = all(isinstance(step, (ast.Pass, ast.Continue)) or is_ellipsis(step) for step in node.body)
            if silent and caught & everything:
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            found += [node.lineno for name in node.args if ast.unparse(name) in everything]
    return found


def is_ellipsis(step: ast.stmt) -> bool:
    return isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant) and step.value.value is ...


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("try: f()\nexcept Exception: pass", [2]),
        ("try: f()\nexcept (OSError, BaseException):\n    ...", [2]),
        ("for x in y:\n    try: f()\n    except: continue", [3]),
        ("with contextlib.suppress(Exception): f()", [1]),
        ("try: f()\nexcept OSError: pass", []),
        ("try: f()\nexcept Exception: log()", []),
    ],
)
def test_a_swallowed_exception_is_found(source: str, lines: list[int]) -> None:
    assert swallowing(ast.parse(source)) == lines


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_module_swallows_every_exception(path: Path) -> None:
    assert swallowing(ast.parse(path.read_text())) == []


def test_console_scripts_can_be_called() -> None:
    for target in project()["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), target


def test_metadata_says_what_is_true() -> None:
    metadata = project()
    assert metadata["license"] == "Apache-2.0"
    assert (ROOT / "LICENSE").read_text().split("\n")[1].strip() == "Apache License"
    assert metadata["requires-python"] == ">=3.11"
    assert str(Version(exporter.__version__)) == exporter.__version__


def declared() -> dict[str, list[Requirement]]:
    """Extra → what it asks for; the empty one is what everybody gets."""
    metadata = project()
    groups = {"": metadata["dependencies"], **metadata["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in groups.items()}


def test_dependencies_are_ranges_and_no_exact_pins() -> None:
    pinned = [
        str(r) for group in declared().values() for r in group if any(s.operator in {"==", "==="} for s in r.specifier)
    ]
    assert pinned == []


def locked(name: str) -> dict[str, Version]:
    found = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / name).read_text().strip()):
        first, _, rest = entry.partition("\n")
        requirement = Requirement(first.removesuffix("\\"))
        assert rest.count("--hash=sha256:") >= 1, f"{name}: {first} has no hash"
        found[requirement.name.lower().replace("_", "-")] = Version(str(requirement.specifier).removeprefix("=="))
    return found


@pytest.mark.parametrize(
    ("lock", "extras"), [("requirements.lock", {"", "all"}), ("requirements-dev.lock", {"", "all", "dev"})]
)
def test_a_lock_file_holds_what_the_metadata_asks_for(lock: str, extras: set[str]) -> None:
    groups, versions = declared(), locked(lock)
    wanted: list[Requirement] = []
    queue, seen = sorted(extras), set()
    while queue:
        extra = queue.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in groups[extra]:
            if requirement.name == project()["name"]:
                queue += requirement.extras
            else:
                wanted.append(requirement)
    wrong = [
        str(r)
        for r in wanted
        if (v := versions.get(r.name.lower().replace("_", "-"))) is None or not r.specifier.contains(v)
    ]
    assert wrong == [], "run `make lock`"


def test_the_lock_files_agree() -> None:
    dev = locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-build.lock"):
        assert {package: version for package, version in locked(name).items() if dev.get(package) != version} == {}


def test_no_lock_file_says_where_packages_come_from() -> None:
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-build.lock"):
        assert re.findall(r"://|--index|--extra-index|--find-links|--trusted-host", (ROOT / name).read_text()) == []


def test_the_wheel_holds_the_packages_with_their_tables_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
    assert licences
    assert held == {str(p.relative_to(ROOT)) for p in FILES if p.relative_to(ROOT).parts[0] in PACKAGES}
