"""OpenTelemetry's standard variables, and what of the OTLP settings does not fit together.

The variables lie below the file: what stands in the file, in ``ACCEL_EXPORTER_*`` or behind a flag counts more. They
are often set for a whole cluster, so one that cannot be used is a warning and not an error, as the specification wants
it (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from exporter.config.build import BAD, Context, build, model
from exporter.config.otlp import Otlp, OtlpEndpoint, receivers
from exporter.config.problems import KeyPath, Problem, show_key, wrong
from exporter.config.yaml import Node, locate, put, source_of

EXPORTER: Final = "OTEL_EXPORTER_OTLP_"
SIGNAL: Final = "OTEL_EXPORTER_OTLP_METRICS_"
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")


class Unusable(ValueError):
    """A variable's value that means nothing; the text says what was expected."""


Read = Callable[[str], object]


class Variable(msgspec.Struct, frozen=True):
    """A standard variable, and the key of ``otlp`` for which it stands."""

    name: str
    key: str
    read: Read


def _text(text: str) -> str:
    return text


def _boolean(text: str) -> bool:
    """The specification knows true, in any case; everything else is false, and worth a word if it is not "false"."""
    if text.lower() not in ("true", "false"):
        raise Unusable("true or false")
    return text.lower() == "true"


def _milliseconds(text: str) -> float:
    try:
        return int(text) / 1000
    except ValueError as error:
        raise Unusable("milliseconds") from error


def _protocol(text: str) -> str:
    if text not in ("http/protobuf", "grpc"):
        raise Unusable("http/protobuf or grpc")
    return text


def _compression(text: str) -> str:
    if text not in ("gzip", "none"):
        raise Unusable("gzip or none")
    return text


def _headers(text: str) -> dict[str, str]:
    """``k=v,k=v``, percent-encoded."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise Unusable("NAME=VALUE,NAME=VALUE")
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def _base(text: str) -> str:
    """A base, below which the signal's path is."""
    if "://" not in text or text.startswith("unix:"):
        return text
    parts = urlsplit(text)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/v1/metrics"))


def _whole(text: str) -> str:
    """The signal's own endpoint is taken as it is; without a path its path is the root."""
    if "://" not in text or text.startswith("unix:"):
        return text
    parts = urlsplit(text)
    return urlunsplit(parts._replace(path=parts.path or "/"))


_EXPORTER: Final[Mapping[str, tuple[str, Read]]] = {
    "ENDPOINT": ("endpoint", _base),
    "PROTOCOL": ("protocol", _protocol),
    "HEADERS": ("headers", _headers),
    "TIMEOUT": ("timeout", _milliseconds),
    "COMPRESSION": ("compression", _compression),
    "CERTIFICATE": ("certificate", _text),
    "CLIENT_KEY": ("client_key", _text),
    "CLIENT_CERTIFICATE": ("client_certificate", _text),
    "INSECURE": ("insecure", _boolean),
}

VARIABLES: Final[tuple[Variable, ...]] = (
    *(
        Variable(prefix + name, key, _whole if key == "endpoint" and prefix == SIGNAL else read)
        for name, (key, read) in _EXPORTER.items()
        for prefix in (SIGNAL, EXPORTER)
    ),
    Variable("OTEL_METRIC_EXPORT_INTERVAL", "interval", _milliseconds),
    Variable("OTEL_METRIC_EXPORT_TIMEOUT", "give_up_after", _milliseconds),
)
"""In the order in which they count: of two for one key the first."""

TEMPORALITY: Final = EXPORTER + "METRICS_TEMPORALITY_PREFERENCE"


def with_standard(tree: Node, environ: Mapping[str, str]) -> Node:
    """``tree`` with what the standard variables say, where it says nothing itself."""
    for key, (name, value) in _given(environ, [])[0].items():
        if locate(tree, ("otlp", key)) is None:
            source = f"environment variable {name}"
            entry: object = {k: Node(v, source) for k, v in value.items()} if isinstance(value, dict) else value
            tree = put(tree, ("otlp", key), Node(entry, source))
    return tree


