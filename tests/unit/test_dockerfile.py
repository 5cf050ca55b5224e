"""The Dockerfile, as far as reading it tells. tests/integration/test_image.py builds it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from exporter.config import DEFAULT_PORT
from exporter.healthy import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("base", "nvidia", "amd", "neuron", "gaudi", "tpu", "all")

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def stages() -> dict[str, list[Instruction]]:
    """Stage → its instructions, FROM first."""
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for instruction in instructions():
        if instruction[0] == "FROM":
            current = found[instruction[1].split()[-1]] = []
        current.append(instruction)
    return found


def lineage(target: str) -> list[Instruction]:
    """The instructions of a stage and of those that it is made from, first to last."""
    own = stages()[target]
    parent = own[0][1].split()[0]
    return [*(lineage(parent) if parent in stages() else []), *own[1:]]


def of(target: str, name: str) -> list[str]:
    return [rest for instruction, rest in lineage(target) if instruction == name]


ANY_TARGET = pytest.mark.parametrize("target", TARGETS)


def test_the_image_stands_on_a_pinned_base_that_can_be_replaced() -> None:
    first, rest = instructions()[0]
    assert first == "ARG"
    assert re.fullmatch(r"BASE=\S+:\d+\.\d+\S*", rest), "a tag with a version"
    roots = {own[0][1].split()[0] for own in stages().values()} - stages().keys()
    assert roots == {"${BASE}"}


def test_without_a_target_everything_is_built() -> None:
    assert list(stages())[-1] == "all"


@ANY_TARGET
def test_what_builds_the_image_is_not_in_it(target: str) -> None:
    (copied,) = of(target, "COPY")
    assert re.fullmatch(r"--from=install-\w+ /usr/local/lib/accel-exporter /usr/local/lib/accel-exporter", copied)
    assert not any("pip" in command and "rm -rf" not in command for command in of(target, "RUN"))


@ANY_TARGET
def test_a_target_has_the_extras_of_its_name_if_there_are_any(target: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (copied,) = of(target, "COPY")
    installer = copied.split()[0].removeprefix("--from=")
    (command,) = [rest for name, rest in stages()[installer] if name == "RUN"]
    fitting = [extra for extra in extras if extra == target or extra.startswith(f"{target}-")]
    assert command.split() == ["scripts/image-venv.sh", *fitting]


@ANY_TARGET
def test_only_images_with_the_binding_ask_nvidias_runtime_for_devices(target: str) -> None:
    asks = any("NVIDIA_VISIBLE_DEVICES=all" in rest for rest in of(target, "ENV"))
    assert asks is (target in ("nvidia", "all"))


@ANY_TARGET
def test_the_image_runs_as_a_user_without_rights(target: str) -> None:
    assert of(target, "USER") == ["65532:65532"]
    names = [name for name, _ in lineage(target)]
    assert "RUN" not in names[names.index("USER") :]


@ANY_TARGET
def test_the_image_gets_signals_itself(target: str) -> None:
    assert json.loads(of(target, "ENTRYPOINT")[0]) == ["accel-exporter"]
    assert of(target, "STOPSIGNAL") == ["SIGTERM"]


def test_all_that_is_fetched_is_fetched_by_hash() -> None:
    commands = [part for own in stages().values() for name, rest in own if name == "RUN" for part in rest.split("&&")]
    fetching = [
        part for part in commands if re.search(r"pip (wheel|install)", part) and not part.strip().endswith(" .")
    ]
    assert len(fetching) == 3
    assert all("--require-hashes --only-binary=:all:" in part for part in fetching)


def test_every_lock_file_pins_each_package_with_a_hash() -> None:
    for name in ("requirements.lock", "requirements-build.lock", "requirements-sbom.lock"):
        entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
        assert all(re.match(r"[\w.-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries), name


def test_the_tool_that_lists_the_contents_is_the_one_that_is_tested() -> None:
    def pinned(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), flags=re.MULTILINE))

    dev = pinned("requirements-dev.lock")
    found = pinned("requirements-sbom.lock")
    assert "cyclonedx-bom" in found
    assert {name: version for name, version in found.items() if dev.get(name) != version} == {}


@ANY_TARGET
def test_the_health_check_asks_the_agent_and_no_port(target: str) -> None:
    (check,) = of(target, "HEALTHCHECK")
    # tests/integration/test_healthy.py runs it.
    assert json.loads(check[check.index("CMD ") + 4 :]) == ["accel-exporter", "healthy"]
    assert of(target, "EXPOSE") == [str(DEFAULT_PORT)]


def test_the_health_check_waits_for_longer_than_its_command_does() -> None:
    (check,) = of("all", "HEALTHCHECK")
    (seconds,) = re.findall(r"--timeout=(\d+)s", check)
    assert int(seconds) >= 2 * PATIENCE


def test_everything_that_the_image_copies_reaches_the_builder() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for name, rest in stages()["build"] if name == "COPY" for source in rest.split()[:-1]}
    assert copied == kept
    assert all((ROOT / source).exists() for source in copied)
