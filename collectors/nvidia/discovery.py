"""Which GPUs and MIG instances there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from collectors.base import Device, Settings
from collectors.nvidia import codes, mig
from collectors.nvidia.binding import NvmlFailure, call, number, text
from collectors.nvidia.identity import label_fields, numa_node, raw_labels
from collectors.nvidia.inventory import Gpu, Inventory, Part, still_missing
from collectors.nvidia.partitions import partitions

_LABEL_FIELDS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "DCGM_FI_DEV_SERIAL": ("nvmlDeviceGetSerial", ()),
    "DCGM_FI_DEV_OEM_INFOROM_VER": ("nvmlDeviceGetInforomVersion", (0,)),
    "DCGM_FI_DEV_ECC_INFOROM_VER": ("nvmlDeviceGetInforomVersion", (1,)),
    "DCGM_FI_DEV_POWER_INFOROM_VER": ("nvmlDeviceGetInforomVersion", (2,)),
    "DCGM_FI_DEV_INFOROM_IMAGE_VER": ("nvmlDeviceGetInforomImageVersion", ()),
    "DCGM_FI_DEV_VBIOS_VERSION": ("nvmlDeviceGetVbiosVersion", ()),
}
"""Field → NVML's call and what it takes beside the GPU."""


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
    lost = still_missing(settings.paths.sys, known, devices)
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


def _gpu(settings: Settings, index: int, position: int, driver: str) -> tuple[Gpu, list[Device]]:
    handle = call("nvmlDeviceGetHandleByIndex", index)
    uuid = str(call("nvmlDeviceGetUUID", handle))
    address = call("nvmlDeviceGetPciInfo", handle)
    bus_id = _decode(address.busId)
    pci = (int(address.domain), int(address.bus), int(address.device))
    model = text("nvmlDeviceGetName", handle)
    texts = {"DCGM_FI_DRIVER_VERSION": driver, **_label_texts(settings, handle)}
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
        numa_node=numa_node(settings.paths.sys, pci),
        raw_labels=raw_labels(settings, index, uuid, bus_id, model, texts),
        ids=ids,
    )
    devices = [whole]
    parts: list[Part] = []
    for found in mig.instances(handle):
        labels = raw_labels(settings, index, uuid, bus_id, model, texts, (found.profile, str(found.gi)))
        for partition in partitions(found, whole, minor, labels):
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


def _label_texts(settings: Settings, handle: Any) -> dict[str, str]:
    """Field → its text, empty where the GPU has none. Raises NvmlFailure."""
    asked = label_fields(settings)
    found = {name: text(call_, handle, *more) for name, (call_, more) in _LABEL_FIELDS.items() if name in asked}
    if "DCGM_FI_NVML_VERSION" in asked:
        found["DCGM_FI_NVML_VERSION"] = text("nvmlSystemGetNVMLVersion")
    return found


def _decode(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
