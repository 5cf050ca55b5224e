"""The NVIDIA collector."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from collectors.base import (
    NODE,
    Device,
    Group,
    Process,
    ReadError,
    Reading,
    Sample,
    Settings,
    Unavailable,
    UnavailableState,
)
from collectors.nvidia import codes, discovery, mig, processes
from collectors.nvidia.binding import NvmlFailure, call
from collectors.nvidia.faultlog import FaultLog
from collectors.nvidia.inventory import Gpu, Inventory
from collectors.nvidia.ledger import DeviceLostError, DriverGoneError
from collectors.nvidia.plan import Plan, compile_plan
from collectors.nvidia.readers import Reader
from collectors.nvidia.shares import ProcessShares
from collectors.nvidia.specials import Specials
from collectors.nvidia.windows import window

_TOPOLOGY_EVERY: Final = 10.0
"""Seconds between two looks whether GPUs or MIG instances have come or gone."""
_STALE_EVERY: Final = 1.0
"""The same after a handle was not valid."""
_LOST_EVERY: Final = 120.0
"""Seconds between two discoveries while a GPU is lost or does not say which it is."""

FROM_EVENTS: Final = ("xid", "xid_count")
"""Kinds of specials that are told without asking the GPU."""

Reason = tuple[UnavailableState, str]
_UNAVAILABLE: Final[dict[int, Reason]] = {
    codes.NO_PERMISSION: ("no_permission", "give the process access to /dev/nvidiactl and /dev/nvidia*"),
    codes.DRIVER_NOT_LOADED: ("no_driver", "load the kernel module: modprobe nvidia, or nvidia-smi as root"),
    codes.LIBRARY_NOT_FOUND: (
        "no_library",
        "libnvidia-ml.so.1 is not found: install the driver; in a container use the NVIDIA runtime with the capability"
        " 'utility'",
    ),
    codes.FUNCTION_NOT_FOUND: ("version_mismatch", "libnvidia-ml.so.1 is too old for NVML: install a newer driver"),
    codes.VERSION_MISMATCH: (
        "version_mismatch",
        "the driver's library and its kernel module differ, as after an upgrade: reboot, or reload the module",
    ),
}


class NvmlCollector:
    """Reads the node's NVIDIA GPUs through NVML."""

    source: Final = "nvml"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._plans: dict[Group, Plan] = {
            group: compile_plan(
                names,
                by_link=settings.links == "each",
                processes=bool(settings.options.get("processes", False)),
            )
            for group, names in settings.wanted.items()
        }
        kernel_log = settings.paths.kmsg if settings.options.get("kmsg", True) else None
        self._faults = FaultLog(window(settings, "xid_count_window_ms"), kernel_log)
        self._specials = Specials(self._faults, window(settings, "clock_count_window_ms"), settings.paths.proc)
        self._reader = Reader()
        self._shares = ProcessShares()
        self._inventory = Inventory()
        self._layouts: dict[int, tuple[str, ...]] = {}
        self._lost: set[int] = set()
        self._open = False
        self._notices: list[ReadError] = []
        self._looked_at = 0.0
        self._discovered_at = 0.0

    def discover(self) -> Sequence[Device]:
        """List GPUs and MIG instances. Raises Unavailable."""
        try:
            return self._discover()
        except NvmlFailure as failure:
            self._unavailable(failure.code)
        except DriverGoneError as gone:
            self._unavailable(gone.code)

    def sample(self, group: Group) -> Sample:
        """Read a group. Raises Unavailable when the driver went away."""
        if not self._open:
            raise Unavailable("no_driver", "the GPUs have not been discovered")
        try:
            return self._sample(group)
        except NvmlFailure as failure:
            self._unavailable(failure.code)
        except DriverGoneError as gone:
            self._unavailable(gone.code)

    def close(self) -> None:
        """Free what NVML holds for us and shut it down: dying with it open may leave a GPU in need of a reset."""
        self._shut_down()
        self._faults.close()

    def _discover(self) -> Sequence[Device]:
        if self._open and self._missing():
            # A GPU that was reset or replugged shows up in a new session only.
            self._shut_down()
        if not self._open:
            call("nvmlInit")
            self._open = True
        self._release()
        inventory = discovery.discover(self._settings, self._inventory)
        if not inventory.devices:
            self._refuse(inventory)
        self._inventory = inventory
        self._lost = set(inventory.lost)
        self._notices = _notices(inventory)
        self._faults.watch(inventory)
        self._layouts = {}
        self._discovered_at = self._looked_at = time.monotonic()
        for gpu in inventory.gpus:
            with self._losing(gpu):
                if gpu.mig_capable:
                    self._layouts[gpu.position] = mig.layout(gpu.handle)
                for group, plan in self._plans.items():
                    self._reader.prime(gpu, plan, group, time.monotonic())
        self._reader.settle()
        return inventory.devices

    def _sample(self, group: Group) -> Sample:
        plan = self._plans.get(group)
        collected = self._faults.drain()
        readings: list[Reading] = []
        for gpu in self._inventory.gpus:
            if gpu.position not in self._lost and plan is not None:
                with self._losing(gpu):
                    readings += self._read(gpu, plan, group)
        if plan is not None:
            readings += self._epitaphs(plan)
        if collected.device_lost:
            # While a lost GPU is in the event set, waiting gives nothing but the loss.
            self._faults.leave_out(frozenset(self._lost))
        changed = collected.layout_changed or self._changed()
        notices, self._notices = self._notices, []
        return Sample(
            readings=readings,
            errors=(*notices, *collected.errors, *self._reader.ledger.take_errors()),
            faults=collected.faults,
            lost=sorted(self._lost),
            processes=self._processes() if group == "normal" and self._settings.processes else None,
            rediscover=changed or self._due_for_missing(),
        )

    def _read(self, gpu: Gpu, plan: Plan, group: Group) -> list[Reading]:
        readings = self._reader.read(gpu, plan, group, time.monotonic())
        for series, source in plan.specials:
            self._specials.read(gpu, self._inventory, self._reader, series, source.kind, readings)
        return readings

    def _epitaphs(self, plan: Plan) -> list[Reading]:
        """What the kernel's log and the events said of lost GPUs: alerts on Xid 79 need it when no more is left."""
        devices = self._inventory.devices
        readings: list[Reading] = []
        for position in sorted(self._lost):
            gpu = Gpu(position=position, handle=None, nvml_index=-1, uuid=devices[position].uuid)
            for series, source in plan.specials:
                if source.kind in FROM_EVENTS and not devices[position].partition:
                    self._specials.read(gpu, self._inventory, self._reader, series, source.kind, readings)
        return readings

    def _processes(self) -> list[Process] | None:
        """Who uses each GPU or instance; None from inside a pid namespace, which NVML shows nobody else."""
        if not processes.are_visible(self._settings.paths.proc):
            return None
        memory: dict[tuple[int, int], int | None] = {}
        shares: dict[int, dict[int, float] | None] = {}
        for gpu in self._inventory.gpus:
            if gpu.position in self._lost:
                continue
            with self._losing(gpu):
                for position, running in processes.by_level(gpu, self._reader):
                    for process in running:
                        # One that computes and draws is listed twice, with the same memory.
                        key = (position, process.pid)
                        memory[key] = max((m for m in (memory.get(key), process.memory) if m is not None), default=None)
                    shares[position] = self._shares.read(gpu, self._reader) if running else None
        return [
            Process(position, pid, used, None if (told := shares.get(position)) is None else told.get(pid, 0.0))
            for (position, pid), used in memory.items()
        ]

    def _changed(self) -> bool:
        """Whether GPUs or instances have come or gone. Asked seldom, and soon after a handle was not valid."""
        now = time.monotonic()
        stale = self._reader.ledger.stale
        if now - self._looked_at < (_STALE_EVERY if stale else _TOPOLOGY_EVERY):
            return False
        self._looked_at = now
        self._reader.ledger.stale = False
        if int(call("nvmlDeviceGetCount")) != self._inventory.count:
            return True
        changed = False
        for gpu in self._inventory.gpus:
            if gpu.position in self._layouts and gpu.position not in self._lost:
                with self._losing(gpu):
                    changed |= mig.layout(gpu.handle) != self._layouts[gpu.position]
        return changed

    def _missing(self) -> bool:
        """Whether a GPU is lost, or was counted and could not even be identified."""
        return bool(self._lost or self._inventory.failed)

    def _due_for_missing(self) -> bool:
        return self._missing() and time.monotonic() - self._discovered_at >= _LOST_EVERY

    @contextlib.contextmanager
    def _losing(self, gpu: Gpu) -> Iterator[None]:
        """One GPU that is lost must not cost the others their readings."""
        try:
            yield
        except DeviceLostError:
            self._lost.update(gpu.positions)
        except NvmlFailure as failure:
            if codes.judge(failure.code) == "gone":
                raise
            if codes.judge(failure.code) == "lost":
                self._lost.update(gpu.positions)
            else:
                self._notices.append(ReadError(gpu.position, "transient", str(failure)))

    def _release(self) -> None:
        """Free GPM samples and the event set."""
        reader, self._reader = self._reader, Reader()
        reader.close()
        self._faults.unwatch()

    def _shut_down(self) -> None:
        if not self._open:
            return
        self._open = False
        self._release()
        with contextlib.suppress(NvmlFailure):
            call("nvmlShutdown")

    def _unavailable(self, code: int) -> NoReturn:
        self._shut_down()
        unknown: Reason = ("no_driver", f"NVML does not answer: {codes.name(code)}; see the kernel's log")
        state, hint = _UNAVAILABLE.get(code, unknown)
        raise Unavailable(state, hint, restart=code == codes.VERSION_MISMATCH) from None

    def _refuse(self, inventory: Inventory) -> NoReturn:
        """There is nothing to read: say why, and let go of the driver."""
        self._shut_down()
        if inventory.denied:
            raise Unavailable("no_permission", _UNAVAILABLE[codes.NO_PERMISSION][1])
        if inventory.failed:
            raise Unavailable("no_driver", f"no GPU answers: {inventory.failed[0]}; see the kernel's log")
        raise Unavailable("no_device", "the driver is loaded and finds no GPU")


def _notices(inventory: Inventory) -> list[ReadError]:
    """What was wrong at discovery, told with the next sample."""
    denied = [
        ReadError(NODE, "permission", f"GPU {index}: no permission to open it; give access to its /dev/nvidia* node")
        for index in inventory.denied
    ]
    return denied + [ReadError(NODE, "lost", text) for text in inventory.failed]
