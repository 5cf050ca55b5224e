"""Hardware errors from the kernel's log.

The Neuron runtime writes them there, one line each (``NEURON_HW_ERR=KIND key=value …``, driver 2.15 and later): without
a runtime there is no line. AWS documents them in the runtime's troubleshooting guide.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from collectors.kernel_log import text_and_uptime

_ERROR: Final = re.compile(r"\bNEURON_HW_ERR=([A-Z][A-Z0-9_]{0,63})\b(.*)", re.DOTALL)
_FIELD: Final = re.compile(r"\b(nd-id|serial-num)=([0-9a-zA-Z]{1,32})\b")


class HardwareError(msgspec.Struct, frozen=True, kw_only=True):
    """One line. What it does not tell is empty or None."""

    kind: str
    device: int | None = None
    serial: str = ""
    uptime: float | None = None
    """Seconds since boot of the record."""


def parse(line: str) -> HardwareError | None:
    """A record of /dev/kmsg, or a line as dmesg prints it; None if it tells of no hardware error."""
    text, uptime = text_and_uptime(line)
    found = _ERROR.search(text)
    if found is None:
        return None
    # The line's own values only: a record can carry a dictionary after a newline.
    fields = dict(_FIELD.findall(found[2].partition("\n")[0]))
    device = fields.get("nd-id", "")
    return HardwareError(
        kind=found[1],
        device=int(device) if device.isdecimal() else None,
        serial=fields.get("serial-num", "").lower(),
        uptime=uptime,
    )
