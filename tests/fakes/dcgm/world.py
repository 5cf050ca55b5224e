"""A world: what an engine finds on the machine, as a value that tests build, change and write to a file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

NONE, GPU, VGPU, SWITCH, GPU_I, GPU_CI, LINK, CPU, CPU_CORE = range(9)
"""Entity groups."""

Value = int | float | str
"""A number, a text, the name of a blank; ``value+rate/s`` grows from the epoch on, ``value@seconds`` is that old."""
Key = tuple[int, int, int]
"""Entity group, entity, field."""
Line = tuple[str | int | float, ...]


@dataclass(frozen=True, slots=True)
class World:
    """Immutable: each change is another world."""

    system: Mapping[str, str | int | float] = field(default_factory=dict)
    metas: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """The library's fields: level and type."""
    gpus: Mapping[int, Mapping[str, str | int]] = field(default_factory=dict)
    """What a GPU tells of itself."""
    values: Mapping[Key, tuple[Value, int]] = field(default_factory=dict)
    """Value and status."""
    lines: tuple[Line, ...] = ()
    """Everything else, as it stands in the file."""

    def with_system(self, **keys: str | int | float) -> World:
        return replace(self, system={**self.system, **keys})

    def without_system(self, *keys: str) -> World:
        return replace(self, system={key: value for key, value in self.system.items() if key not in keys})

    def with_gpu(self, gpu: int, **facts: str | int) -> World:
        """The same world with a GPU more, or with other facts about one."""
        return replace(self, gpus={**self.gpus, gpu: {**self.gpus.get(gpu, {}), **facts}})

    def with_values(self, entity: tuple[int, int], values: Mapping[int, Value], status: int = 0) -> World:
        more = {(*entity, number): (value, status) for number, value in values.items()}
        return replace(self, values={**self.values, **more})

    def value(self, entity: tuple[int, int], number: int) -> Value:
        """Raises KeyError for a field that the entity has not."""
        return self.values[*entity, number][0]

    def with_lines(self, *lines: Line) -> World:
        return replace(self, lines=(*self.lines, *lines))

    def without_lines(self, verb: str) -> World:
        return replace(self, lines=tuple(line for line in self.lines if line[0] != verb))

    def without_fields(self, *numbers: int) -> World:
        """The same world with a library that does not know these fields."""
        return replace(self, metas={number: meta for number, meta in self.metas.items() if number not in numbers})

    def fails(self, function: str, code: int) -> World:
        return self.with_lines(("behave", "rc", function, code))

    def hangs(self, function: str) -> World:
        return self.with_lines(("behave", "hang", function, 1))

    def crashes(self, function: str) -> World:
        return self.with_lines(("behave", "crash", function, 1))

    def slow(self, function: str, milliseconds: int) -> World:
        return self.with_lines(("behave", "delay_ms", function, milliseconds))

    def xid(self, entity: tuple[int, int], code: int, at: float | None = None) -> World:
        """The entity has an Xid, now or at another time."""
        micros = int((time.time() if at is None else at) * 1e6)
        return self.with_lines(("xid", *entity, micros, code))

    def lost(self, gpu: int) -> World:
        """What a GPU off the bus looks like: every value is a plain blank with a good status."""
        gone = {key: ("blank", 0) if key[:2] == (GPU, gpu) else value for key, value in self.values.items()}
        return replace(self, values=gone)

    def text(self) -> str:
        """The scenario file: words parted by tabs."""
        return "".join("\t".join(map(_word, line)) + "\n" for line in self._all())

    def write(self, path: Path) -> None:
        """Put the file in place whole: a library that reads it at any moment finds the old world or the new."""
        draft = path.with_name(path.name + ".draft")
        draft.write_text(self.text(), encoding="utf-8")
        draft.replace(path)

    def _all(self) -> Iterator[Line]:
        for key, setting in self.system.items():
            yield "system", key, setting
        for number, (level, kind) in self.metas.items():
            yield "meta", number, level, kind
        for gpu, facts in self.gpus.items():
            yield "entity", GPU, gpu
            for key, fact in facts.items():
                yield "gpu", gpu, key, fact
        for (group, entity, number), (value, status) in self.values.items():
            yield "value", group, entity, number, self.metas.get(number, (0, "i"))[1], status, value
        yield from self.lines


def _word(word: str | int | float) -> str:
    return repr(word) if isinstance(word, float) else str(word)
