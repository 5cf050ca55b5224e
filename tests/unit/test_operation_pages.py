"""The pages of installation, migration, scaling and troubleshooting name keys, options and values that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from exporter.config.reference import reference
from exporter.program import Source, read
from exporter.registry import survey

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy/helm/accel-exporter"
PAGES: Final = [
    *(ROOT / f"docs/{name}.md" for name in ("install", "migration", "scaling", "troubleshooting")),
    CHART / "README.md",
]
ANY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())


def pattern(key: str) -> str:
    """``<name>`` in a key stands for any name."""
    return re.sub("<[a-z]+>", "[^.]+", key.replace(".", r"\."))


def keys() -> tuple[set[str], set[str]]:
    """Every section and key of the configuration, dotted, as patterns; and those of the keys that are mappings."""
    found: set[str] = set()
    mappings: set[str] = set()
    section = ""
    for line in reference().splitlines():
        if heading := re.fullmatch(r"#+ `(.+?)(?:\[\])?`", line):
            found.add(pattern(heading[1]))
            section = heading[1] + "."
        elif line.startswith("## "):
            section = ""
        elif row := re.match(r"\| `([a-z_]+)` \| (.*)", line):
            key = pattern(section + row[1])
            found.add(key)
            mappings |= {key} if "| a mapping of " in row[2] else set()
    return found, mappings


KEYS, MAPPINGS = keys()


def is_key(name: str) -> bool:
    """A key, or an option of a collector."""
    found = re.fullmatch(r"collectors\.(\w+)\.options\.(\w+)", name)
    if found:
        catalogues = survey().collectors
        return found[1] in catalogues and found[2] in catalogues[found[1]][1].collector.options
    return any(re.fullmatch(key, name) for key in KEYS) or any(re.match(rf"{key}\.", name) for key in MAPPINGS)


def is_value(name: str) -> bool:
    """A value of the chart; below `config` it is a key."""
    found: Any = VALUES
    parts = name.split(".")
    for position, part in enumerate(parts):
        if part == "config":
            return position + 1 == len(parts) or is_key(".".join(parts[position + 1 :]))
        if not isinstance(found, dict):
            return False
        if found == {} and position:
            return True
        if part not in found:
            return False
        found = found[part]
    return True


def dotted(page: Path) -> Iterator[str]:
    """Names with dots in code spans, up to their value."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`\n]+)`", text):
        found = re.match(r"([a-z]+(?:[A-Z][a-z]+)*(?:\.[A-Za-z_]+)+)(?=$|: |=)", span)
        head = found[1].partition(".")[0] if found else ""
        if found and (head in VALUES or head in {key.partition("\\")[0] for key in KEYS}):
            yield found[1]


@ANY_PAGE
def test_every_key_and_value_that_a_page_names_exists(page: Path) -> None:
    assert [name for name in dotted(page) if not is_key(name) and not is_value(name)] == []


def test_the_pages_name_keys_and_values() -> None:
    named = {name for page in PAGES for name in dotted(page)}
    assert {"attribution.raw_copies", "podMonitor.raw.enabled", "collectors.neuron.options.memory_limit_mib"} <= named


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("attribution.raw_copies", True),
        ("attribution.raw_copy", False),
        ("collectors.nvidia.profile", True),
        ("collectors.nvidia.profiles", False),
        ("collectors.nvidia.options.dcgm_address", True),
        ("collectors.nvidia.options.period", False),
        ("nvidia.hostNetwork", True),
        ("nvidia.hostNetworks", False),
        ("nvidia.config.collectors.nvidia.expected_devices", True),
        ("config.attribution.kubernetes.drama", False),
        ("paths.libraries.nvidia", True),
    ],
)
def test_names_that_do_not_exist_are_found(name: str, exists: bool) -> None:
    assert (is_key(name) or is_value(name)) is exists


def blocks(page: Path) -> list[dict[str, Any]]:
    return [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


def test_the_values_of_the_installation_page_are_right(tmp_path: Path) -> None:
    (values,) = [block for block in blocks(ROOT / "docs/install.md") if "nvidia" in block]
    for flavour, settings in values.items():
        assert settings.keys() <= VALUES[flavour].keys()
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings.get("config", {})))
        read(Source(tmp_path / "config.yaml", {}), {})


def test_the_kustomization_names_the_image_of_the_manifests() -> None:
    (found,) = [block for block in blocks(ROOT / "docs/install.md") if "images" in block]
    (manifest,) = found["resources"]
    text = (ROOT / manifest).read_text()
    assert all(f'image: "{image["name"]}:' in text for image in found["images"])


def test_troubleshooting_tells_what_every_state_means() -> None:
    from exporter.selfmetrics import STATES

    text = (ROOT / "docs/troubleshooting.md").read_text()
    told = re.findall(r"^\| `(\w+)` \|[^|]+\|[^|]*\|[^|]+\|$", text, flags=re.MULTILINE)
    assert set(told) == set(STATES) - {"running"}
