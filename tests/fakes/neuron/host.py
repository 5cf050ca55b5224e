"""Builds a host's directories: sysfs as the driver lays it out, device nodes, the kernel's log, AWS's tools."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from collectors.base import HostPaths
from tests.fakes.neuron import machines
from tests.fakes.neuron.machines import CATEGORIES, OTHER_INFO, STATUSES, Machine

_SOURCES: Final = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class NeuronHost:
    """A host's root directory and the machine on it."""

    root: Path
    machine: Machine

    @property
    def paths(self) -> HostPaths:
        root = str(self.root)
        return HostPaths(
            proc=f"{root}/proc", sys=f"{root}/sys", dev=f"{root}/dev", kmsg=f"{root}/dev/kmsg", opt=f"{root}/opt"
        )

    @property
    def tools(self) -> Path:
        return self.root / "opt/aws/neuron/bin"

    def device(self, index: int) -> Path:
        return self.root / f"sys/devices/virtual/neuron_device/neuron{index}"

    def file(self, index: int, path: str) -> Path:
        """A driver's file by its place before driver 2.31."""
        return self.device(index) / path

    def write(self, index: int, path: str, text: str) -> None:
        self.file(index, path).write_text(text)

    def remove_device(self, index: int) -> None:
        """The driver lets go of a device."""
        (self.root / f"sys/class/neuron_device/neuron{index}").unlink()
        shutil.rmtree(self.device(index))

    def unload_driver(self) -> None:
        shutil.rmtree(self.root / "sys/class/neuron_device")
        shutil.rmtree(self.root / "sys/module/neuron")

    def scenario(self, report: Any, first: Any = ()) -> None:
        """What neuron-monitor says from now on."""
        path = self.tools / "scenario.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"report": report, "first": list(first) if isinstance(first, tuple) else first}))
        fresh.rename(path)

    @property
    def starts(self) -> list[dict[str, Any]]:
        """Each start of neuron-monitor, with what it was given."""
        path = self.tools / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def ls_starts(self) -> int:
        path = self.tools / "ls-starts"
        return len(path.read_text()) if path.exists() else 0

    def ls(self, entries: Any = None, **more: Any) -> None:
        """What neuron-ls says from now on; by default the machine's devices."""
        text = more.pop("text", None)
        found = self.ls_entries() if entries is None else entries
        (self.tools / "ls.json").write_text(json.dumps({"text": json.dumps(found) if text is None else text, **more}))

    def ls_entries(self) -> list[dict[str, Any]]:
        machine = self.machine
        entries = []
        for index in range(machine.devices):
            entry: dict[str, Any] = {
                "neuron_device": index,
                "bdf": machine.bdf(index),
                "numa_node": str(index % 2),
                "cpu_affinity": "0-47",
                "connected_to": [other for other in range(machine.devices) if other != index][:4] or None,
                "nc_count": machine.cores,
                "memory_size": machine.memory_bytes,
                "neuroncore_ids": list(range(index * machine.cores, (index + 1) * machine.cores)),
                "neuron_processes": [],
            }
            if machine.tells_lnc:
                entry["logical_neuroncore_config"] = machine.lnc
            entries.append(entry)
        return entries

    def log(self, text: str) -> None:
        """The kernel's log gets a record."""
        micros = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
        with (self.root / "dev/kmsg").open("a") as file:
            file.write(f"3,{micros},{micros},-;{text}\n")


def make_host(root: Path, machine: Machine, *, tools: bool = True) -> NeuronHost:
    """A host with the machine's devices, its driver loaded; with ``tools`` also neuron-monitor and neuron-ls."""
    host = NeuronHost(root, machine)
    for folder in ("proc", "dev", "sys/class/neuron_device", "sys/module/neuron", "sys/bus/pci/devices", "opt"):
        (root / folder).mkdir(parents=True)
    (root / "dev/kmsg").touch()
    (root / "sys/module/neuron/version").write_text(machine.driver + "\n")
    for index in range(machine.devices):
        _device(host, index)
        (root / f"dev/neuron{index}").touch()
        _pci(host, index)
    if tools:
        host.tools.mkdir(parents=True)
        for name in ("neuron-monitor", "neuron-ls"):
            source = (_SOURCES / f"{name.replace('-', '_')}.py").read_text()
            (host.tools / name).write_text(f"#!{sys.executable} -I\n{source}")
            (host.tools / name).chmod(0o755)
        host.scenario(machines.report(machine))
        host.ls()
    return host


