"""Reads files of sysfs: bounded, and with the kernel's errors turned into what they mean here."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from collectors.amd import texts

_MOST: Final = 4096
"""Bytes of a file of values."""

Kind = Literal["absent", "permission", "transient", "lost"]
_KINDS: Final[dict[int, Kind]] = {
    errno.ENOENT: "absent",
    errno.ENOTDIR: "absent",
    errno.EINVAL: "absent",
    errno.ENODATA: "absent",
    errno.EOPNOTSUPP: "absent",
    errno.ENOSYS: "absent",
    # Virtual functions answer so for ever, older drivers also while the GPU is reset or the system sleeps.
    errno.EPERM: "absent",
    errno.EACCES: "permission",
    errno.EBUSY: "transient",
    errno.EAGAIN: "transient",
    errno.ENODEV: "lost",
    errno.ENXIO: "lost",
}


class FileError(Exception):
    """A file that cannot be read now. What is absent is no error."""

    def __init__(self, kind: Kind, path: Path, error: OSError) -> None:
        super().__init__(f"{path.name}: {error.strerror or error}")
        self.kind: Kind = kind
        self.path = path


def read(path: Path, most: int = _MOST) -> bytes | None:
    """The content, cut at ``most`` bytes; None where the device has no such file or gives nothing. Raises FileError."""
    try:
        with path.open("rb", buffering=0) as file:
            pieces: list[bytes] = []
            left = most
            while left > 0 and (piece := file.read(left)):
                pieces.append(piece)
                left -= len(piece)
    except OSError as error:
        kind = _KINDS.get(error.errno or 0, "transient")
        if kind == "absent":
            return None
        raise FileError(kind, path, error) from None
    return b"".join(pieces) or None


def text(path: Path, most: int = _MOST) -> str:
    """The content without white space around it; empty where there is none. Raises FileError."""
    return (read(path, most) or b"").decode("utf-8", "replace").strip().strip("\0")


def number(path: Path) -> int | None:
    """A whole number; None where there is none. Raises FileError."""
    return texts.whole(text(path))


def fact(path: Path) -> str:
    """A text that the device may lack, or may not let us see: empty then."""
    try:
        return text(path)
    except FileError:
        return ""


def names(folder: Path) -> Iterator[str]:
    """What is in a folder, sorted; nothing where it cannot be looked at."""
    try:
        yield from sorted(os.listdir(folder))  # noqa: PTH208 - names are what is wanted
    except OSError:
        return
