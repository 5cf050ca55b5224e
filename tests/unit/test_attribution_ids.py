"""The forms of device ids that kubelets, DRA drivers and annotations know, by vendor: one table for all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest

import collectors
from collectors.base import Device
from collectors.nvidia.partitions import Compute, Instance, partitions
from exporter.attribution.annotations import claims_of
from exporter.attribution.claims import Claim, Pod
from exporter.attribution.dra import names_of
from exporter.attribution.held import DraDevice
from exporter.attribution.match import Matcher, VendorDevices, concerns, names
from exporter.catalogue import Catalogue, load

VENDORS: Final = ("amd", "gaudi", "neuron", "nvidia", "tpu")


def catalogue(vendor: str) -> Catalogue:
    return load(Path(collectors.__path__[0]) / vendor, f"collectors.{vendor}")


G0, G1 = "GPU-5fd4a087-2cf2-8e9c-4b3d-0a1b2c3d4e5f", "GPU-e1a8c9b2-17d0-9f3e-aa55-0102030405ff"
M7, M9, C0, C1 = (f"MIG-1f0e2d3c-4b5a-5678-9abc-00000000000{number}" for number in "7901")


def nvidia_devices() -> list[Device]:
    """Minor numbers are not the indices; of a GPU with MIG one instance has two compute instances."""

    def whole(uuid: str, index: str, minor: int, bus_id: str) -> Device:
        ids = {
            "index": index,
            "uuid": uuid,
            "minor": str(minor),
            "device_name": f"nvidia{minor}",
            "dra": f"gpu-{minor}",
        }
        return Device(uuid=uuid, index=index, pci_bus_id=bus_id, ids=ids)

    plain, cut = whole(G0, "0", 3, "00000000:1A:00.0"), whole(G1, "1", 2, "00000000:3B:00.0")
    instances = [
        Instance(
            gi=gi,
            profile=profile,
            profile_id=profile_id,
            placement=placement,
            computes=tuple(Compute(handle=None, ci=ci, uuid=uuid, profile=name) for ci, uuid, name in computes),
        )
        for gi, profile, profile_id, placement, computes in (
            (7, "1g.10gb", 19, 0, [(0, M7, "1g.10gb")]),
            (9, "1g.10gb+me", 20, 1, [(0, M9, "1g.10gb+me")]),
            (2, "3g.40gb", 9, 4, [(0, C0, "1c.3g.40gb"), (1, C1, "2c.3g.40gb")]),
        )
    ]
    parts = [partition.device for instance in instances for partition in partitions(instance, cut, 2, ())]
    return [plain, cut, *parts]


AMD_WHOLE, AMD_CUT = "0000000000000001", "0000000000000002"


def amd_devices() -> list[Device]:
    """A whole GPU, and one in two parts, which have indices, minors and names of their own."""
    whole = Device(uuid=AMD_WHOLE, index="0", pci_bus_id="0000:19:00.0", serial="S1")
    cut = Device(uuid=AMD_CUT, index="1", pci_bus_id="0000:9f:00.0", serial="S2")
    first = {"index": "1", "bdf": "0000:9f:00.0", "render": "129", "dra": "gpu-2-129"}
    second = {"index": "2", "device_name": "amdgpu_xcp_5", "render": "130", "dra": "gpu-3-130"}
    return [
        msgspec.structs.replace(whole, ids={"index": "0", "bdf": "0000:19:00.0", "render": "128", "dra": "gpu-1-128"}),
        cut,
        msgspec.structs.replace(cut, partition="0", partition_uuid="part-0", index="1", ids=first),
        msgspec.structs.replace(cut, partition="1", partition_uuid="part-1", index="2", ids=second),
    ]


def neuron_devices() -> list[Device]:
    found: list[Device] = []
    for index in ("0", "1"):
        whole = Device(uuid=f"N{index}", index=index, kind="npu", ids={"neuron_device": index})
        cores = (2 * int(index), 2 * int(index) + 1)
        parts = [msgspec.structs.replace(whole, partition=str(core), ids={"neuroncore": str(core)}) for core in cores]
        found += [whole, *parts]
    return found


def gaudi_devices() -> list[Device]:
    return [
        Device(
            uuid=f"01P0-HL2080A0-15-TNPS34-0{number}-00-00",
            index=str(number),
            kind="hpu",
            serial=f"AN1234567{number}",
            pci_bus_id=f"0000:a{number}:00.0",
            # Index, minor number and module id differ.
            ids={"minor": str(7 - number), "accel": f"accel{7 - number}", "dra": f"0000-a{number}-00-0-0x1020"},
        )
        for number in (0, 1)
    ]


def tpu_devices() -> list[Device]:
    """Ids of one host can have gaps, and the slots are those of a 7x."""
    named = [("accel0", ""), ("accel1", ""), ("8", ""), ("13", ""), ("", "0000:c0:02")]
    return [
        Device(
            uuid=f"host-{index}",
            index=str(index),
            kind="tpu",
            ids={name: value for name, value in (("device_name", device), ("slot", slot)) if value},
        )
        for index, (device, slot) in enumerate(named)
    ]


DEVICES: Final[Mapping[str, Sequence[Device]]] = {
    "amd": amd_devices(),
    "gaudi": gaudi_devices(),
    "neuron": neuron_devices(),
    "nvidia": nvidia_devices(),
    "tpu": tpu_devices(),
}

Expected = Sequence[tuple[str, str, str]]
"""uuid, partition, share"""

IDS: Final[Sequence[tuple[str, str, str, Expected]]] = (
    # vendor, resource, id, devices
    ("nvidia", "nvidia.com/gpu", G0, [(G0, "", "")]),
    ("nvidia", "nvidia.com/gpu", f"GPU-{G0[4:].upper()}", [(G0, "", "")]),
    ("nvidia", "nvidia.com/gpu", f"{G0}::0", [(G0, "", "0")]),
    ("nvidia", "nvidia.com/gpu.shared", f"{G0}::12", [(G0, "", "12")]),
    ("nvidia", "nvidia.com/renamed", f"{G1}::3", [(G1, "", "3")]),
    ("nvidia", "nvidia.com/gpu", f"{G0}-7", [(G0, "", "7")]),
    ("nvidia", "volcano.sh/vgpu-number", f"{G0}-7", [(G0, "", "7")]),
    ("nvidia", "nvidia.com/gpu", f"{G0}-x", []),
    ("nvidia", "nvidia.com/gpu", G0[:-1] + "0", []),
    ("nvidia", "nvidia.com/mig-1g.10gb", M7, [(G1, "1g.10gb/7", "")]),
    ("nvidia", "nvidia.com/mig-1g.10gb.me", M9, [(G1, "1g.10gb+me/9", "")]),
    ("nvidia", "nvidia.com/gpu", f"{M7}::2", [(G1, "1g.10gb/7", "2")]),
    ("nvidia", "nvidia.com/mig-1c.3g.40gb", C0, [(G1, "1c.3g.40gb/2/0", "")]),
    ("nvidia", "nvidia.com/mig-2c.3g.40gb", C1, [(G1, "2c.3g.40gb/2/1", "")]),
    ("nvidia", "nvidia.com/gpu", f"MIG-{G1}/7/0", [(G1, "1g.10gb/7", "")]),
    ("nvidia", "nvidia.com/gpu", f"MIG-{G1}/2/1", [(G1, "2c.3g.40gb/2/1", "")]),
    ("nvidia", "nvidia.com/gpu", f"MIG-{G1}/7/3", []),
    # GKE: by minor number, which is not the index.
    ("nvidia", "nvidia.com/gpu", "nvidia3", [(G0, "", "")]),
    ("nvidia", "nvidia.com/gpu", "nvidia2", [(G1, "", "")]),
    ("nvidia", "nvidia.com/gpu", "nvidia0", []),
    ("nvidia", "nvidia.com/gpu", "nvidia3/vgpu1", [(G0, "", "1")]),
    ("nvidia", "nvidia.com/gpu", "nvidia2/gi7", [(G1, "1g.10gb/7", "")]),
    ("nvidia", "nvidia.com/gpu", "nvidia2/gi7/vgpu0", [(G1, "1g.10gb/7", "0")]),
    ("nvidia", "nvidia.com/gpu", "nvidia2/gi2", [(G1, "3g.40gb/2", "")]),
    ("nvidia", "nvidia.com/gpu", "nvidia3/gi7", []),
    ("nvidia", "nvidia.com/gpu", "all", [(G0, "", ""), (G1, "", "")]),
    ("nvidia", "nvidia.com/gpu", "tegra", [(G0, "", ""), (G1, "", "")]),
    ("nvidia", "nvidia.com/gpu", "0", []),
    ("nvidia", "nvidia.com/gpu", "", []),
    ("amd", "amd.com/gpu", "0000:19:00.0", [(AMD_WHOLE, "", "")]),
    ("amd", "amd.com/gpu", "0000:9F:00.0", [(AMD_CUT, "0", "")]),
    ("amd", "amd.com/cpx_nps4", "amdgpu_xcp_5", [(AMD_CUT, "1", "")]),
    ("amd", "amd.com/gpu", "amdgpu_xcp_6", []),
    ("amd", "amd.com/gpu", "1", []),
    ("neuron", "aws.amazon.com/neuron", "1", [("N1", "", "")]),
    ("neuron", "aws.amazon.com/neurondevice", "0", [("N0", "", "")]),
    ("neuron", "aws.amazon.com/neuroncore", "1", [("N0", "1", "")]),
    ("neuron", "aws.amazon.com/neuroncore", "3", [("N1", "3", "")]),
    ("neuron", "aws.amazon.com/neuron", "2", []),
    ("gaudi", "habana.ai/gaudi", "AN12345671", [("01P0-HL2080A0-15-TNPS34-01-00-00", "", "")]),
    ("gaudi", "habana.ai/gaudi", "AN1234567", []),
    ("tpu", "google.com/tpu", "accel1", [("host-1", "", "")]),
    ("tpu", "google.com/tpu", "13", [("host-3", "", "")]),
    ("tpu", "google.com/tpu", "0000:c0:02", [("host-4", "", "")]),
    # By name, never by index.
    ("tpu", "google.com/tpu", "0", []),
)


def found(vendor: str, claim: Claim) -> Expected:
    matcher = Matcher([VendorDevices(vendor, catalogue(vendor).collector.attribution, tuple(DEVICES[vendor]))])
    return [(*match.key, match.share) for match in matcher.find(claim)]


@pytest.mark.parametrize(("vendor", "resource", "device_id", "devices"), IDS)
def test_a_kubelets_id_means_these_devices(vendor: str, resource: str, device_id: str, devices: Expected) -> None:
    assert found(vendor, Claim(source="podresources", resource=resource, device_id=device_id)) == devices


@pytest.mark.parametrize(
    ("vendor", "resource", "hands_out_devices"),
    [
        ("nvidia", "nvidia.com/gpu", True),
        ("nvidia", "nvidia.com/gpumem", False),
        ("nvidia", "nvidia.com/gpumem-percentage", False),
        ("nvidia", "nvidia.com/gpucores", False),
        ("nvidia", "nvidia.com/priority", False),
        ("nvidia", "amd.com/gpu", False),
        ("nvidia", "volcano.sh/vgpu-memory", False),
        ("nvidia", "example.com/nvidia.com/gpu", False),
        ("amd", "amd.com/spx_nps1", True),
        ("amd", "amd.com/gpumem", False),
        ("amd", "amd.com/gpucores", False),
        ("neuron", "aws.amazon.com/efa", False),
        ("gaudi", "habana.ai/gaudi", True),
        ("tpu", "google.com/tpu", True),
    ],
)
def test_resources_of_the_vendor_that_hand_out_devices(vendor: str, resource: str, hands_out_devices: bool) -> None:
    assert concerns(catalogue(vendor).collector.attribution, resource) == hands_out_devices


CLAIMED: Final[Sequence[tuple[str, str, str, Mapping[str, str], Expected]]] = (
    # vendor, driver, device, attributes of its slice, devices
    ("nvidia", "gpu.nvidia.com", "gpu-0", {"uuid": G0, "type": "gpu"}, [(G0, "", "")]),
    ("nvidia", "gpu.nvidia.com", "gpu-0-mig-1g10gb-19-0", {"uuid": M7, "parentUUID": G1}, [(G1, "1g.10gb/7", "")]),
    ("nvidia", "gpu.nvidia.com", "gpu-3", {}, [(G0, "", "")]),
    ("nvidia", "gpu.nvidia.com", "gpu-2-mig-1g10gb-19-0", {"parentUUID": G1}, [(G1, "1g.10gb/7", "")]),
    ("nvidia", "gpu.nvidia.com", "gpu-2-mig-1g10gb-me-20-1", {"parentUUID": G1}, [(G1, "1g.10gb+me/9", "")]),
    ("nvidia", "gpu.nvidia.com", "gpu-2-mig-3g40gb-9-4", {"parentUUID": G1}, [(G1, "3g.40gb/2", "")]),
    ("nvidia", "gpu.nvidia.com", "gpu-2-mig-1g10gb-19-5", {"parentUUID": G1}, []),
    ("nvidia", "gpu.nvidia.com", "gpu-vfio-0", {}, []),
    ("amd", "gpu.amd.com", "gpu-1-128", {"renderIndex": "128", "pciAddr": "0000:19:00.0"}, [(AMD_WHOLE, "", "")]),
    ("amd", "gpu.amd.com", "gpu-3-130", {}, [(AMD_CUT, "1", "")]),
    ("neuron", "neuron.aws.com", "neurondevice1", {"deviceId": "1"}, [("N1", "", "")]),
    ("neuron", "neuron.aws.com", "neurondevice0", {}, [("N0", "", "")]),
    ("gaudi", "gaudi.intel.com", "accel7", {"serial": "AN12345670"}, [("01P0-HL2080A0-15-TNPS34-00-00-00", "", "")]),
    ("gaudi", "gaudi.intel.com", "0000-a1-00-0-0x1020", {}, [("01P0-HL2080A0-15-TNPS34-01-00-00", "", "")]),
    ("gaudi", "gaudi.intel.com", "accel6", {}, [("01P0-HL2080A0-15-TNPS34-01-00-00", "", "")]),
    # Its uuid is the same for all chips of a node.
    ("tpu", "tpu.google.com", "accel0", {"uuid": "tpu-0123", "index": "0"}, [("host-0", "", "")]),
    ("tpu", "tpu.google.com", "8", {}, [("host-2", "", "")]),
)


@pytest.mark.parametrize(("vendor", "driver", "device", "attributes", "devices"), CLAIMED)
def test_a_device_of_a_claim_means_these_devices(
    vendor: str, driver: str, device: str, attributes: Mapping[str, str], devices: Expected
) -> None:
    (rule,) = [rule for rule in catalogue(vendor).collector.attribution.dra if rule.driver == driver]
    told = names_of(DraDevice(driver, "node1", device, "", "claim", "ns"), rule, attributes)
    assert told is not None
    assert found(vendor, Claim(source="dra", resource=driver, device_id=device, names=told)) == devices


@pytest.mark.parametrize("device", ["channel-0", "channel-2047", "daemon-0"])
def test_channels_of_a_compute_domain_are_no_devices(device: str) -> None:
    (rule,) = catalogue("nvidia").collector.attribution.dra
    assert names_of(DraDevice(rule.driver, "node1", device, "", "claim", "ns"), rule, {}) is None


def test_hamis_annotation_names_the_gpus_that_its_scheduler_chose() -> None:
    rule, *_ = catalogue("nvidia").collector.attribution.annotations
    text = f";{G1},NVIDIA,8192,30:{G0},NVIDIA,8192,30:;"
    pod = Pod(namespace="ns", name="p", annotations={rule.key: text}, container_order=("first", "second"))
    claims = list(claims_of(pod, "nvidia", rule))
    assert [(claim.container, found("nvidia", claim)) for claim in claims] == [
        ("second", [(G1, "", "1.0")]),
        ("second", [(G0, "", "1.1")]),
    ]
    assert all(re.fullmatch(r"nvidia\.com/\*", resource) for claim in claims for resource in claim.replaces)


def test_volcanos_annotation_names_the_gpus_that_its_scheduler_chose() -> None:
    """Key and form: Project-HAMi/volcano-vgpu-device-plugin, pkg/util."""
    rule = catalogue("nvidia").collector.attribution.annotations[-1]
    assert rule.key == "volcano.sh/vgpu-ids-new"
    pod = Pod(namespace="ns", name="p", annotations={rule.key: f";{G1},NVIDIA,1,2:"}, container_order=("c1", "c2"))
    (claim,) = claims_of(pod, "nvidia", rule)
    assert (claim.container, claim.replaces) == ("c2", ("volcano.sh/vgpu-number",))
    assert found("nvidia", claim) == [(G1, "", "1.0")]


def test_hamis_annotation_names_the_neuron_devices_that_its_scheduler_chose() -> None:
    """Ids are NODE-AWSNeuron-INDEX, and the last field is a mask of cores (Project-HAMi/HAMi, pkg/device/awsneuron)."""
    (rule,) = catalogue("neuron").collector.attribution.annotations
    text = "ip-10-0-0-7.ec2.internal-AWSNeuron-1,AWSNeuron,0,3:;n1-AWSNeuron-0,AWSNeuron,0,1:;"
    pod = Pod(namespace="ns", name="p", annotations={rule.key: text}, container_order=("first", "second"))
    claims = list(claims_of(pod, "neuron", rule))
    assert [(claim.container, found("neuron", claim)) for claim in claims] == [
        ("first", [("N1", "", "0.0")]),
        ("second", [("N0", "", "1.0")]),
    ]
    assert {"aws.amazon.com/neuron", "aws.amazon.com/neuroncore"} <= set(claims[0].replaces)


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_name_in_a_form_is_one_that_some_device_has(vendor: str) -> None:
    table = catalogue(vendor).collector.attribution
    known = {"share"} | {name for device in DEVICES[vendor] for name in names(device)}
    patterns = [form.pattern for form in table.ids] + [pattern for rule in table.dra for pattern in rule.names]
    asked = {name for pattern in patterns for name in re.compile(pattern).groupindex}
    assert asked <= known
    assert {fact for rule in table.dra for fact in rule.attributes.values()} <= known


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("device_id", ["", " ", "x" * 10_000, "\n", "../../etc", "GPU-", "::", "0000:19:00.0\n"])
def test_no_form_takes_what_is_no_id(vendor: str, device_id: str) -> None:
    for resource in ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuroncore", "habana.ai/gaudi", "google.com/tpu"):
        assert found(vendor, Claim(source="podresources", resource=resource, device_id=device_id)) == []


def test_dcgm_exporters_labels_of_a_workload() -> None:
    table = catalogue("nvidia").collector.attribution
    assert {table.raw_labels[fact] for fact in ("namespace", "pod", "container", "hpc_job")} == {
        "namespace",
        "pod",
        "container",
        "hpc_job",
    }
    assert table.raw_labels["share"] == "vgpu"
    assert {"dra_mig_profile", "dra_mig_device_uuid"} <= set(table.raw_labels.values())
    assert not table.raw_empty
