"""Who the simulated devices are: uuids, addresses, labels, and how each is cut into parts."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from collectors.base import Device, Labels
from collectors.simulated.options import PartProfile, Simulation
from collectors.tables import Tables

_GUESSES = (
    (("uuid",), "{uuid}"),
    (("serial",), "{serial}"),
    (("pci", "bus", "bdf"), "{pci}"),
    (("driver",), "{driver_version}"),
    (("host", "node"), "{node}"),
    (("model", "name", "card"), "{model}"),
)
"""What a label is likely to hold, by words in its name, where simulation.toml does not say. Else the index."""


class Facts(msgspec.Struct, frozen=True):
    """The words that templates may use."""

    words: Mapping[str, str]

    def fill(self, template: str) -> str:
        """Raises ValueError for a template that uses another word."""
        try:
            return template.format_map(self.words)
        except (KeyError, IndexError, AttributeError) as error:
            raise ValueError(
                f"simulation.toml: the template {template!r} is not understood; expected words of "
                f"{{{'}, {'.join(self.words)}}}"
            ) from error


def random_uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def whole(number: int, tables: Tables, simulation: Simulation, node: str, rng: random.Random) -> tuple[Device, Facts]:
    """The device with this number. Raises ValueError for a template that cannot be filled."""
    data = simulation.device
    # A bus has two digits: addresses repeat beyond 240 devices, uuids do not.
    bus = 0x10 + number % 240
    words: dict[str, object] = {"index": number, "number": rng.randrange(10**8), "bus": bus, "uuid": random_uuid(rng)}
    try:
        own = data.uuid.format_map(words)
        serial = data.serial.format_map(words)
        pci = data.pci_bus_id.format_map(words)
    except (KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"simulation.toml: a template of [device] is not understood ({error})") from error
    model = data.model or f"{tables.title or tables.vendor} (simulated)"
    facts = Facts(
        {
            "index": str(number),
            "uuid": own,
            "pci": pci,
            "serial": serial,
            "model": model,
            "node": node,
            "driver_version": data.driver_version,
            "profile": "",
            "part": "",
            "fault_code": "0",
            "fault_name": "",
        }
    )
    device = Device(
        uuid=own,
        index=str(number),
        kind=data.kind or tables.kind,
        model=model,
        serial=serial,
        pci_bus_id=pci,
        driver_version=data.driver_version,
        firmware_version=data.firmware_version,
        numa_node=str(number % 8 // 4),
        raw_labels=_raw_labels(tables.identity, simulation, facts, part=False),
    )
    return device, facts


def part_facts(facts: Facts, number: int, profile: PartProfile) -> Facts:
    """What templates may say of the part with this number."""
    return Facts({**facts.words, "profile": profile.profile, "part": str(number)})


def part(device: Device, facts: Facts, tables: Tables, simulation: Simulation, own_uuid: str) -> Device:
    """The part of the device that ``facts`` tell of. Raises ValueError for a template that cannot be filled."""
    return msgspec.structs.replace(
        device,
        partition=facts.fill(simulation.parts.name),
        partition_profile=facts.words["profile"],
        partition_uuid=Facts({**facts.words, "uuid": own_uuid}).fill(simulation.parts.uuid),
        raw_labels=_raw_labels(tables.identity, simulation, facts, part=True),
    )


def profiles(simulation: Simulation, wanted: str) -> Sequence[PartProfile]:
    """The parts of a device that is cut. Raises ValueError for a profile that simulation.toml has not."""
    known = simulation.parts.profiles
    if not wanted:
        return known
    chosen = [profile for profile in known if profile.profile == wanted]
    if not chosen:
        raise ValueError(f"profile {wanted!r} is unknown; expected one of {', '.join(p.profile for p in known)}")
    return chosen


def _raw_labels(identity: Sequence[str], simulation: Simulation, facts: Facts, *, part: bool) -> Labels:
    found: list[tuple[str, str]] = []
    for label in identity:
        template = simulation.raw_labels.get(label)
        if label in simulation.part_labels:
            template = simulation.part_labels[label] if part else ""
        value = facts.fill(_guess(label) if template is None else template)
        if value:
            found.append((label, value))
    return tuple(found)


def _guess(label: str) -> str:
    lower = label.lower()
    return next((template for words, template in _GUESSES if any(word in lower for word in words)), "{index}")
