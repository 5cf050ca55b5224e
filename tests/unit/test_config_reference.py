"""The model documents itself, and docs/configuration.md says what the model says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect as kinds

from exporter.config.build import default_of, model, unwrap
from exporter.config.overlay import FLAGS, settings
from exporter.config.reference import reference

ROOT = Path(__file__).parents[2]


def fields(kind: kinds.Type, path: str = "") -> Iterator[tuple[str, kinds.Field]]:
    inner, _ = unwrap(kind)
    match inner:
        case kinds.StructType(fields=below):
            for field in below:
                yield f"{path}{field.name}", field
                yield from fields(field.type, f"{path}{field.name}.")
        case kinds.DictType(value_type=below):
            yield from fields(below, path)
        case kinds.VarTupleType(item_type=below):
            yield from fields(below, path)


FIELDS = dict(fields(model()))


def described(kind: kinds.Type) -> bool:
    inner, _ = unwrap(kind)
    if isinstance(kind, kinds.Metadata) and (kind.extra_json_schema or {}).get("description"):
        return True
    return isinstance(inner, kinds.StructType) and bool(inner.cls.__doc__)


def numbers(kind: kinds.Type) -> Iterator[kinds.IntType | kinds.FloatType]:
    inner, extra = unwrap(kind)
    match inner:
        case kinds.IntType() | kinds.FloatType():
            yield inner
        case kinds.UnionType(types=types):
            for member in types:
                yield from numbers(member)
        case kinds.DictType(value_type=below) if not extra.get("options"):
            yield from numbers(below)


@pytest.mark.parametrize("name", FIELDS)
def test_every_key_is_described(name: str) -> None:
    assert described(FIELDS[name].type)


@pytest.mark.parametrize("name", FIELDS)
def test_every_number_has_bounds(name: str) -> None:
    for number in numbers(FIELDS[name].type):
        assert number.ge is not None
        assert number.le is not None


WITHOUT_DEFAULT = {
    "device_classes.device_class",
    "attribution.tenant_from.source",
    "attribution.job_rules.label",
    "attribution.job_rules.kind",
}
"""Keys of list items that mean nothing without them."""


@pytest.mark.parametrize("name", FIELDS)
def test_every_default_fits_its_own_type(name: str) -> None:
    field = FIELDS[name]
    default = default_of(field)
    if default is msgspec.NODEFAULT:
        assert name in WITHOUT_DEFAULT
    elif isinstance(default, float):
        (number,) = numbers(field.type)
        assert number.ge is not None
        assert number.le is not None
        assert number.ge <= default <= number.le
    else:
        checked = unwrap(field.type)[1].get("check")
        assert checked is None or checked.accepts(default)


def test_the_document_is_what_the_model_says() -> None:
    path = ROOT / "docs" / "configuration.md"
    assert path.read_text(encoding="utf-8") == reference(), (
        "run: python -m exporter.config.reference > docs/configuration.md"
    )


def test_the_document_has_every_variable_and_flag() -> None:
    text = reference()
    for setting in settings({}):
        assert f"`{setting.variable}`" in text
    for name, flag in FLAGS.items():
        assert f"`--{name} " in text
        assert f"`{flag.key}`" in text


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    width = 0
    for line in reference().splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        width = width or cells
        assert cells == width, line
