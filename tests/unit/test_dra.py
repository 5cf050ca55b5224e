"""ResourceSlices, and the devices that containers hold through them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collectors
from exporter.attribution.api import ApiError, decoded
from exporter.attribution.claims import Claim, Status
from exporter.attribution.dra import DraSource, Slice, index, names_of
from exporter.attribution.held import DraDevice, Held
from exporter.attribution.table import DraRule
from exporter.catalogue import load
from tests.fakes.apiserver.objects import Json, resource_slice

DRIVER = "gpu.nvidia.com"
SLICE = msgspec.json.Decoder(Slice)
GPU0: Mapping[str, Json] = {"uuid": {"string": "GPU-0"}, "type": {"string": "gpu"}, "minor": {"int": 0}}


def slices(*items: Json) -> list[Slice]:
    return [SLICE.decode(json.dumps(item)) for item in items]


def found(*items: Json) -> dict[str, Mapping[str, str]]:
    """Device → its attributes."""
    return {device: told for (_, _, device), told in index(slices(*items)).items()}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_attributes_are_found_in_each_version_of_the_api(version: str) -> None:
    told = found(resource_slice("s", {"gpu-0": GPU0}, version=version))
    assert told["gpu-0"]["uuid"] == "GPU-0"
    assert told["gpu-0"]["minor"] == "0"


def test_an_attribute_of_the_drivers_own_domain_has_two_names() -> None:
    spelled = {f"{DRIVER}/uuid": {"string": "GPU-0"}, "resource.kubernetes.io/pciBusID": {"string": "0000:1a:00.0"}}
    told = found(resource_slice("s", {"gpu-0": spelled}))["gpu-0"]
    assert told["uuid"] == told[f"{DRIVER}/uuid"] == "GPU-0"
    assert told["resource.kubernetes.io/pciBusID"] == "0000:1a:00.0"
    assert "pciBusID" not in told


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"string": "x"}, "x"),
        ({"int": 0}, "0"),
        ({"version": "580.65.6"}, "580.65.6"),
        ({"bool": True}, ""),
        ({"strings": ["a", "b"]}, ""),
    ],
)
def test_values_that_name_something_are_text_and_others_empty(value: Json, text: str) -> None:
    assert found(resource_slice("s", {"gpu-0": {"a": value}}))["gpu-0"]["a"] == text


def test_only_the_highest_complete_generation_of_a_pool_counts() -> None:
    def one(name: str, device: str, generation: int, count: int = 1) -> Json:
        return resource_slice(name, {device: GPU0}, generation=generation, count=count)

    assert set(found(one("a", "old", 1), one("b", "new", 2))) == {"new"}
    assert set(found(one("a", "old", 1), one("b", "new", 2, count=2))) == {"old"}
    both = (one("b", "new-0", 2, count=2), one("c", "new-1", 2, count=2))
    assert set(found(one("a", "old", 1), *both)) == {"new-0", "new-1"}
    assert found(both[0]) == {}


def test_pools_and_drivers_are_kept_apart() -> None:
    told = index(
        slices(
            resource_slice("a", {"gpu-0": GPU0}, generation=9),
            resource_slice("b", {"gpu-0": {"uuid": {"string": "other"}}}, pool="node1-b"),
            resource_slice("c", {"gpu-0": {}}, driver="gpu.amd.com"),
        )
    )
    assert {(driver, pool): told.get("uuid") for (driver, pool, _), told in told.items()} == {
        (DRIVER, "node1"): "GPU-0",
        (DRIVER, "node1-b"): "other",
        ("gpu.amd.com", "node1"): None,
    }


def test_what_was_known_of_a_pool_stays_while_it_is_rewritten_and_goes_with_it() -> None:
    before = index(slices(resource_slice("a", {"gpu-0": GPU0})))
    halfway = slices(
        resource_slice("a", {"gpu-0": GPU0}, generation=2, count=2),
        resource_slice("b", {"gpu-1": GPU0}, generation=1, count=2),
    )
    assert index(halfway, before) == before
    assert index([], before) == {}


def test_a_slice_of_counters_has_no_devices() -> None:
    counters = resource_slice("a", {})
    counters["spec"]["devices"] = None
    counters["spec"]["sharedCounters"] = [{"name": "gpu-0-counters"}]
    assert found(counters) == {}


RULE = DraRule(
    driver=DRIVER,
    attributes={"uuid": "uuid", "resource.kubernetes.io/pciBusID": "pci_bus_id"},
    names=(r"(?P<dra>gpu-\d+(?:-mig-.+)?)",),
    skip=(r"channel-\d+", r"daemon-\d+"),
)


def device(name: str, *, driver: str = DRIVER, share: str = "", claim: str = "gpus") -> DraDevice:
    return DraDevice(driver, "node1", name, share, claim, "t1")


@pytest.mark.parametrize(
    ("name", "attributes", "names"),
    [
        pytest.param("gpu-0", {"uuid": "GPU-0"}, {"uuid": "GPU-0"}, id="the slice tells"),
        pytest.param(
            "gpu-0",
            {"uuid": "GPU-0", "resource.kubernetes.io/pciBusID": "0000:1a:00.0"},
            {"uuid": "GPU-0", "pci_bus_id": "0000:1a:00.0"},
            id="the slice tells twice",
        ),
        pytest.param("gpu-0", {}, {"dra": "gpu-0"}, id="no slice: the name tells"),
        pytest.param("gpu-1-mig-2g47gb-14-0", {"uuid": ""}, {"dra": "gpu-1-mig-2g47gb-14-0"}, id="MIG without a uuid"),
        pytest.param("channel-7", {}, None, id="a channel is no device"),
        pytest.param("fpga-0", {}, {}, id="nothing tells"),
    ],
)
def test_names_of_a_device(name: str, attributes: Mapping[str, str], names: Mapping[str, str] | None) -> None:
    assert names_of(device(name), RULE, attributes) == names


def claims(
    held: Sequence[Held], slices_: Sequence[Slice] = (), admin: Sequence[str] = (), rule: DraRule = RULE
) -> Sequence[Claim]:
    source = DraSource(
        lambda: held,
        {DRIVER: ("nvidia", rule)},
        lambda: slices_,
        lambda each: each.claim_name in admin,
        lambda: Status(up=True),
    )
    return source.claims()


def holder(pod: str, *devices: DraDevice) -> Held:
    return Held("ns", pod, "main", (), devices)


def test_a_container_claims_what_its_claims_name() -> None:
    told = claims(
        [holder("a", device("gpu-0"), device("channel-0"), device("gpu-0", driver="unknown.com"))],
        slices(resource_slice("s", {"gpu-0": GPU0})),
    )
    assert [(claim.pod, claim.container, claim.vendor, claim.resource, claim.names) for claim in told] == [
        ("a", "main", "nvidia", DRIVER, {"uuid": "GPU-0"})
    ]
    assert told[0].raw == {
        "dra_claim_name": "gpus",
        "dra_claim_namespace": "t1",
        "dra_driver_name": DRIVER,
        "dra_pool_name": "node1",
        "dra_device_name": "gpu-0",
    }


MIG = {"type": {"string": "mig"}, "profile": {"string": "1g.10gb"}, "parentUUID": {"string": "GPU-0"}}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        pytest.param(
            {**MIG, "uuid": {"string": "MIG-7"}},
            {"dra_mig_profile": "1g.10gb", "dra_mig_device_uuid": "MIG-7"},
            id="a MIG device",
        ),
        pytest.param(MIG, {"dra_mig_profile": "1g.10gb"}, id="one that is made for its claim has no uuid"),
        pytest.param({f"{DRIVER}/{name}": value for name, value in MIG.items()}, {"dra_mig_profile": "1g.10gb"},
                     id="names with the driver's domain"),
        pytest.param(GPU0, {}, id="a whole GPU"),
        pytest.param({"profile": {"string": "1g.10gb"}}, {}, id="the slice does not say what it is"),
    ],
)  # fmt: skip
def test_raw_labels_of_a_mig_device_are_those_of_its_slice(
    attributes: Mapping[str, Json], expected: Mapping[str, str]
) -> None:
    rule = load(Path(collectors.__path__[0]) / "nvidia", "collectors.nvidia").collector.attribution.dra[0]
    (claim,) = claims([holder("a", device("gpu-0"))], slices(resource_slice("s", {"gpu-0": attributes})), rule=rule)
    assert {name: value for name, value in claim.raw.items() if name.startswith("dra_mig")} == expected


def test_monitors_with_administrative_access_claim_nothing() -> None:
    held = [holder("a", device("gpu-0")), holder("monitor", device("gpu-0", claim="all"))]
    assert [claim.pod for claim in claims(held, admin=["all"])] == ["a"]


def test_shares_of_one_device_are_told_apart() -> None:
    held = [holder("a", device("gpu-0", share="s1"), device("gpu-0", share="s2")), holder("b", device("gpu-0"))]
    assert [(claim.pod, claim.share) for claim in claims(held)] == [("a", "s1"), ("a", "s2"), ("b", "")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "driver", "pool", "devices", "name", "attributes", "basic", "generation", "string"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=14,
)


@given(st.binary(max_size=80) | JSON.map(lambda told: json.dumps(told).encode()))
def test_any_slice_is_read_or_refused(data: bytes) -> None:
    with suppress(ApiError):
        index([decoded(SLICE, data, "")])
