"""What NVIDIA's raw series become: the table's feeds, applied to rows made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import collectors
from collectors.base import Device, Labels
from exporter.catalogue import Catalogue
from exporter.model import Key
from exporter.normalize import Links, make_plan

FOLDER = Path(collectors.__file__).parent / "nvidia"
Raw = tuple[str, float, Labels]
GPU = Device(uuid="GPU-1", index="0")
MIG = Device(uuid="GPU-1", index="0", partition="1g.10gb/7")


def common(
    catalogue: Catalogue,
    rows: Sequence[Raw],
    *,
    devices: Sequence[Device] = (GPU,),
    device: int = 0,
    links: Links = "sum",
) -> dict[tuple[str, ...], float]:
    """What the raw series become: metric and label values → value."""
    layout = tuple(Key(name, device, labels) for name, _, labels in rows)
    plan = make_plan(catalogue, devices, {"normal": layout}, links=links)
    values = [value for _, value, _ in rows]
    return {(out.id.metric, *(value for _, value in out.id.labels)): out.evaluate(values) for out in plan.outputs}
