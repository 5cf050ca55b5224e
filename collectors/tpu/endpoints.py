"""Where the runtimes answer: told by the user or by the processes that hold the chips, else this host's usual ports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from collectors.dial import Address, parse_address
from collectors.tpu import owners as processes
from collectors.tpu.chips import Chip
from collectors.tpu.owners import Owners
from collectors.tpu.runtime import PORTS, Group

_LOCAL: Final = "localhost"
_MAX_PORTS: Final = 16


class _Network(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that share a network, and the chips that they hold."""

    hosts: tuple[str, ...]
    addresses: tuple[Address, ...]
    chips: tuple[int, ...]


def find_groups(
    proc: str,
    chips: Sequence[Chip],
    owners: Owners,
    told: Sequence[Address],
    environ: Mapping[str, str] = os.environ,
) -> tuple[Group, ...]:
    """``told``: the user's addresses; ``environ``: our own. None where it is certain that nobody holds a chip."""
    every = tuple(chip.index for chip in chips)
    networks = _networks(proc, chips, owners)
    if told:
        return _told(told, networks, every)
    if networks:
        return tuple(Group(network.addresses, network.chips) for network in networks)
    if owners.complete:
        return ()
    return (Group(_addresses((_LOCAL,), environ, chips, ""), every),)


def _told(told: Sequence[Address], networks: Sequence[_Network], every: tuple[int, ...]) -> tuple[Group, ...]:
    """The user's addresses; those of one host are of one workload."""
    by_host: dict[str, list[Address]] = {}
    for address in told:
        by_host.setdefault(address.host, []).append(address)
    return tuple(
        Group(tuple(found), next((network.chips for network in networks if host in network.hosts), every))
        for host, found in by_host.items()
    )


def _networks(proc: str, chips: Sequence[Chip], owners: Owners) -> list[_Network]:
    holds: dict[int, set[int]] = {}
    for chip in chips:
        for node in chip.nodes:
            for pid in owners.pids.get(node, ()):
                holds.setdefault(pid, set()).add(chip.index)
    by_network: dict[str, list[int]] = {}
    for pid in sorted(holds):
        by_network.setdefault(processes.network(proc, pid), []).append(pid)
    own = processes.network(proc, "self")
    found = []
    for network, pids in by_network.items():
        held = tuple(sorted({index for pid in pids for index in holds[pid]}))
        local = not network or network == own
        hosts = (_LOCAL,) if local else processes.addresses(proc, pids[0])
        theirs = [chip for chip in chips if chip.index in held]
        addresses = dict.fromkeys(
            address
            for pid in pids
            for address in _addresses(hosts, processes.environment(proc, pid), theirs, f"{proc}/{pid}/root")
        )
        found.append(_Network(hosts=hosts, addresses=tuple(addresses)[:_MAX_PORTS], chips=held))
    return found


def _addresses(
    hosts: Sequence[str], environ: Mapping[str, str], chips: Sequence[Chip], root: str
) -> tuple[Address, ...]:
    """Of a process with this environment. ``root``: where its files are seen from here."""
    named = environ.get("TPU_RUNTIME_METRICS_ADDRESS", "")
    if named:
        try:
            address = parse_address(named)
        except ValueError:
            # Another form than is known: the ports are tried.
            pass
        else:
            if address.path:
                return (Address(path=root + address.path),)
            return tuple(Address(host=host, port=address.port) for host in hosts[:1])
    ports = tuple(_ports(environ.get("TPU_RUNTIME_METRICS_PORTS", ""))) or PORTS[: usual_ports(chips)]
    return tuple(Address(host=host, port=port) for host in hosts[:1] for port in ports)


def _ports(listed: str) -> Iterable[int]:
    for word in listed.split(",")[:_MAX_PORTS]:
        if word.strip().isdecimal() and 0 < int(word.strip()[:6]) < 65536:
            yield int(word.strip()[:6])


def usual_ports(chips: Sequence[Chip]) -> int:
    """How many ports GKE gives a workload with these chips: one for each device that a runtime may show."""
    return max(1, min(len(PORTS), sum(chip.generation.devices for chip in chips)))
