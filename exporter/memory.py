"""What the C library's allocator keeps of memory that has been given back."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

LARGE: Final = 1024 * 1024
_M_MMAP_THRESHOLD: Final = -3


def give_back_large_blocks() -> None:
    """From now on blocks of a MiB and more are mapped one by one, and go back as soon as they are free.

    Otherwise glibc keeps, for each thread that has ever had such a block, up to 64 MiB: answers of 17 MiB, read in
    turn by the threads of a pool, would stay ten times. Other C libraries do not know the setting, nor need it.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE)