def warnings(environ: Mapping[str, str], otlp: Otlp) -> tuple[str, ...]:
    """What of the standard variables has no effect, ready to be logged. Nothing where nothing is pushed."""
    if not receivers(otlp):
        return ()
    found: list[str] = []
    _given(environ, found)
    preference = environ.get(TEMPORALITY, "").lower()
    if preference not in ("", "cumulative"):
        found.append(f"{TEMPORALITY} is {preference!r}: this agent sends cumulative sums only")
    return tuple(found)


def _given(environ: Mapping[str, str], problems: list[str]) -> tuple[dict[str, tuple[str, object]], list[str]]:
    """Key → the variable that sets it, and the value. An empty variable counts as not set."""
    found: dict[str, tuple[str, object]] = {}
    for variable in VARIABLES:
        text = environ.get(variable.name, "").strip()
        if not text or variable.key in found:
            continue
        try:
            value = variable.read(text)
            _check(variable.key, value)
        except (Unusable, ValueError) as error:
            # A value of headers is a secret: none is shown.
            problems.append(f"environment variable {variable.name} is not used: expected {error}")
            continue
        found[variable.key] = (variable.name, value)
    enabled = _enabled(environ)
    if enabled is not None:
        found["enabled"] = enabled
    return found, problems


def _enabled(environ: Mapping[str, str]) -> tuple[str, bool] | None:
    """Whether the variables switch push on or off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED", False
    chosen = [name.strip().lower() for name in environ.get("OTEL_METRICS_EXPORTER", "").split(",") if name.strip()]
    return ("OTEL_METRICS_EXPORTER", "otlp" in chosen) if chosen else None


def _check(key: str, value: object) -> None:
    """Raises Unusable where the key cannot have the value."""
    section = next(field for field in model().fields if field.name == "otlp").type
    fields = {field.name: field for field in section.fields}  # type: ignore[attr-defined]
    problems: list[Problem] = []
    node = Node({k: Node(v, "") for k, v in value.items()} if isinstance(value, dict) else value, "")
    if build(fields[key].type, node, ("otlp", key), Context({}, problems)) is BAD or problems:
        raise Unusable(problems[0].expected)


def contradictions(otlp: Otlp, tree: Node) -> Iterator[Problem]:
    """Values that are right alone and wrong together."""
    own = OtlpEndpoint(**{name: getattr(otlp, name) for name in OtlpEndpoint.__struct_fields__})
    yield from _of_receiver(own, ("otlp",), tree)
    for index, receiver in enumerate(otlp.endpoints):
        path: KeyPath = ("otlp", "endpoints", index)
        if not receiver.endpoint:
            expected = "where the receiver is, such as http://collector:4318"
            yield Problem(source_of(tree, path), show_key((*path, "endpoint")), "the key is missing", expected)
        yield from _of_receiver(receiver, path, tree)
    if any(receiver.protocol == "grpc" for receiver in receivers(otlp)) and importlib.util.find_spec("grpc") is None:
        path = next(
            (("otlp", "endpoints", i, "protocol") for i, one in enumerate(otlp.endpoints) if one.protocol == "grpc"),
            ("otlp", "protocol"),
        )
        expected = "http/protobuf, or the package that is missing: pip install grpcio"
        yield wrong(source_of(tree, path), path, "grpc", expected)


def _of_receiver(receiver: OtlpEndpoint, path: KeyPath, tree: Node) -> Iterator[Problem]:
    def problem(key: str, value: object, expected: str) -> Problem:
        return wrong(source_of(tree, (*path, key)), (*path, key), value, expected)

    scheme = receiver.endpoint.partition("://")[0]
    if receiver.protocol == "http/protobuf" and receiver.endpoint and scheme not in ("http", "https"):
        yield problem("endpoint", receiver.endpoint, "a URL that begins with http:// or https://, or protocol grpc")
    if bool(receiver.client_key) != bool(receiver.client_certificate):
        key, other = ("client_key", "client_certificate")[:: 1 if receiver.client_key else -1]
        yield problem(key, getattr(receiver, key), f"{other} beside it: both are needed for mutual TLS")
    for name, value in receiver.headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isascii():
            yield problem("headers", name, "names of letters, digits, - and _, and values in ASCII")
