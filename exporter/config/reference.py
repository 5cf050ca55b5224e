"""Writes docs/configuration.md from the model: ``python -m exporter.config.reference > docs/configuration.md``."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as kinds

from exporter.config.build import default_of, describe, model, unwrap
from exporter.config.overlay import FILE_VARIABLE, FLAGS, PREFIX
from exporter.config.yaml import DEPTH, VALUES

_INTRODUCTION: Final = f"""\
<!-- Made from exporter/config/ by `python -m exporter.docs`. Do not edit. -->
# Configuration

Every setting has a default: without any configuration the agent finds the devices of the node and serves them. The
file is one YAML mapping; [examples/config.yaml](examples/config.yaml) has every key. `accel-exporter check-config`
says whether a configuration can be used, before anything is restarted.

## Where settings come from

The later one counts: defaults, the file, the environment, flags. Sections merge key by key; lists and single values are
replaced whole.

- **File**: the flag `--config FILE`, else the variable `{FILE_VARIABLE}`. One document in UTF-8 of at most 1 MiB,
  {DEPTH} levels and {VALUES:,} values, without anchors, aliases and tags. Only `true` and `false` are booleans (`yes`
  and `on` are texts), and no key stands twice.
- **Environment**: `{PREFIX}`, then the key's path in capitals, with two underscores between its levels. Lists are
  written `A,B` and mappings `NAME=VALUE,NAME=VALUE`. What Kubernetes gives a pod for a Service of this name
  (`{PREFIX}SERVICE_HOST`, `{PREFIX}PORT` and so on) is passed over.
- **Flags**: those of the table, and `--set KEY=VALUE` for every other key, such as `--set intervals.slow=120`.

Unknown keys, variables and flags are errors. Every error names its place (file and line, variable or flag), the key,
the value and what was expected; all of them are told at once. Values that may be secrets are not shown. At the start an
error ends the agent with exit status 2.

On SIGHUP the file is read again, under the same environment and flags. If there is an error, it is logged, the old
configuration stays in force and `accel_exporter_config_reload_success` is 0.

## Flags
"""


def reference() -> str:
    """The reference in Markdown: all keys with meaning, expectation, default and variable."""
    parts = [_INTRODUCTION, _flags(), "## Settings\n", *_section(model(), (), "")]
    return "\n".join(parts)


def _flags() -> str:
    rows = [
        f"| `--{name} {_cell(flag.metavar)}` | `{flag.key}` | {'yes' if flag.repeatable else ''} |"
        for name, flag in FLAGS.items()
    ]
    return "\n".join(["| flag | sets | can be repeated |", "|---|---|---|", *rows, ""])


def _section(kind: kinds.StructType, path: tuple[str, ...], about: str) -> Iterator[str]:
    """A table of the section's own keys, then the sections inside it."""
    inside: list[tuple[kinds.StructType, tuple[str, ...], str]] = []
    rows: list[str] = []
    for field in kind.fields:
        inner, _ = unwrap(field.type)
        step = (*path, field.name)
        match inner:
            case kinds.StructType():
                inside.append((inner, step, ""))
            case kinds.DictType(value_type=kinds.StructType() as below):
                inside.append((below, (*step, "<name>"), _description(field.type)))
            case kinds.VarTupleType(item_type=kinds.StructType() as below):
                inside.append((below, (*path, f"{field.name}[]"), _description(field.type)))
            case _:
                rows.append(_row(field, step))
    if path:
        yield f"### `{'.'.join(path)}`\n"
        yield " ".join(text for text in (about, inspect.cleandoc(kind.cls.__doc__ or "")) if text) + "\n"
    if rows:
        yield "\n".join(["| key | meaning | expected | default | variable |", "|---|---|---|---|---|", *rows, ""])
    for section, step, text in inside:
        yield from _section(section, step, text)


def _row(field: kinds.Field, path: tuple[str, ...]) -> str:
    variable = PREFIX + "__".join(step.upper() for step in path)
    if unwrap(field.type)[1].get("options"):
        variable += "__<OPTION>"
    cells = [
        f"`{field.name}`",
        _description(field.type),
        describe(field.type, {}),
        _default(default_of(field)),
        "file only" if any(step.endswith("[]") for step in path) else f"`{variable}`",
    ]
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _description(kind: kinds.Type) -> str:
    if isinstance(kind, kinds.Metadata):
        return str((kind.extra_json_schema or {}).get("description", "")) or _description(kind.type)
    return ""


def _default(value: Any) -> str:
    if value is NODEFAULT:
        return "must be given"
    if value == "":
        return "empty"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.stdout.write(reference())
