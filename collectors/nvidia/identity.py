"""What is said of a GPU beside its numbers: dcgm-exporter's identity labels, and where the GPU is plugged in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collectors.base import Labels, Settings


def raw_labels(
    settings: Settings,
    index: int,
    uuid: str,
    bus_id: str,
    model: str,
    texts: Mapping[str, str],
    instance: tuple[str, str] | None = None,
) -> Labels:
    """The identity labels of dcgm-exporter, in its order. ``device`` is the GPU's id, not its minor number.

    ``texts`` are the fields that its counters file makes labels of the series (nvidia.md 2.2); empty ones are left out.
    """
    labels = [
        ("gpu", str(index)),
        ("UUID", uuid),
        ("pci_bus_id", bus_id),
        ("device", f"nvidia{index}"),
        ("modelName", model),
    ]
    if instance is not None:
        labels += [("GPU_I_PROFILE", instance[0]), ("GPU_I_ID", instance[1])]
    return (*labels, *node_label(settings), *sorted((name, text) for name, text in texts.items() if text))


def label_fields(settings: Settings) -> frozenset[str]:
    """The fields that are to be labels beside the driver's version."""
    asked = settings.options.get("label_fields", ())
    return frozenset(asked) if isinstance(asked, list | tuple) else frozenset()


def node_label(settings: Settings) -> Labels:
    """The node, as this profile spells its label; nothing where the node has no name."""
    if not settings.node:
        return ()
    return (("hostname" if settings.profile == "hostname-lowercase" else "Hostname", settings.node),)


def pci_address(bus_id: str) -> tuple[int, int, int] | None:
    """Domain, bus and device of ``00000000:1A:00.0``; None where the text is no PCI address."""
    parts = bus_id.replace(".", ":").split(":")
    if len(parts) != 4:
        return None
    try:
        return int(parts[0], 16), int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None


def numa_node(sys: str, pci: tuple[int, int, int]) -> str:
    """The node that sysfs tells; -1 means that there is none."""
    domain, bus, device = pci
    path = Path(sys, "bus/pci/devices", f"{domain:04x}:{bus:02x}:{device:02x}.0", "numa_node")
    try:
        node = path.read_text().strip()
    except OSError:
        return ""
    return node if node.isdigit() else ""
