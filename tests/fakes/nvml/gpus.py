"""The keys of typical boards, one function a board, values by formulas that tests recompute.

The GPU's index is ``i``. Values differ between the GPUs of a machine and, where the hardware allows it, between the
quantities of one GPU, so that a mix-up shows. Sizes and codes are those of the products; identities are made up.
"""

from __future__ import annotations

from tests.fakes.nvml.model import Value

MIB = 1 << 20
KIB = 1 << 10

PCI_BUSES = ("1A", "3B", "4C", "5D", "9A", "BB", "CB", "DB")
"""Bus numbers of the GPUs of an eight-GPU board."""

NVLINKS = 18
"""Links of a Hopper or Blackwell data-centre GPU."""

FABRIC_HEALTHY = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8
"""Bandwidth not degraded, no route recovery, routes healthy, no access timeout recovery, configuration correct."""

EVENT_TYPES = 0x11F
"""ECC, P-state, Xid, clock and MIG configuration events."""


def uuid(board: int, i: int) -> str:
    return f"GPU-{board:08x}-0000-4000-8000-{i:012x}"


def pci(i: int) -> str:
    return f"00000000:{PCI_BUSES[i % len(PCI_BUSES)]}:00.0"


def identity(board: int, i: int, name: str, device_id: int, serial: int) -> dict[str, Value]:
    return {
        "name": name,
        "uuid": uuid(board, i),
        "serial": serial + i,
        "minor": i,
        "brand": 14,
        "pci": pci(i),
        "pci_device_id": device_id << 16 | 0x10DE,
        "pci_subsystem_id": (0x1000 + i) << 16 | 0x10DE,
        "persistence_mode": 1,
        "compute_mode": 0,
        "virtualization_mode": 0,
        "memory_affinity": 1 << (i // 4),
        "grid.supported": 0,
    }


def memory(total_mib: int, reserved_mib: int, used: int) -> dict[str, Value]:
    """``used`` in bytes; free is what is left."""
    return {
        "memory.total": total_mib * MIB,
        "memory.reserved": reserved_mib * MIB,
        "memory.used": used,
        "memory.free": (total_mib - reserved_mib) * MIB - used,
    }


def bar1(total_mib: int, used_mib: int) -> dict[str, Value]:
    return {"bar1.total": total_mib * MIB, "bar1.used": used_mib * MIB, "bar1.free": (total_mib - used_mib) * MIB}


def power(draw_mw: int, limit_mw: int, minimum_mw: int, i: int) -> dict[str, Value]:
    """The energy grows by the draw: mW are mJ per second. The four limits differ."""
    energy = f"{1_000_000_000_000 + 1_000_000_000 * i}+{draw_mw}/s"
    return {
        "power_mw": draw_mw,
        "power_limit_mw": limit_mw - 10_000,
        "power_limit_default_mw": limit_mw - 5_000,
        "power_limit_enforced_mw": limit_mw - 20_000,
        "power_limit_min_mw": minimum_mw,
        "power_limit_max_mw": limit_mw,
        "energy_mj": energy,
        "field.83": f"ull:{energy}",
    }


def clocks(sm: int, mem: int, video: int, max_sm: int, max_mem: int, max_video: int) -> dict[str, Value]:
    return {
        "clock.graphics": sm,
        "clock.sm": sm,
        "clock.mem": mem,
        "clock.video": video,
        "clock.max.graphics": max_sm,
        "clock.max.sm": max_sm,
        "clock.max.mem": max_mem,
        "clock.max.video": max_video,
        "clock.app.graphics": max_sm - 30,
        "clock.app.sm": max_sm - 30,
        "clock.app.mem": max_mem - 1,
    }


def utilization(i: int, engines: tuple[str, ...]) -> dict[str, Value]:
    """GPU 90+i, memory 40+i, the engines i, 10+i, 20+i, 30+i percent in this order."""
    keys: dict[str, Value] = {"util.gpu": 90 + i, "util.memory": 40 + i, "util.period_us": 166_666}
    keys.update({f"util.{engine}": 10 * place + i for place, engine in enumerate(engines)})
    return keys


def pcie(i: int, generation: int) -> dict[str, Value]:
    """The link runs one generation below its maximum, as an idle one does."""
    return {
        "pcie.gen": generation - 1,
        "pcie.max_gen": generation,
        "pcie.width": 16,
        "pcie.max_width": 16,
        "pcie.replay": 9 + i,
        "pcie.tx_kb": 1_000 + i,
        "pcie.rx_kb": 2_000 + i,
        "field.94": f"ui:{9 + i}",
    }


def ecc(i: int) -> dict[str, Value]:
    """Healthy memory: i corrected errors since driver load, 100+i in its life, all in DRAM; none uncorrected."""
    keys: dict[str, Value] = {
        "ecc.mode": 1,
        "ecc.pending": 1,
        "field.1": "ui:1",
        "field.2": "ui:1",
        "field.3": f"ull:{i}",
        "field.4": "ull:0",
        "field.5": f"ull:{100 + i}",
        "field.6": "ull:0",
    }
    for counter, corrected in (("volatile", i), ("aggregate", 100 + i)):
        for place, count in (("total", corrected), ("dram", corrected), ("sram", 0)):
            keys[f"ecc.corrected.{counter}.{place}"] = count
            keys[f"ecc.uncorrected.{counter}.{place}"] = 0
    return keys


def row_remapping(i: int) -> dict[str, Value]:
    return {
        "remap.corrected": i,
        "remap.uncorrected": 0,
        "remap.pending": 0,
        "remap.failure": 0,
        "remap.histogram": f"{640 - i},{i},0,0,0",
        "field.142": f"ui:{i}",
        "field.143": "ui:0",
        "field.144": "ui:0",
        "field.145": "ui:0",
    }


def sram() -> dict[str, Value]:
    counters = (
        "aggregate_unc_parity", "aggregate_unc_secded", "aggregate_cor", "volatile_unc_parity", "volatile_unc_secded",
        "volatile_cor", "bucket_l2", "bucket_sm", "bucket_pcie", "bucket_mcu", "bucket_other", "threshold_exceeded",
    )  # fmt: skip
    return {f"sram.{counter}": 0 for counter in counters}


def throttling(i: int) -> dict[str, Value]:
    """Odd GPUs are at their power cap. Field n of the times is (n - 73) s + i ns, for 269 ff. n s + i ns."""
    keys: dict[str, Value] = {"throttle_mask": "0x4" if i % 2 else "0x0", "pstate": 0}
    keys.update({f"field.{n}": f"ull:{(n - 73) * 1_000_000_000 + i}" for n in range(74, 82)})
    keys.update({f"field.{n}": f"ull:{n * 1_000_000_000 + i}" for n in (269, 270, 271)})
    return keys


def nvlink_kib(i: int, link: int) -> tuple[int, int]:
    """Cumulative KiB that a link has sent and received at the epoch; it sends link+1 and receives 2(link+1) MiB/s."""
    return (i + 1) * 1_000_000_000 + link * 1_000_000, (i + 1) * 2_000_000_000 + link * 1_000_000


def nvlink_until_hopper(i: int, links: int, version: int) -> dict[str, Value]:
    """Errors of link n: n replays, no recovery, n+i flit CRC, 0 data CRC; traffic as ``nvlink_kib`` says."""
    keys: dict[str, Value] = {"field.91": f"ui:{links}"}
    for n in range(links):
        sent, received = nvlink_kib(i, n)
        keys |= {
            f"nvlink.{n}.state": 1,
            f"nvlink.{n}.version": version,
            f"nvlink.{n}.remote_type": 2,
            f"nvlink.{n}.error.0": n,
            f"nvlink.{n}.error.1": 0,
            f"nvlink.{n}.error.2": n + i,
            f"nvlink.{n}.error.3": 0,
            f"field.138.{n}": f"ull:{sent}+{(n + 1) * KIB}/s",
            f"field.139.{n}": f"ull:{received}+{2 * (n + 1) * KIB}/s",
        }
    replays = sum(range(links))
    sent_all = sum(nvlink_kib(i, n)[0] for n in range(links))
    received_all = sum(nvlink_kib(i, n)[1] for n in range(links))
    steps = links * (links + 1) // 2 * KIB
    return keys | {
        "field.138.all": f"ull:{sent_all}+{steps}/s",
        "field.139.all": f"ull:{received_all}+{2 * steps}/s",
        "field.38": f"ull:{replays + links * i}",
        "field.45": "ull:0",
        "field.52": f"ull:{replays}",
        "field.59": "ull:0",
        "field.161": f"ull:{replays}",
        "field.162": "ull:0",
        "field.163": "ull:0",
    }


NVLINK5_FIELDS = (201, 202, 203, 204, *range(206, 216), 219, 221)
"""Counters of NVLink 5: packets, bytes, errors, discards, recoveries."""


def nvlink5_counter(i: int, field: int, link: int) -> int:
    """A link's counter at the epoch: traffic is large, errors are small, failures (207, 208, 214) are none."""
    if field in (201, 202, 203, 204):
        return (i + 1) * 10**12 + field * 10**9 + link
    return 0 if field in (207, 208, 214) else i + link


def nvlink5(i: int, links: int) -> dict[str, Value]:
    """The fields by link in the scope, the sum under scope all; bytes sent (202) grow by link+1 MB/s."""
    keys: dict[str, Value] = {"field.91": f"ui:{links}"}
    for n in range(links):
        keys |= {f"nvlink.{n}.state": 1, f"nvlink.{n}.version": 5, f"nvlink.{n}.remote_type": 2}
    for field in NVLINK5_FIELDS:
        values = [nvlink5_counter(i, field, n) for n in range(links)]
        rates = [1_000_000 * (n + 1) if field == 202 else 0 for n in range(links)]
        for n in range(links):
            keys[f"field.{field}.{n}"] = f"ull:{values[n]}" + (f"+{rates[n]}/s" if rates[n] else "")
        keys[f"field.{field}.all"] = f"ull:{sum(values)}" + (f"+{sum(rates)}/s" if sum(rates) else "")
    for n in range(links):
        keys[f"field.220.{n}"] = f"ull:{1 << 8 | 15}"
        keys[f"field.222.{n}"] = f"ull:{3 << 8 | 12}"
    return keys


GPM_RATIOS = {1: 80.0, 2: 70.0, 3: 40.5, 4: 6.25, 5: 33.25, 6: 1.0, 7: 30.5, 8: 0.5, 9: 2.0, 10: 45.5, 11: 3.0,
              12: 12.0, 13: 4.0}  # fmt: skip
"""Percent at i = 0; GPU i has i more."""


def gpm(i: int, links: int) -> dict[str, Value]:
    """Ratios of ``GPM_RATIOS``; PCIe 1000+i sent, 2000+i received; link n 20(n+1)+i sent, 10(n+1)+i received, MiB/s."""
    keys: dict[str, Value] = {"gpm_supported": 1}
    keys.update({f"gpm.{metric}": percent + i for metric, percent in GPM_RATIOS.items()})
    keys |= {"gpm.20": 1000 + i, "gpm.21": 2000 + i, "gpm.50": 0}
    keys.update({f"gpm.{30 + n}": n + i for n in range(7)})
    keys.update({f"gpm.{40 + n}": n + i for n in range(7)})
    received = [10 * (n + 1) + i for n in range(links)]
    sent = [20 * (n + 1) + i for n in range(links)]
    keys |= {"gpm.60": sum(received), "gpm.61": sum(sent)}
    for n in range(links):
        keys |= {f"gpm.{62 + 2 * n}": received[n], f"gpm.{63 + 2 * n}": sent[n]}
    return keys


def fabric(cluster: str, clique: int, newest: int) -> dict[str, Value]:
    """A GPU that has joined its fabric (state 3)."""
    return {
        "fabric.uuid": cluster,
        "fabric.status": 0,
        "fabric.clique": clique,
        "fabric.state": 3,
        "fabric.health_mask": FABRIC_HEALTHY,
        "fabric.health_summary": 1,
        "fabric.max_version": newest,
    }
