"""The one place where amdsmi is called: its errors become SmiFailure with a plain status code."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from collectors.amd import kfd
from collectors.amd.identity import CARD_VENDOR, Facts, Logical, hexadecimal, plain
from collectors.amd.identity import facts as sysfs_facts

UNKNOWN: Final = -1
"""The package itself failed: it raised what is no error of the library."""

Verdict = Literal["unsupported", "nothing", "permission", "transient", "gone", "library"]
_VERDICTS: Final[dict[int, Verdict]] = {
    1: "unsupported",
    2: "unsupported",
    3: "unsupported",
    8: "transient",
    9: "transient",
    10: "permission",
    30: "transient",
    31: "nothing",
    32: "gone",
    34: "gone",
    40: "nothing",
}
_NAMES: Final[dict[int, str]] = {
    UNKNOWN: "the package failed",
    1: "invalid argument",
    2: "not supported",
    3: "not yet implemented",
    4: "the library could not be loaded",
    5: "a symbol could not be loaded",
    6: "DRM error",
    7: "call failed",
    8: "timeout",
    9: "try again",
    10: "no permission",
    12: "input or output error",
    14: "file error",
    15: "out of resources",
    16: "internal exception",
    18: "initialisation failed",
    30: "busy",
    31: "not found",
    32: "not initialised",
    34: "driver not loaded",
    39: "more data",
    40: "no data",
    43: "unexpected data",
    53: "a pointer is null",
    55: "setting not available",
    56: "the error memory (EEPROM) is corrupt",
    57: "more data",
    0xFFFFFFFE: "mapping error",
    0xFFFFFFFF: "unknown error",
}
_MODES: Final = {"BAREMETAL": "baremetal", "HOST": "hypervisor", "GUEST": "vm_vf", "PASSTHROUGH": "vm_pf"}


class SmiFailure(Exception):
    """A call gave no result."""

    def __init__(self, code: int, call: str, detail: str = "") -> None:
        super().__init__(f"{call}: {_NAMES.get(code, 'unlisted error')} ({code})" + (f": {detail}" if detail else ""))
        self.code = code

    @property
    def verdict(self) -> Verdict:
        """What to do about it.

        unsupported: never ask this GPU again; nothing: no value now; permission: tell once; transient: tell, ask again;
        gone: the driver is gone; library: tell, and never ask again if the package itself failed.
        """
        return _VERDICTS.get(self.code, "library")


class Smi:
    """An open amdsmi. The package is as large as its library: nothing of it is used but what is named here."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the package. Raises SmiFailure; one that this version has not is not supported."""
        function = getattr(self.module, name, None) or getattr(self.module.amdsmi_interface, name, None)
        if function is None:
            raise SmiFailure(2, name)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return function(*arguments)
        except Exception as error:  # noqa: BLE001 - wrappers raise TypeError, AttributeError and others where they are wrong
            code = getattr(error, "err_code", None)
            if isinstance(code, int):
                raise SmiFailure(code & 0xFFFFFFFF, name) from None
            raise SmiFailure(UNKNOWN, name, f"{type(error).__name__}: {error}"[:200]) from None

    def value(self, enumeration: str, name: str) -> Any:
        """A member of one of the package's enumerations. Raises SmiFailure for one that this version has not."""
        member = getattr(getattr(self.module, enumeration, None), name, None)
        if member is None:
            raise SmiFailure(2, f"{enumeration}.{name}")
        return member

    def open(self) -> list[Any]:
        """Open the library; the handles of all GPUs and partitions, in its order. Raises SmiFailure."""
        self.call("amdsmi_init", self.value("AmdSmiInitFlags", "INIT_AMD_GPUS"))
        return list(self.call("amdsmi_get_processor_handles"))

    def close(self) -> None:
        """Let go of the GPUs."""
        with contextlib.suppress(SmiFailure):
            self.call("amdsmi_shut_down")

    def told(self, name: str, *arguments: Any) -> Any:
        """The result of a call about a fact; None where there is none. Raises SmiFailure if the driver is gone."""
        try:
            return self.call(name, *arguments)
        except SmiFailure as failure:
            if failure.verdict == "gone":
                raise
            return None


def logicals(smi: Smi, sys: str, handles: list[Any]) -> Iterator[Logical]:
    """What the library lists, with KFD's node of each. Raises SmiFailure if the driver is gone."""
    nodes = {(node.bdf, node.partition): node for node in kfd.nodes(sys)}
    for handle in handles:
        address = smi.told("amdsmi_get_gpu_device_bdf", handle)
        if not isinstance(address, str) or "." not in address:
            continue
        # A partition may have an address of its own: its number stands where the function's would.
        bdf = address.lower().rpartition(".")[0] + ".0"
        told = smi.told("amdsmi_get_gpu_kfd_info", handle) or {}
        partition = told.get("current_partition_id")
        number = partition if isinstance(partition, int) else 0
        yield Logical(
            bdf=bdf,
            partition=number,
            facts=facts(smi, sys, bdf, handle),
            uuid=plain(smi.told("amdsmi_get_gpu_device_uuid", handle) or ""),
            node=nodes.get((bdf, number)),
            handle=handle,
        )


def facts(smi: Smi, sys: str, bdf: str, handle: Any) -> Facts:
    """What the library tells of a GPU; sysfs where it does not."""
    asic, board, driver, vbios = (
        smi.told(f"amdsmi_get_gpu_{what}_info", handle) or {} for what in ("asic", "board", "driver", "vbios")
    )
    mode = smi.told("amdsmi_get_gpu_virtualization_mode", handle) or {}
    found = Facts(
        unique_id=hexadecimal(asic.get("asic_serial", ""), 16),
        device_id=hexadecimal(asic.get("device_id", ""), 4),
        model=plain(board.get("model_number", "")),
        # AMD's exporter labels with what the board says of itself; consumer boards say nothing.
        series=plain(board.get("product_name", "")) or plain(asic.get("market_name", "")),
        vendor=plain(board.get("manufacturer_name", "")) or plain(asic.get("vendor_name", "")) or CARD_VENDOR,
        serial=plain(board.get("product_serial", "")),
        driver_version=plain(driver.get("driver_version", "")),
        vbios_version=plain(vbios.get("version", "")),
        compute_partition=plain(smi.told("amdsmi_get_gpu_compute_partition", handle) or ""),
        memory_partition=plain(smi.told("amdsmi_get_gpu_memory_partition", handle) or ""),
        deployment_mode=_MODES.get(getattr(mode.get("mode"), "name", ""), ""),
    )
    told = sysfs_facts(sys, bdf)
    return msgspec.structs.replace(
        found, **{name: getattr(found, name) or getattr(told, name) for name in Facts.__struct_fields__}
    )
