"""Reads the small text files that operators write, with bounds on what they can cost."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from exporter.config.problems import ConfigError, Problem, printable

LIMIT: Final = 1 << 20


def read_text(path: Path, what: str) -> str:
    """The text of a regular file in UTF-8 of at most 1 MiB. Raises ConfigError; ``what`` says what the file is for."""
    source = printable(str(path))
    try:
        # A pipe would let a reload wait for ever; a ConfigMap's symbolic links are followed.
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            found = "this is a directory" if stat.S_ISDIR(kind) else "this is no regular file"
            raise ConfigError([Problem(source, what, found, "a text file that can be read")])
        with path.open("rb") as file:
            raw = file.read(LIMIT + 1)
    except FileNotFoundError as error:
        raise ConfigError([Problem(source, what, "there is no such file", "a text file that can be read")]) from error
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the path.
        reason = printable(getattr(error, "strerror", None) or str(error))
        raise ConfigError(
            [Problem(source, what, f"cannot be read ({reason})", "a file that this user may read")]
        ) from error
    if len(raw) > LIMIT:
        raise ConfigError([Problem(source, what, "larger than 1 MiB", "a file of at most 1 MiB")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        found = f"byte 0x{raw[error.start]:02x} is no UTF-8"
        raise ConfigError([Problem(f"{source}:{line}", what, found, "text in UTF-8")]) from error
