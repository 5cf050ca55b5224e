"""Builds the typed configuration from a tree of values, and tells everything that does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from msgspec import NODEFAULT
from msgspec import inspect as kinds

from exporter.catalogue import Option
from exporter.config import Config
from exporter.config.checks import Check
from exporter.config.problems import KeyPath, Problem, show_key, unknown, wrong
from exporter.config.yaml import Node

Extra = Mapping[str, Any]
Options = Mapping[str, Mapping[str, Option]]

LONGEST: Final = 4096
"""Characters in a text, where nothing less is said."""


class _Bad:
    """The value does not fit, and a problem was noted."""


BAD: Final = _Bad()


@dataclass(frozen=True, slots=True)
class Context:
    """What the model alone does not know: which collectors there are and which options they have."""

    options: Options
    problems: list[Problem]

    def wrong(self, node: Node, path: KeyPath, expected: str) -> _Bad:
        self.problems.append(wrong(node.source, path, node.value, expected))
        return BAD


def build(kind: kinds.Type, node: Node, path: KeyPath, context: Context, extra: Extra | None = None) -> Any:
    """The value of type ``kind`` that ``node`` stands for, or BAD.

    What is wrong inside a section is noted and left at its default, so that one run tells all problems.
    """
    extra = extra or {}
    match kind:
        case kinds.Metadata(type=inner, extra=more):
            return build(inner, node, path, context, {**extra, **(more or {})})
        case kinds.StructType():
            return _struct(kind, node, path, context)
        case kinds.DictType() if extra.get("options"):
            return _options(kind, node, path, context, extra)
        case kinds.DictType():
            return _mapping(kind, node, path, context, extra)
        case kinds.VarTupleType():
            return _list(kind, node, path, context)
        case kinds.UnionType():
            return _union(kind, node, path, context, extra)
        case kinds.FloatType() if _is_number(node.value):
            # A whole number is one, too; the bounds are checked first, since the largest ones are no float.
            return (
                float(node.value)
                if _fits(kind, extra, node.value)
                else context.wrong(node, path, describe(kind, extra))
            )
        case kinds.StrType() if isinstance(node.value, bool | int | float) and _fits(kind, extra, f"{node.value}"):
            # Most often a name or a version that YAML takes for a number.
            return context.wrong(node, path, f"{describe(kind, extra)}, as text: put it in quotes")
        case _:
            return node.value if _fits(kind, extra, node.value) else context.wrong(node, path, describe(kind, extra))


def _fits(kind: kinds.Type, extra: Extra, value: Any) -> bool:
    match kind:
        case kinds.BoolType():
            return isinstance(value, bool)
        case kinds.IntType(ge=low, le=high):
            return _is_number(value) and isinstance(value, int) and _within(value, low, high)
        case kinds.FloatType(ge=low, le=high):
            return _is_number(value) and _within(value, low, high)
        case kinds.LiteralType(values=values):
            return isinstance(value, str) and value in values
        case kinds.StrType(max_length=longest):
            check: Check | None = extra.get("check")
            line = value.replace("\n", "") if extra.get("lines") and isinstance(value, str) else value
            return is_text(line, longest or LONGEST) and (check is None or check.accepts(value))
        case kinds.NoneType():
            return value is None
        case _:
            return False


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _within(value: float, low: float | None, high: float | None) -> bool:
    # NaN is in no range; math.isnan cannot be asked about a whole number that is too large for a float.
    return value == value and (low is None or value >= low) and (high is None or value <= high)


def is_text(value: object, longest: int = LONGEST) -> bool:
    """Text that can stand in a label, a log line and a path: no control characters, no half of a surrogate pair."""
    return (
        isinstance(value, str)
        and len(value) <= longest
        and not any(
            ord(character) < 32 or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff"
            for character in value
        )
    )


def _struct(kind: kinds.StructType, node: Node, path: KeyPath, context: Context) -> Any:
    given = _entries(node)
    if given is None:
        return context.wrong(node, path, describe(kind, {}))
    fields = {field.name: field for field in kind.fields}
    for name in (name for name in given if name not in fields):
        context.problems.append(unknown(given[name].source, (*path, name), given[name].value, list(fields)))
    values: dict[str, Any] = {}
    complete = True
    for name, field in fields.items():
        if name in given:
            value = build(field.type, given[name], (*path, name), context)
            if value is not BAD:
                values[name] = value
            elif field.required:
                complete = False
        elif field.required:
            complete = False
            expected = describe(field.type, {})
            context.problems.append(Problem(node.source, show_key((*path, name)), "the key is missing", expected))
    return kind.cls(**values) if complete else BAD


def _mapping(kind: kinds.DictType, node: Node, path: KeyPath, context: Context, extra: Extra) -> Any:
    given = _entries(node)
    if given is None:
        return context.wrong(node, path, describe(kind, extra))
    known = list(context.options) if extra.get("keys") == "collectors" else None
    values: dict[str, Any] = {}
    for name, entry in given.items():
        if known is not None and name not in known:
            context.problems.append(unknown(entry.source, (*path, name), entry.value, known))
            continue
        value = build(kind.value_type, entry, (*path, name), context)
        if value is not BAD:
            values[name] = value
    return values


def _entries(node: Node) -> dict[str, Node] | None:
    """A section whose keys are all commented out is an empty one."""
    if node.value is None:
        return {}
    return node.value if isinstance(node.value, dict) else None


def _list(kind: kinds.VarTupleType, node: Node, path: KeyPath, context: Context) -> Any:
    if not isinstance(node.value, tuple) or not _length_fits(kind, len(node.value)):
        return context.wrong(node, path, describe(kind, {}))
    items = [build(kind.item_type, item, (*path, index), context) for index, item in enumerate(node.value)]
    return tuple(item for item in items if item is not BAD)


def _length_fits(kind: kinds.VarTupleType, length: int) -> bool:
    return (kind.min_length or 0) <= length <= (kind.max_length or length)


def _union(kind: kinds.UnionType, node: Node, path: KeyPath, context: Context, extra: Extra) -> Any:
    for member in kind.types:
        inner, more = unwrap(member)
        if isinstance(inner, kinds.VarTupleType):
            if isinstance(node.value, tuple):
                return build(inner, node, path, context, more)
        elif _fits(inner, more, node.value):
            return node.value
    return context.wrong(node, path, describe(kind, extra))


def unwrap(kind: kinds.Type) -> tuple[kinds.Type, Extra]:
    """The type itself and what was annotated to it."""
    extra: dict[str, Any] = {}
    while isinstance(kind, kinds.Metadata):
        extra.update(kind.extra or {})
        kind = kind.type
    return kind, extra


def _options(kind: kinds.DictType, node: Node, path: KeyPath, context: Context, extra: Extra) -> Any:
    given = _entries(node)
    if given is None:
        return context.wrong(node, path, describe(kind, extra))
    table = context.options.get(str(path[-2]), {})
    values: dict[str, Any] = {}
    for name, entry in given.items():
        option = table.get(name)
        if option is None:
            context.problems.append(unknown(entry.source, (*path, name), entry.value, list(table)))
            continue
        value = _option(option, entry)
        if value is BAD:
            context.wrong(entry, (*path, name), describe_option(option))
        else:
            values[name] = value
    return values


def _option(option: Option, node: Node) -> Any:
    value: Any = node.value
    match option.type:
        case "bool":
            return value if isinstance(value, bool) else BAD
        case "int":
            # The worker protocol has no larger ones.
            fitting = isinstance(value, int) and abs(value) < 2**63
            return value if fitting and _is_number(value) and _within(value, option.minimum, option.maximum) else BAD
        case "float":
            fitting = _is_number(value) and abs(value) < 1e300
            return float(value) if fitting and _within(value, option.minimum, option.maximum) else BAD
        case "str":
            return value if is_text(value) and (not option.choices or value in option.choices) else BAD
        case _:
            items = [item.value for item in value] if isinstance(value, tuple) else [None]
            fitting = all(is_text(item) and (not option.choices or item in option.choices) for item in items)
            return tuple(items) if fitting else BAD


def describe(kind: kinds.Type, extra: Extra) -> str:
    """What is expected, in words: completes "expected …"."""
    inner, more = unwrap(kind)
    extra = {**extra, **more}
    unit = f" ({extra['unit']})" if "unit" in extra else ""
    match inner:
        case kinds.BoolType():
            return "true or false"
        case kinds.IntType(ge=low, le=high):
            return f"a whole number{_range(low, high)}{unit}"
        case kinds.FloatType(ge=low, le=high):
            return f"a number{_range(low, high)}{unit}"
        case kinds.StrType(max_length=longest):
            check: Check | None = extra.get("check")
            text = check.expected if check else "a text"
            return f"{text} (at most {longest} characters)" if longest else text
        case kinds.NoneType():
            return "null"
        case kinds.LiteralType(values=values):
            return f"one of {', '.join(str(value) for value in values)}"
        case kinds.UnionType(types=types):
            return _describe_union(types)
        case kinds.VarTupleType(item_type=item, min_length=least, max_length=most):
            bounds = [f"at least {least}"] * bool(least) + [f"at most {most}"] * bool(most)
            count = f" ({', '.join(bounds)})" if bounds else ""
            return f"a list{count} of: {describe(item, {})}"
        case kinds.DictType() if extra.get("options"):
            return "a mapping of options to values"
        case kinds.DictType(value_type=value):
            names = "collectors' names" if extra.get("keys") == "collectors" else "names"
            return f"a mapping of {names}, each to {describe(value, {})}"
        case kinds.StructType(fields=fields):
            return f"a mapping with any of the keys {', '.join(field.name for field in fields)}"
        case _:
            return "a value"


def _describe_union(types: Sequence[kinds.Type]) -> str:
    words: list[str] = []
    others: list[str] = []
    for member in types:
        inner, more = unwrap(member)
        match inner:
            case kinds.BoolType():
                words += ["true", "false"]
            case kinds.LiteralType(values=values):
                words += [str(value) for value in values]
            case _:
                others.append(describe(inner, more))
    return " or ".join(([f"one of {', '.join(words)}"] if words else []) + others)


def describe_option(option: Option) -> str:
    """As ``describe``, for a collector's option."""
    if option.choices:
        chosen = f"one of {', '.join(option.choices)}"
        return f"a list of: {chosen}" if option.type == "list" else chosen
    span = _range(option.minimum, option.maximum)
    words = {"bool": "true or false", "int": f"a whole number{span}", "float": f"a number{span}", "str": "a text"}
    return words.get(option.type, "a list of texts")


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    if low is not None:
        return f" of at least {_number(low)}"
    return f" of at most {_number(high)}" if high is not None else ""


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def model() -> kinds.StructType:
    """The type of the whole configuration."""
    found = kinds.type_info(Config)
    assert isinstance(found, kinds.StructType)
    return found


def default_of(field: kinds.Field) -> Any:
    """The field's default; NODEFAULT if it must be given."""
    if field.default is not NODEFAULT:
        return field.default
    return NODEFAULT if field.default_factory is NODEFAULT else field.default_factory()
