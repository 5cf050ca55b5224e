"""The container images, built for real and run: the agent simulates devices in each of them.

Takes minutes, root, buildah and debootstrap; RUN_IMAGE_TESTS=1 runs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import exporter
from exporter.negotiation import Format
from tests.exposition_readers import read
from tests.images import BASE, INSTALLED, Builder, needs

pytestmark = [pytest.mark.image, pytest.mark.timeout(3000)]

ROOT = Path(__file__).resolve().parents[2]
TARGETS = re.findall(r"^FROM (?:runtime|base) AS (\S+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
EXTRAS = {"nvidia": {"nvidia-ml-py"}, "amd": {"grpcio"}, "all": {"nvidia-ml-py", "grpcio", "zstandard"}}
"""Target → which of the optional packages it has."""
ANY_TARGET = pytest.mark.parametrize("target", TARGETS)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """With an image of each target."""
    needs()
    found = Builder(tmp_path_factory.mktemp("image"))
    try:
        found.make_base()
        for target in TARGETS:
            found.build(target, "--layers", "--build-arg", "VERSION=1.2.3", "--build-arg", "REVISION=abc")
        yield found
    finally:
        found.close()


@ANY_TARGET
def test_the_agent_runs_in_the_image(builder: Builder, target: str) -> None:
    with builder.container(f"localhost/accel-exporter:{target}") as container:
        assert exporter.__version__ in container.run("accel-exporter", "version")
        text = container.run("accel-exporter", "once", "--simulate", "nvidia=2", "--schema", "common")
        devices = [sample for sample in read(text.encode(), Format.TEXT) if sample.name == "accel_info"]
        assert len(devices) == 2
        assert {dict(sample.labels)["simulated"] for sample in devices} == {"true"}


@ANY_TARGET
def test_it_runs_as_nobody_who_can_write_nothing(builder: Builder, target: str) -> None:
    with builder.container(f"localhost/accel-exporter:{target}") as container:
        assert container.run("id", "-u").strip() == "65532"
        writable = container.run("find", "/usr/local", "-writable", "-not", "-type", "l")
        assert writable.split() == []


@ANY_TARGET
def test_the_bill_of_materials_lists_what_is_installed(builder: Builder, target: str) -> None:
    with builder.container(f"localhost/accel-exporter:{target}") as container:
        text = (container.files / INSTALLED / "sbom.cdx.json").read_text()
        (library,) = (container.files / INSTALLED / "lib").glob("python*/site-packages")
        folders = {path.name.removesuffix(".dist-info") for path in library.glob("*.dist-info")}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    told = {(part["name"].lower().replace("-", "_"), part["version"]) for part in json.loads(text)["components"]}
    assert told == {(name.lower(), version) for name, _, version in (each.partition("-") for each in folders)}
    names = {name.replace("_", "-") for name, _ in told}
    every = set().union(*EXTRAS.values())
    assert names & every == EXTRAS.get(target, set())


def test_the_same_sources_give_the_same_image(builder: Builder) -> None:
    digests = set()
    for _ in range(2):
        image = builder.build("all", "--no-cache", tag="again")
        with builder.container(image) as container:
            digests.add(container.digest(INSTALLED))
    assert len(digests) == 1


@ANY_TARGET
def test_the_image_says_what_it_is(builder: Builder, target: str) -> None:
    config = json.loads(builder("inspect", "--type", "image", f"localhost/accel-exporter:{target}"))["Docker"]["config"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["version"], labels["revision"]) == ("accel-exporter", "1.2.3", "abc")
    assert labels["licenses"] == "Apache-2.0"
    assert config["Entrypoint"] == ["accel-exporter"]
    asks = any(variable.startswith("NVIDIA_VISIBLE_DEVICES=") for variable in config["Env"])
    assert asks is (target in ("nvidia", "all"))
    assert BASE not in json.dumps(labels)
