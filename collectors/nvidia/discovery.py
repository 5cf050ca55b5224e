"""Which GPUs and MIG instances there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from collectors.base import Device, Labels, Settings
from collectors.nvidia import codes, mig
from collectors.nvidia.binding import NvmlFailure, call, number, text


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance, or one of several compute instances of a GPU instance."""

    position: int
    handle: Any
    gi: int
    ci: int | None
    """None for a GPU instance as a whole."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A physical GPU with its handle and its parts."""

    position: int
    handle: Any
    nvml_index: int
    uuid: str
    mig_capable: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def instances(self) -> tuple[Part, ...]:
        """The GPU instances."""
        return tuple(part for part in self.parts if part.ci is None)

    @property
    def rows(self) -> tuple[int, ...]:
        """Where a number of the whole GPU stands: on each GPU instance where there are any, as with dcgm-exporter."""
        return tuple(part.position for part in self.instances) or (self.position,)

    @property
    def positions(self) -> tuple[int, ...]:
        """The GPU and all its parts."""
        return (self.position, *(part.position for part in self.parts))


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a discovery found. ``gpus`` are those that can be read; ``devices`` has the lost ones, too."""

    devices: tuple[Device, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    lost: tuple[int, ...] = ()
    denied: tuple[int, ...] = ()
    """NVML indices that this process may not open."""
    failed: tuple[str, ...] = ()
    """GPUs that could not be identified, in words."""
    count: int = 0


def discover(settings: Settings, known: Inventory) -> Inventory:
    """List the GPUs. One that was known and is lost keeps its place in the list without being read.

    Raises NvmlFailure when NVML as a whole does not answer.
    """
    driver = text("nvmlSystemGetDriverVersion")
    count = int(call("nvmlDeviceGetCount"))
    devices: list[Device] = []
    gpus: list[Gpu] = []
    denied: list[int] = []
    failed: list[str] = []
    for index in range(count):
        try:
            gpu, found = _gpu(settings, index, len(devices), driver)
        except NvmlFailure as failure:
            verdict = codes.judge(failure.code)
            if verdict == "gone":
                raise
            if verdict == "permission":
                denied.append(index)
            else:
                failed.append(f"GPU {index}: {failure}")
            continue
        gpus.append(gpu)
        devices.extend(found)
    lost = _still_missing(settings.paths.sys, known, devices)
    first = len(devices)
    devices.extend(lost)
    return Inventory(
        devices=tuple(devices),
        gpus=tuple(gpus),
        lost=tuple(range(first, len(devices))),
        denied=tuple(denied),
        failed=tuple(failed),
        count=count,
    )


def _still_missing(sys: str, known: Inventory, found: list[Device]) -> list[Device]:
    """The GPUs of an earlier discovery that are not found now; their parts are not remembered.

    One that has been given to another driver, to be passed through to a virtual machine, is not missing.
    """
    present = {device.uuid for device in found}
    return [
        device
        for device in known.devices
        if not device.partition and device.uuid not in present and not _has_other_driver(sys, device.pci_bus_id)
    ]


def _has_other_driver(sys: str, bus_id: str) -> bool:
    link = Path(sys, "bus/pci/devices", bus_id[-12:].lower(), "driver")
    try:
        return link.readlink().name != "nvidia"
    except OSError:
        return False


def _gpu(settings: Settings, index: int, position: int, driver: str) -> tuple[Gpu, list[Device]]:
    handle = call("nvmlDeviceGetHandleByIndex", index)
    uuid = str(call("nvmlDeviceGetUUID", handle))
    address = call("nvmlDeviceGetPciInfo", handle)
    bus_id = _decode(address.busId)
    pci = (int(address.domain), int(address.bus), int(address.device))
    model = text("nvmlDeviceGetName", handle)
    minor = number("nvmlDeviceGetMinorNumber", handle)
    ids = {"index": str(index), "uuid": uuid}
    if minor is not None:
        # What GKE's device plugin and the DRA driver call the device.
        ids |= {"minor": str(minor), "device_name": f"nvidia{minor}", "dra": f"gpu-{minor}"}
    whole = Device(
        uuid=uuid,
        index=str(index),
        model=model,
        serial=text("nvmlDeviceGetSerial", handle),
        pci_bus_id=bus_id,
        driver_version=driver,
        firmware_version=text("nvmlDeviceGetVbiosVersion", handle),
        numa_node=_numa_node(settings.paths.sys, pci),
        raw_labels=raw_labels(settings, index, uuid, bus_id, model, driver),
        ids=ids,
    )
    devices = [whole]
    parts: list[Part] = []
    for found in mig.instances(handle):
        labels = raw_labels(settings, index, uuid, bus_id, model, driver, (found.profile, str(found.gi)))
        for partition in mig.partitions(found, whole, minor, labels):
            parts.append(
                Part(
                    position=position + len(devices),
                    handle=partition.handle,
                    gi=found.gi,
                    ci=partition.ci,
                )
            )
            devices.append(partition.device)
    gpu = Gpu(
        position=position,
        handle=handle,
        nvml_index=index,
        uuid=uuid,
        mig_capable=mig.mode(handle) is not None,
        parts=tuple(parts),
    )
    return gpu, devices


def raw_labels(
    settings: Settings,
    index: int,
    uuid: str,
    bus_id: str,
    model: str,
    driver: str,
    instance: tuple[str, str] | None = None,
) -> Labels:
    """The identity labels of dcgm-exporter, in its order. ``device`` is the GPU's id, not its minor number."""
    labels = [
        ("gpu", str(index)),
        ("UUID", uuid),
        ("pci_bus_id", bus_id),
        ("device", f"nvidia{index}"),
        ("modelName", model),
    ]
    if instance is not None:
        labels += [("GPU_I_PROFILE", instance[0]), ("GPU_I_ID", instance[1])]
    if settings.node:
        labels.append(("hostname" if settings.profile == "hostname-lowercase" else "Hostname", settings.node))
    labels.append(("DCGM_FI_DRIVER_VERSION", driver))
    return tuple(labels)


def _decode(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _numa_node(sys: str, pci: tuple[int, int, int]) -> str:
    """The node that sysfs tells; -1 means that there is none."""
    domain, bus, device = pci
    path = Path(sys, "bus/pci/devices", f"{domain:04x}:{bus:02x}:{device:02x}.0", "numa_node")
    try:
        node = path.read_text().strip()
    except OSError:
        return ""
    return node if node.isdigit() else ""