def _pci(host: NeuronHost, index: int) -> None:
    folder = host.root / f"sys/bus/pci/devices/0000:{host.machine.bdf(index)}"
    folder.mkdir()
    files = {
        "vendor": "0x1d0f",
        "device": host.machine.pci_id,
        "class": "0x120000",
        "numa_node": str(index % 2),
        "current_link_width": "8",
        "max_link_width": "16",
        "current_link_speed": "16.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
    }
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    drivers = host.root / "sys/bus/pci/drivers/neuron-driver"
    drivers.mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(drivers)


def _device(host: NeuronHost, index: int) -> None:
    """Every file that the driver has for a device, those that nobody may touch included."""
    machine, folder = host.machine, host.device(index)
    files = dict(_device_files(machine, index))
    for core in range(machine.physical):
        for path, text in _core_files(machine, index, core).items():
            files[f"neuron_core{core}/{path}"] = text
    for path, text in files.items():
        target = folder / _moved(path, machine)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    # A link into the tree itself, as sysfs has them.
    (folder / "subsystem").symlink_to(host.root / "sys/class/neuron_device")
    (host.root / f"sys/class/neuron_device/neuron{index}").symlink_to(folder)


def _device_files(machine: Machine, index: int) -> dict[str, str]:
    neighbours = [str(other) for other in range(machine.devices) if other != index][:4]
    files = {
        "core_count": str(machine.physical),
        "connected_devices": ", ".join(neighbours) + "\n",
        "reset": "",
        "uevent": "MAJOR=242\n",
        "power/control": "auto\n",
        "power/runtime_status": "unsupported\n",
        "info/notify_delay": "-1",
        "info/architecture/arch_type": machine.arch,
        "info/architecture/instance_type": machine.instance_type.partition(".")[0].title(),
        "info/architecture/device_name": machine.device_name,
        "stats/power/utilization": "POWER_STATUS_NO_DATA,0,0.00,0.00,0.00\n",
    }
    if machine.serials:
        files["info/serial_number"] = machine.serial(index) + "\n"
    for event, number in machines.ecc_events(machine).items():
        files[f"stats/hardware/{event}"] = f"{number + index}\n"
    if machine.layout in ("live_counts", "moved"):
        files["stats/hardware/health_status/unhealthy_components"] = "\n"
        files["stats/hardware/health_status/healthcheck_heartbeat"] = "1719000060\n"
        files["stats/hardware/health_status/hbm_ue_count"] = "0\n"
    for place, category in enumerate(("application_memory", "constants", "tensors")):
        files |= _sizes(f"stats/memory_usage/host_mem/{category}", 4096 * (index + 1) + place)
    return files


def _core_files(machine: Machine, index: int, core: int) -> dict[str, str]:
    files = {"info/architecture/arch_type": machine.core_arch}
    files |= _sizes("stats/memory_usage/device_mem", machines.device_memory(index, core))
    files |= _sizes("stats/memory_usage/host_mem", 2048 * (core + 1))
    for place, category in enumerate((*CATEGORIES, "driver_memory")):
        size = machines.category_memory(index, core, place)
        files |= _sizes(f"stats/memory_usage/device_mem/{category}", size)
    for name in STATUSES:
        files |= _counts(f"stats/status/{name}", machines.status_count(index, core, name))
    for name in OTHER_INFO:
        files |= _counts(f"stats/other_info/{name}", machines.other_count(index, core, name))
    files |= _counts("stats/new_metric_17", 99)
    if machine.core_arch != "NCv1":
        files["stats/tensor_engine/pe_cntrs"] = machines.pe_text(0, 0, 0)
    return files


def _sizes(path: str, used: int) -> dict[str, str]:
    """``total`` is what is in use; ``present`` is the size of the last allocation."""
    return {f"{path}/total": f"{used}\n", f"{path}/present": "4096\n", f"{path}/peak": f"{2 * used}\n"}


def _counts(path: str, number: int) -> dict[str, str]:
    return {f"{path}/total": f"{number}\n", f"{path}/present": "1\n"}


def _moved(path: str, machine: Machine) -> str:
    """Where a file is after a move: other folders, the same name and its own folder."""
    if machine.layout == "strange":
        return "telemetry/" + path.replace("/", "-")
    if machine.layout != "moved" or path in ("reset", "uevent") or path.startswith("power/"):
        return path
    core, _, rest = path.partition("/")
    if core.startswith("neuron_core"):
        return f"cores/{core}/{rest.replace('stats/', 'metrics/').replace('memory_usage/', 'mem/')}"
    return "metrics/" + path.removeprefix("stats/").replace("hardware/", "")
