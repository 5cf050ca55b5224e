"""Looks at files that others put there: one that is hidden, endless or a pipe is as good as none, and no exception."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

MAX_TEXT: Final = 64 * 1024
"""Bytes of a token, or of a namespace's name."""


def is_there(path: str | Path) -> bool:
    """Whether there is something. To a user who is not root a path may be hidden."""
    return _mode(path) != 0


def is_folder(path: str | Path) -> bool:
    """Whether there is a directory, as far as this user may see."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: str | Path) -> int:
    try:
        return Path(path).stat().st_mode if str(path) else 0
    except (OSError, ValueError):
        return 0


def beginning(path: str | Path, most: int) -> tuple[bytes, float] | None:
    """The first bytes of a regular file, and when it was changed last; None for anything else. Raises OSError.

    It may become a pipe between two looks, or be one of the kernel's that has nothing to say now: none holds up its
    reader. What is no file is not opened, for that alone can do something to a device.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return (file.read(most) or b"", found.st_mtime) if stat.S_ISREG(found.st_mode) else None


def small_text(path: str | Path) -> str:
    """What stands in a small file, without white space around it; empty where there is none that can be read.

    A pipe that nobody writes does not hold up its reader, and a file without end is read in part.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return (file.read(MAX_TEXT) or b"").decode().strip()
    except (OSError, ValueError):
        return ""
