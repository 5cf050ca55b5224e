"""The driver's files below /sys/class/neuron_device, found by what is there.

Drivers before 2.30.2, those of 2.30 and those from 2.31 on lay them out differently, and the last moved files without
leaving links. So a device's folder is walked once, and each file is known by its own name and those of its nearest
folders, wherever it stands. Only known names are opened, and only for reading: writing to a counter clears it, and
``reset`` resets the device.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

Layout = Literal["exit_counts", "live_counts", "moved", "unknown"]
"""exit_counts: until driver 2.30.2 a process's counts are added when it exits. live_counts: 2.30.2. moved: 2.31."""

ECC: Final = frozenset(
    (
        "mem_ecc_uncorrected",
        "mem_ecc_repairable_uncorrected",
        "sram_ecc_uncorrected",
        "mem_ecc_corrected",
        "sram_ecc_corrected",
    )
)
STATUSES: Final = frozenset(
    (
        "success", "failure", "timeout", "exec_bad_input", "hw_error", "execute_completed_with_error",
        "execute_completed_with_num_error", "generic_error", "resource_error", "resource_nc_error",
        "execute_failed_to_queue", "invalid_error", "unsupported_neff_version", "oob_error",
        "hw_collectives_error", "hw_hbm_ue_error", "hw_nc_ue_error", "hw_dma_abort_error",
        "execute_sw_nq_overflow", "execute_sw_semaphore_error", "execute_sw_event_error",
        "execute_sw_psum_collision", "execute_sw_sequencer_fatal", "hw_repairable_hbm_ue_error",
    )
)  # fmt: skip
COUNTS: Final[Mapping[str, str]] = {
    "flop_count": "flops",
    "nc_time_in_use": "time_in_use_microseconds",
    "inference_count": "inferences",
    "model_load_count": "model_loads",
    "reset_req_count": "reset_requests",
    "reset_fail_count": "reset_failures",
}
"""File below other_info → how its series is called."""
COMPONENTS: Final[tuple[str, ...]] = (
    "hbm", "sram", "firmware_service_api", "firmware_service_processor", "link_intraserver", "link_host", "link_efa",
    "link_interserver", "link_switch", "axi_fabric",
)  # fmt: skip
_FACTS: Final = frozenset(
    ("serial_number", "device_name", "instance_type", "arch_type", "core_count", "connected_devices")
)
_HEALTH: Final = frozenset(("unhealthy_components", "healthcheck_heartbeat"))
_CATEGORY: Final = re.compile(r"(?!new_metric)[a-z][a-z0-9_]{0,47}")
_NEVER: Final = frozenset(("reset", "notify_delay", "uevent"))
_CORE: Final = re.compile(r"(?:neuron_?)?core_?([0-9]{1,3})")
_DEVICE: Final = re.compile(r"neuron([0-9]{1,3})")
_MOST_FILES: Final = 20000
_DEEPEST: Final = 9
_LARGEST: Final = 4096


class Slot(msgspec.Struct, frozen=True, gc=False):
    """What a file tells. ``core``: the physical core within the device, -1 for the device itself."""

    kind: str
    """fact, ecc, health, health_count, power, host, memory, peak, core_host, status, count, pe."""
    name: str = ""
    """Its event, category, status, …"""
    core: int = -1


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one device."""

    index: int
    folder: Path
    files: Mapping[Slot, str]
    facts: Mapping[str, str]
    """Name → text of what does not change: serial number, names, count of cores. Kept, for a device that is lost."""
    cores: frozenset[int]
    layout: Layout

    def of(self, kind: str) -> Iterator[tuple[Slot, str]]:
        return ((slot, path) for slot, path in self.files.items() if slot.kind == kind)


def devices(sys_path: str) -> dict[int, Path]:
    """Index → folder of each device that the driver shows."""
    root = Path(sys_path) / "class/neuron_device"
    try:
        folders = list(root.iterdir())
    except OSError:
        return {}
    found = {int(match[1]): path for path in folders if (match := _DEVICE.fullmatch(path.name)) is not None}
    return dict(sorted(found.items()))


def driver_version(sys_path: str) -> str:
    """Version of the kernel module; empty if it is not loaded."""
    try:
        return read(str(Path(sys_path) / "module/neuron/version")).strip()
    except OSError:
        return ""


def read(path: str) -> str:
    """A file's text, up to what a page of sysfs can hold. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _LARGEST).decode("utf-8", "replace")
    finally:
        os.close(fd)


