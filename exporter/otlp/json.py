"""What an encoded request says, as OTLP's JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).

It reads the bytes that would be sent, so what is printed is what a receiver gets. 64-bit integers are texts in JSON.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Final

from collectors.protobuf import BYTES, Value, double, fields, signed, text

Read = Callable[[Value], object]
Message = Mapping[int, tuple[str, "str | Read"]]
"""Field number → name, and how its value is read: a function, or the name of a message; a list with ``*`` before."""


def _bytes(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _unsigned(value: Value) -> str:
    return str(value if isinstance(value, int) else struct.unpack("<Q", value)[0])


def _signed(value: Value) -> str:
    return str(signed(value) if isinstance(value, int) else struct.unpack("<q", value)[0])


def _double(value: Value) -> float | str:
    found = double(_bytes(value))
    if math.isfinite(found):
        return found
    return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"


def _text(value: Value) -> str:
    return text(_bytes(value))


def _plain(value: Value) -> object:
    return value


def _boolean(value: Value) -> bool:
    return bool(value)


def _unsigned_all(value: Value) -> list[str]:
    return [str(number) for (number,) in struct.iter_unpack("<Q", _bytes(value))]


def _double_all(value: Value) -> list[float]:
    return [float(number) for (number,) in struct.iter_unpack("<d", _bytes(value))]


_MESSAGES: Final[Mapping[str, Message]] = {
    "ExportMetricsServiceRequest": {1: ("resourceMetrics", "*ResourceMetrics")},
    "ResourceMetrics": {1: ("resource", "Resource"), 2: ("scopeMetrics", "*ScopeMetrics")},
    "Resource": {1: ("attributes", "*KeyValue")},
    "KeyValue": {1: ("key", _text), 2: ("value", "AnyValue")},
    "AnyValue": {
        1: ("stringValue", _text),
        2: ("boolValue", _boolean),
        3: ("intValue", _signed),
        4: ("doubleValue", _double),
        5: ("arrayValue", "ArrayValue"),
    },
    "ArrayValue": {1: ("values", "*AnyValue")},
    "ScopeMetrics": {1: ("scope", "InstrumentationScope"), 2: ("metrics", "*Metric")},
    "InstrumentationScope": {1: ("name", _text), 2: ("version", _text)},
    "Metric": {
        1: ("name", _text),
        2: ("description", _text),
        3: ("unit", _text),
        5: ("gauge", "Gauge"),
        7: ("sum", "Sum"),
        9: ("histogram", "Histogram"),
    },
    "Gauge": {1: ("dataPoints", "*NumberDataPoint")},
    "Sum": {
        1: ("dataPoints", "*NumberDataPoint"),
        2: ("aggregationTemporality", _plain),
        3: ("isMonotonic", _boolean),
    },
    "Histogram": {1: ("dataPoints", "*HistogramDataPoint"), 2: ("aggregationTemporality", _plain)},
    "NumberDataPoint": {
        7: ("attributes", "*KeyValue"),
        2: ("startTimeUnixNano", _unsigned),
        3: ("timeUnixNano", _unsigned),
        4: ("asDouble", _double),
        6: ("asInt", _signed),
        8: ("flags", _plain),
    },
    "HistogramDataPoint": {
        9: ("attributes", "*KeyValue"),
        2: ("startTimeUnixNano", _unsigned),
        3: ("timeUnixNano", _unsigned),
        4: ("count", _unsigned),
        5: ("sum", _double),
        6: ("bucketCounts", _unsigned_all),
        7: ("explicitBounds", _double_all),
    },
}


def line(body: bytes) -> str:
    """One line of JSON, as the Collector's OTLP JSON file receiver reads it."""
    return json.dumps(_message("ExportMetricsServiceRequest", body), ensure_ascii=False, separators=(",", ":"))


def _message(kind: str, data: bytes) -> dict[str, object]:
    found: dict[str, object] = {}
    known = _MESSAGES[kind]
    for number, wire, value in fields(data):
        name, how = known[number]
        if not isinstance(how, str):
            found[name] = how(value)
            continue
        assert wire == BYTES, f"{kind}.{name} is a message"
        below = _message(how.removeprefix("*"), _bytes(value))
        if how.startswith("*"):
            items = found.setdefault(name, [])
            assert isinstance(items, list)
            items.append(below)
        else:
            found[name] = below
    return found
