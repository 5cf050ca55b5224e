"""What a PCI device id tells of a chip. The table of Google's tpu-info (tpu_info/device.py)."""

from __future__ import annotations

from typing import Final

import msgspec

VENDOR: Final = "0x1ae0"
GIB: Final = 2**30


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of chip."""

    name: str
    tensorcores: int
    hbm_bytes: int
    """Of a chip, as the product is described; the runtime can use a little less."""
    devices: int
    """As how many devices a runtime may show a chip: one for each core on the oldest and the newest."""
    gke_model: str = ""
    """The value of the node label gke-tpu-accelerator, where all chips of the kind have the same."""

    @property
    def model(self) -> str:
        return f"TPU {self.name}"


_V2: Final = Generation(name="v2", tensorcores=2, hbm_bytes=16 * GIB, devices=2)
_V3: Final = Generation(name="v3", tensorcores=2, hbm_bytes=32 * GIB, devices=2)
_V4: Final = Generation(name="v4", tensorcores=2, hbm_bytes=32 * GIB, devices=1, gke_model="tpu-v4-podslice")
_V5E: Final = Generation(name="v5e", tensorcores=1, hbm_bytes=16 * GIB, devices=1)
_V5P: Final = Generation(name="v5p", tensorcores=2, hbm_bytes=95 * GIB, devices=1, gke_model="tpu-v5p-slice")
_V6E: Final = Generation(name="v6e", tensorcores=1, hbm_bytes=32 * GIB, devices=1, gke_model="tpu-v6e-slice")
_7X: Final = Generation(name="7x", tensorcores=2, hbm_bytes=192 * GIB, devices=2, gke_model="tpu7x")

_BY_DEVICE: Final = {"0x005e": _V4, "0x0063": _V5E, "0x0062": _V5P, "0x006f": _V6E, "0x0076": _7X}
_BY_SUBSYSTEM: Final = {("0x0027", "0x004e"): _V2, ("0x0027", "0x004f"): _V3}


def generation(vendor: str, device: str, subsystem: str) -> Generation | None:
    """None for what is no TPU, or one that is not known: Google's disks and network cards have the same vendor id."""
    if vendor != VENDOR:
        return None
    return _BY_DEVICE.get(device) or _BY_SUBSYSTEM.get((device, subsystem))