def scan(index: int, folder: Path) -> Tree:
    """Walk a device's folder. Only its facts are read, and no link is followed but the folder itself."""
    files: dict[Slot, str] = {}
    places: dict[Slot, tuple[bool, int]] = {}
    cores: set[int] = set()
    for parts in _walk(folder):
        slot = classify(parts)
        if slot is None:
            continue
        if slot.core >= 0:
            cores.add(slot.core)
        # Of two files of one meaning the one at the old place counts, then the one that lies less deep.
        place = (not _at_old_place(parts), len(parts))
        if slot not in places or place < places[slot]:
            places[slot] = place
            files[slot] = str(folder.joinpath(*parts))
    facts = {slot.name: _fact(path) for slot, path in files.items() if slot.kind == "fact" and slot.core < 0}
    return Tree(index=index, folder=folder, files=files, facts=facts, cores=frozenset(cores), layout=_layout(places))


def _fact(path: str) -> str:
    try:
        return read(path).strip()
    except OSError:
        # core_count and connected_devices are root's alone before driver 2.28.
        return ""


def classify(parts: tuple[str, ...]) -> Slot | None:
    """What a file below a device's folder tells, by the names on its way. None: nothing that is read."""
    core = next((int(match[1]) for part in parts[:-1] if (match := _CORE.fullmatch(part))), -1)
    name, parent = parts[-1], parts[-2] if len(parts) > 1 else ""
    if name in _NEVER:
        return None
    if core >= 0:
        return _of_core(core, parts, name, parent)
    if name in _FACTS:
        return Slot("fact", name)
    if name in ECC:
        return Slot("ecc", name)
    if name in _HEALTH:
        return Slot("health", name)
    if parent == "health_status" and _CATEGORY.fullmatch(name):
        return Slot("health_count", name)
    if name == "utilization" and "power" in parts:
        return Slot("power")
    if name == "total" and "host_mem" in parts[:-2] and _CATEGORY.fullmatch(parent):
        return Slot("host", parent)
    return None


def _of_core(core: int, parts: tuple[str, ...], name: str, parent: str) -> Slot | None:
    if name == "pe_cntrs":
        return Slot("pe", "", core)
    if name in COUNTS:
        # The documents have plain files; the driver has folders with `total` in them.
        return Slot("count", name, core)
    if name == "arch_type":
        return Slot("fact", name, core)
    if name == "peak" and parent == "device_mem":
        return Slot("peak", "", core)
    if name != "total":
        return None
    if "device_mem" in parts or "host_mem" in parts:
        memory = "memory" if "device_mem" in parts else "core_host"
        category = "" if parent in ("device_mem", "host_mem") else parent
        return Slot(memory, category, core) if not category or _CATEGORY.fullmatch(category) else None
    if parent in COUNTS:
        return Slot("count", parent, core)
    # Documents still print infer_*.
    status = parent.removeprefix("infer_")
    return Slot("status", status, core) if status in STATUSES else None


def _walk(folder: Path) -> Iterator[tuple[str, ...]]:
    """Paths of files below the folder, as names; bounded."""
    count = 0
    pending: list[tuple[str, ...]] = [()]
    while pending:
        where = pending.pop()
        try:
            entries = list(os.scandir(folder.joinpath(*where)))
        except OSError:
            # A core's folder can vanish while the driver resets the device.
            continue
        for entry in entries:
            count += 1
            if count > _MOST_FILES:
                return
            if entry.is_symlink():
                continue
            if not entry.is_dir():
                yield (*where, entry.name)
            elif len(where) < _DEEPEST:
                pending.append((*where, entry.name))


def _at_old_place(parts: tuple[str, ...]) -> bool:
    """Whether a file stands where drivers before 2.31 have it."""
    inner = parts[1:] if re.fullmatch(r"neuron_core[0-9]+", parts[0]) else parts
    return inner[0] in ("stats", "info") or len(parts) == 1


def _layout(places: Mapping[Slot, tuple[bool, int]]) -> Layout:
    telling = {slot: moved for slot, (moved, _) in places.items() if slot.kind != "fact"}
    if not telling:
        return "unknown"
    if all(telling.values()):
        return "moved"
    new = (Slot("ecc", "mem_ecc_corrected"), Slot("ecc", "sram_ecc_corrected"), Slot("health", "unhealthy_components"))
    return "live_counts" if any(slot in telling for slot in new) else "exit_counts"
