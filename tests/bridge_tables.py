"""A table in the manner of dcgm-exporter, small enough to be read beside the tests that use it."""

from __future__ import annotations

from typing import Any

import msgspec

from collectors.base import Group, Settings
from collectors.tables import Bridge, BridgeLabels, Feed, Series, Tables

BLANK = 9223372036854775794

TABLES = Tables(
    vendor="nvidia",
    identity=("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname"),
    series=(
        Series(name="DCGM_FI_DEV_GPU_TEMP", type="gauge", unit="celsius", base="celsius", group="fast"),
        Series(name="DCGM_FI_DEV_POWER_USAGE", type="gauge", unit="watts", base="watts", group="fast"),
        Series(name="DCGM_FI_DEV_GPU_UTIL", type="gauge", unit="percent", base="ratio", scale=0.01, absent=(BLANK,)),
        Series(
            name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            type="counter",
            unit="millijoules",
            base="joules",
            scale=1e-3,
            feeds=(Feed("accel_energy_joules_total"),),
        ),
        Series(name="DCGM_FI_DEV_FB_USED", type="gauge", unit="mebibytes", base="bytes", scale=2.0**20, level="part"),
        Series(name="DCGM_FI_DEV_XID_ERRORS", type="gauge", level="part", labels=("err_code", "err_msg"), group="slow"),
        Series(
            name="DCGM_FI_DEV_MEMORY_TEMP",
            type="gauge",
            unit="celsius",
            base="celsius",
            aliases=("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",),
            absent=(0,),
        ),
        Series(name="DCGM_FI_IMEX_DAEMON_STATUS", type="gauge", level="node", group="slow"),
    ),
    bridge=Bridge(
        exporter="dcgm-exporter",
        url="http://127.0.0.1:9400/metrics",
        labels=BridgeLabels(
            uuid=("UUID", "uuid", "gpu_uuid"),
            index=("gpu",),
            model=("modelName", "model_name"),
            pci_bus_id=("pci_bus_id",),
            driver_version=("DCGM_FI_DRIVER_VERSION",),
            partition_profile=("GPU_I_PROFILE",),
            partition_id=("GPU_I_ID",),
            node=("Hostname", "hostname"),
            workload={"pod": ("pod", "pod_name"), "namespace": ("namespace", "pod_namespace")},
        ),
        sentinels=(140737488355328.0,),
    ),
)


def settings(url: str, tables: Tables = TABLES, **options: Any) -> Settings:
    """Settings as the agent makes them: plain data only. All series of the table are wanted."""
    wanted: dict[Group, frozenset[str]] = {
        group: frozenset(series.name for series in tables.series if series.group == group)
        for group in ("fast", "normal", "slow")
    }
    return Settings(wanted=wanted, options={**msgspec.to_builtins(tables), "url": url, **options})
