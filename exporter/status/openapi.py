"""Makes assets/openapi.json from model.py: ``python -m exporter.status.openapi`` writes the file."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from exporter.status import model
from exporter.status.page import FOLDER

DOCUMENT: Final = FOLDER / "openapi.json"
VERSION: Final = "1.0.0"
"""Of the API. The middle number grows with each field that is added."""

_ANSWERS: Final[dict[str, tuple[str, type[msgspec.Struct], str]]] = {
    "devices": ("getDevices", model.Devices, "Devices and parts with their newest values, health and workloads."),
    "history": ("getHistory", model.History, "The last points of the main quantities, for small curves."),
    "status": ("getStatus", model.Status, "The agent, its collectors, attribution and OTLP push."),
    "mapping": ("getMapping", model.Mapped, "Which raw series feeds which common metric."),
    "config": ("getConfig", model.Settings, "The configuration in force, without secrets and places of files."),
}
_PARAMETERS: Final[dict[str, list[dict[str, Any]]]] = {
    "history": [
        {
            "name": "since",
            "in": "query",
            "required": False,
            "description": "Only points later than this Unix time in seconds, such as the last of the answer before.",
            "schema": {"type": "number", "minimum": 0},
        }
    ],
    "mapping": [
        {
            "name": "collector",
            "in": "query",
            "required": False,
            "description": "Only the series of this collector.",
            "schema": {"type": "string", "maxLength": 100},
        }
    ],
}
_TEXT: Final = {"content": {"text/plain": {"schema": {"type": "string"}}}}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    answers = [answer for _, answer, _ in _ANSWERS.values()]
    schemas, components = msgspec.json.schema_components(answers, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "accel-exporter",
            "version": VERSION,
            "summary": "What the agent of one node knows now.",
            "description": "Read-only. Units are those of the common schema. What a device does not tell is left out.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "../.."}],
        "paths": {
            f"/api/v1/{name}": {
                "get": {
                    "operationId": operation,
                    "summary": summary,
                    "parameters": _PARAMETERS.get(name, []),
                    "responses": {
                        "200": {"description": "Done.", "content": {"application/json": {"schema": schema}}},
                        "400": {"description": "A parameter is not what it should be.", **_TEXT},
                    },
                }
            }
            for (name, (operation, _, summary)), schema in zip(_ANSWERS.items(), schemas, strict=True)
        },
        "components": {"schemas": {name: _untitled(schema) for name, schema in components.items()}},
    }


def _untitled(schema: Any) -> Any:
    """Without the names of the types, which the references say already."""
    if isinstance(schema, dict):
        told = {name: value for name, value in schema.items() if name != "title" or not isinstance(value, str)}
        return {name: _untitled(value) for name, value in told.items()}
    return [_untitled(value) for value in schema] if isinstance(schema, list) else schema


def text() -> str:
    """The document as the file has it."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(text())
