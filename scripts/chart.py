"""Writes what the chart and the plain manifests are made of, from where it is made by hand.

    python scripts/chart.py [--check] [--helm PROGRAM]

- the chart's copies of alerts/ and dashboards/, since a packaged chart holds nothing from outside it
- the tables of the chart's README, from the comments in values.yaml
- the chart's version, from the agent's
- with --helm, deploy/manifests/, from the chart

--check writes nothing, names what would be written, and ends with 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "deploy/helm/accel-exporter"
MANIFESTS: Final = ROOT / "deploy/manifests"
FLAVOURS: Final = ("auto", "nvidia", "amd", "neuron", "gaudi", "tpu")
NAMESPACE: Final = "accel-exporter"
LONGEST: Final = 60
"""Characters of a default that stands in the table; longer ones are looked up in values.yaml."""
BEGIN, END = "<!-- Values: made by `make chart`. -->", "<!-- End of values. -->"

MANIFEST_HEAD: Final = """\
# Made from deploy/helm/accel-exporter by `make chart`, for those who use no Helm. The image's name stands for yours.
# For Kubernetes 1.31 and newer: older ones know no recursiveReadOnly.
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
  labels:
    # The kubelet's socket is mounted from the host, which only this level of pod security allows.
    pod-security.kubernetes.io/enforce: privileged
"""


def copies() -> dict[Path, str]:
    """Files of the chart that stand elsewhere in the repository."""
    found: dict[Path, str] = {}
    for source in sorted((ROOT / "alerts").rglob("*.yaml")):
        if "groups" in (yaml.safe_load(source.read_text()) or {}):
            found[CHART / "files/alerts" / source.name] = source.read_text()
    for source in sorted((ROOT / "dashboards").rglob("*.json")):
        found[CHART / "files/dashboards" / source.name] = source.read_text()
    return found


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "exporter/__init__.py").read_text(), flags=re.MULTILINE)
    if found is None:
        raise SystemExit("exporter/__init__.py has no __version__")
    return found[1]


def chart_file() -> str:
    text = (CHART / "Chart.yaml").read_text()
    text = re.sub(r"^version: .*$", f"version: {version()}", text, flags=re.MULTILINE)
    return re.sub(r"^appVersion: .*$", f'appVersion: "{version()}"', text, flags=re.MULTILINE)


# The README's tables


def comment_above(lines: list[str], line: int) -> str:
    """The comment that stands right above a line, as one paragraph."""
    above: list[str] = []
    while line > 0 and (found := re.fullmatch(r"\s*# ?(.*)", lines[line - 1])):
        above.append(found[1])
        line -= 1
    return " ".join(reversed(above))


def described(node: yaml.MappingNode, lines: list[str], path: str = "") -> Iterator[tuple[str, yaml.Node, str]]:
    """Each key below a mapping with its value and comment, in the file's order."""
    for key, value in node.value:
        name = f"{path}.{key.value}" if path else str(key.value)
        yield name, value, comment_above(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from described(value, lines, name)


def shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= LONGEST else "see values.yaml"


def row(name: str, default: object, text: str) -> str:
    return f"| `{name}` | {shown(default)} | {text.replace('|', chr(92) + '|')} |"


def at(values: object, path: str) -> object:
    for key in path.split("."):
        assert isinstance(values, dict)
        values = values[key]
    return values


def tables() -> str:
    """What stands between the marks of the README."""
    source = (CHART / "values.yaml").read_text()
    lines = source.splitlines()
    values = yaml.safe_load(source)
    root = yaml.compose(source)
    assert isinstance(root, yaml.MappingNode)
    entries = list(described(root, lines))
    inner = {name for name, _, _ in entries if any(other.startswith(f"{name}.") for other, _, _ in entries)}
    head = ["| value | default | meaning |", "|---|---|---|"]
    shared: list[str] = []
    flavours: list[str] = []
    meanings: dict[str, str] = {}
    for name, _, text in entries:
        flavour, _, key = name.partition(".")
        if flavour in FLAVOURS:
            if not key:
                flavours += ["", f"#### `{flavour}`", "", text, "", *head]
            elif "." not in key:
                meanings.setdefault(key, text)
                default = at(values, name)
                # What is as in the first one, and is not spoken of, need not be told again.
                if text or default != at(values, f"{FLAVOURS[0]}.{key}"):
                    flavours.append(row(name, default, text or meanings[key]))
        elif name in inner and text:
            shared.append(f"| **`{name}`** | | {text} |")
        elif name not in inner:
            shared.append(row(name, at(values, name), text))
    return "\n".join(["### Shared", "", *head, *shared, "", "### Flavours", *flavours, ""])


def readme() -> str:
    text = (CHART / "README.md").read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{CHART / 'README.md'} lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def manifests(helm: str, chart: Path) -> dict[Path, str]:
    """Each flavour as the chart makes it by default, without what only Helm understands."""
    found = {}
    for flavour in FLAVOURS:
        chosen = ["--set", f"auto.enabled={str(flavour == 'auto').lower()},{flavour}.enabled=true"]
        command = [
            helm,
            "template",
            NAMESPACE,
            str(chart),
            "--namespace",
            NAMESPACE,
            "--kube-version",
            "1.31.0",
            *chosen,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"helm template fails for {flavour}: {done.stderr}")
        text = re.sub(
            r"^# Source: .*\n|^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n",
            "",
            done.stdout,
            flags=re.MULTILINE,
        )
        found[MANIFESTS / f"{flavour}.yaml"] = MANIFEST_HEAD.format(namespace=NAMESPACE) + text
    return found


def sources() -> Mapping[Path, str]:
    """The chart's own files that are made, with their texts."""
    return {**copies(), CHART / "Chart.yaml": chart_file(), CHART / "README.md": readme()}


@contextmanager
def chart_with(files: Mapping[Path, str]) -> Iterator[Path]:
    """A copy of the chart in which these files are as they will be: what is rendered from it is up to date."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / CHART.name
        shutil.copytree(CHART, copy)
        for path in stale(files):
            (copy / path.relative_to(CHART)).unlink()
        for path, text in files.items():
            place = copy / path.relative_to(CHART)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        yield copy


def made(helm: str) -> Mapping[Path, str]:
    """Every file that is made, with its text."""
    files = sources()
    if not helm:
        return files
    with chart_with(files) as chart:
        return {**files, **manifests(helm, chart)}


def stale(files: Mapping[Path, str]) -> list[Path]:
    """Copies of what is no more."""
    return [path for path in sorted(CHART.glob("files/*/*")) if path not in files]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if something would be written")
    parser.add_argument("--helm", default="", help="Helm, with which the plain manifests are made, too")
    args = parser.parse_args()
    files = made(args.helm)
    changed = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    gone = stale(files)
    for path in [*changed, *gone]:
        print(f"{'out of date' if args.check else 'written' if path in files else 'removed'}: {path.relative_to(ROOT)}")
    if args.check:
        return int(bool(changed or gone))
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
