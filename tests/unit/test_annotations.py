"""Annotations that tell devices better than the kubelet does."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution.annotations import MAX_DEVICES, AnnotationSource
from exporter.attribution.claims import Claim, Pod
from exporter.attribution.held import Held
from exporter.attribution.table import AnnotationRule

KEY = "hami.io/vgpu-devices-allocated"
SLICES = AnnotationRule(key=KEY, format="slices", resources=("nvidia.com/gpu",))
LIST = AnnotationRule(key=KEY, format="list", pattern=r"Ascend910-(?P<index>\d+)", resources=("huawei.com/Ascend910",))
PARTS_KEY = "hami.io/vgpu-mig-allocations"
PARTS = AnnotationRule(
    key=PARTS_KEY,
    format="objects",
    resources=("nvidia.com/gpu",),
    facts={"partition_uuid": "migUUID"},
    container="containerIndex",
    whole="gpuUUID",
    instead_of=KEY,
)
A, B = "GPU-00000000-aaaa-bbbb-cccc-00000000000a", "GPU-00000000-aaaa-bbbb-cccc-00000000000b"


def pod(text: str, containers: Sequence[str] = ("c1", "c2"), init: Sequence[str] = (), phase: str = "Running") -> Pod:
    return Pod(
        namespace="ns",
        name="p",
        uid="u",
        phase=phase,
        annotations={KEY: text},
        container_order=containers,
        init_order=init,
    )


def claims(one: Pod, rule: AnnotationRule = SLICES, held: Sequence[Held] | None = None) -> Sequence[Claim]:
    return AnnotationSource([("nvidia", rule)], lambda: {("ns", "p"): one}, lambda: held).claims()


def slices(text: str, containers: Sequence[str] = ("c1", "c2"), init: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Container, device, share."""
    return [(claim.container, claim.names["uuid"], claim.share) for claim in claims(pod(text, containers, init))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"{A},NVIDIA,10240,45:{B},NVIDIA,10240,45:;;",
            [("c1", A, "0.0"), ("c1", B, "0.1")],
            id="the second is empty",
        ),
        pytest.param(
            f";{A},NVIDIA,8192,30:{B},NVIDIA,8192,30:;", [("c2", A, "1.0"), ("c2", B, "1.1")], id="the first is empty"
        ),
        pytest.param(f"{A},NVIDIA,1,2:;{B},NVIDIA,1,2:;", [("c1", A, "0.0"), ("c2", B, "1.0")], id="one each"),
        pytest.param(f"{A},NVIDIA,1,2:;{A},NVIDIA,1,2:;", [("c1", A, "0.0"), ("c2", A, "1.0")], id="one device twice"),
        pytest.param(f"{A},NVIDIA,1,2;{B},NVIDIA,1,2", [("c1", A, "0.0"), ("c2", B, "1.0")], id="no ends"),
        pytest.param(f"{A}[1-0],NVIDIA,10240,45:;;", [("c1", A, "0.0")], id="a part of a device"),
        pytest.param(f"{A},NVIDIA,1,2,extra,fields:;;", [("c1", A, "0.0")], id="more fields than today"),
        pytest.param(f"{A},NVIDIA,1:{B},NVIDIA,1,2:;;", [("c1", B, "0.1")], id="an entry without all fields"),
        pytest.param(f" {A} ,NVIDIA,1,2:;;", [("c1", A, "0.0")], id="blanks"),
        pytest.param(";;", [], id="nothing allocated"),
        pytest.param("", [], id="empty"),
        pytest.param("null", [], id="another form"),
    ],
)
def test_slices_belong_to_the_containers_in_their_order(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert slices(text) == expected


def test_init_containers_come_first_where_they_are_counted() -> None:
    text = f";{A},NVIDIA,1,2:;;"
    assert slices(text, ["c1", "c2"], ["first"]) == [("c1", A, "1.0")]
    assert slices(f"{A},NVIDIA,1,2:;;", ["c1", "c2"], ["first"]) == [("c1", A, "0.0")]


def test_the_last_container_may_have_nothing_and_no_end() -> None:
    """Volcano puts the sign between containers: volcano.sh/vgpu-ids-new of two, of which the first has a slice."""
    assert slices(f"{A},NVIDIA,1,2:;") == [("c1", A, "0.0")]
    assert slices(f"{A},NVIDIA,1,2:", ["only"]) == [("only", A, "0.0")]
    assert slices(f";{A},NVIDIA,1,2:") == [("c2", A, "1.0")]
    # A sign behind each of the two, where those of initialization do not count.
    assert slices(f"{A},NVIDIA,1,2:;{B},NVIDIA,1,2:;", init=["first"]) == [("c1", A, "0.0"), ("c2", B, "1.0")]


def test_where_the_count_fits_nothing_the_container_is_not_guessed() -> None:
    assert slices(f"{A},NVIDIA,1,2:;;;;;") == [("", A, "0.0")]
    assert slices(f"{A},NVIDIA,1,2:;", []) == [("", A, "0.0")]
    assert slices(f"{A},NVIDIA,1,2:;;;;;", ["only"]) == [("only", A, "0.0")]


def test_a_claim_says_whose_ids_it_replaces_and_for_which_vendor() -> None:
    (claim,) = claims(pod(f"{A},NVIDIA,1,2:;;"))
    assert (claim.vendor, claim.pod, claim.pod_uid, claim.replaces) == ("nvidia", "p", "u", ("nvidia.com/gpu",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ascend910-0,Ascend910-3", ["0", "3"]),
        (" Ascend910-0 , ", ["0"]),
        ("Ascend310-1,Ascend910-x,Ascend910-2", ["2"]),
        ("", []),
    ],
)
def test_a_list_of_ids_is_read_by_its_pattern(text: str, expected: list[str]) -> None:
    found = claims(pod(text), LIST)
    assert [claim.names for claim in found] == [{"index": index} for index in expected]
    assert {claim.container for claim in found} <= {""}
    assert {claim.container for claim in claims(pod(text, ["only"]), LIST)} <= {"only"}


def test_ids_of_slices_may_have_a_pattern_too() -> None:
    rule = AnnotationRule(key=KEY, format="slices", pattern=r"card_(?P<index>\d+)")
    assert [claim.names for claim in claims(pod("card_3,Biren,1,2:other,Biren,1,2:;;"), rule)] == [{"index": "3"}]


def part(container: object, gpu: str, uuid: str | None, number: int = 7) -> dict[str, object]:
    """An entry as HAMi writes it; without a uuid: of an instance that does not exist yet."""
    told = {"containerIndex": container, "deviceIndex": 0, "gpuUUID": gpu, "profile": "1g.5gb"}
    placed = {**told, "placement": {"start": 0, "size": 1}}
    return placed if uuid is None else {**placed, "migUUID": uuid, "gpuInstanceID": number, "computeInstanceID": 0}


def parts(*told: object, whole: str = "", init: Sequence[str] = ()) -> list[tuple[str, dict[str, str], str]]:
    """Container, names, share of a pod with both annotations."""
    one = pod(whole, init=init)
    one = msgspec.structs.replace(one, annotations={KEY: whole, PARTS_KEY: json.dumps(told)})
    rules = [("nvidia", SLICES), ("nvidia", PARTS)]
    found = AnnotationSource(rules, lambda: {("ns", "p"): one}).claims()
    return [(claim.container, dict(claim.names), claim.share) for claim in found]


def test_an_instance_that_an_annotation_names_is_its_containers_own() -> None:
    assert parts(part(1, A, "MIG-1"), part(0, B, "MIG-2")) == [
        ("c2", {"partition_uuid": "MIG-1"}, ""),
        ("c1", {"partition_uuid": "MIG-2"}, ""),
    ]
    assert parts(part(0, A, "MIG-1"), init=["first"]) == [("first", {"partition_uuid": "MIG-1"}, "")]


def test_where_the_instance_is_known_the_whole_does_not_count_and_other_devices_do() -> None:
    whole = f"{A}[1-0],NVIDIA,10240,45:{B},NVIDIA,1,2:;;"
    assert parts(part(0, A, "MIG-1"), whole=whole) == [
        ("c1", {"uuid": B}, "0.1"),
        ("c1", {"partition_uuid": "MIG-1"}, ""),
    ]


def test_an_instance_that_does_not_exist_yet_names_nothing_and_the_kubelets_replica_is_not_taken_for_it() -> None:
    assert parts(part(0, A, None), whole=f"{A}[1-0],NVIDIA,10240,45:;;") == [("c1", {}, "")]
    one = msgspec.structs.replace(pod(""), annotations={PARTS_KEY: json.dumps([part(0, A, None)])})
    assert [claim.replaces for claim in claims(one, PARTS)] == [("nvidia.com/gpu",)]


@pytest.mark.parametrize("position", [-1, 2, 10**30, 1.0, "0", None])
def test_a_container_that_the_pod_has_not_is_not_guessed(position: object) -> None:
    assert parts(part(position, A, "MIG-1")) == [("", {"partition_uuid": "MIG-1"}, "")]


@pytest.mark.parametrize("told", [[5, None, "x", []], [{}], [part(0, A, "")]])
def test_what_is_no_instance_names_nothing(told: list[object]) -> None:
    assert all(names == {} for _, names, _ in parts(*told))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_keeps_its_annotation_and_claims_nothing(phase: str) -> None:
    assert not claims(pod(f"{A},NVIDIA,1,2:;;", phase=phase))


@pytest.mark.parametrize(
    ("held", "counts"),
    [
        pytest.param(None, True, id="the kubelet tells nothing"),
        pytest.param([Held("ns", "p", "c1", (("nvidia.com/gpu", f"{B}-7"),))], True, id="the pod holds something"),
        pytest.param([], False, id="nobody holds anything"),
        pytest.param([Held("ns", "p", "c1", (("cpu.com/x", "1"),))], False, id="the pod holds something else"),
        pytest.param([Held("ns", "q", "c1", (("nvidia.com/gpu", B),))], False, id="another pod holds it"),
    ],
)
def test_the_kubelet_confirms_that_the_pod_holds_anything(held: Sequence[Held] | None, counts: bool) -> None:
    assert bool(claims(pod(f"{A},NVIDIA,1,2:;;"), held=held)) == counts


def test_a_hostile_annotation_makes_so_many_claims_and_no_more() -> None:
    assert len(claims(pod(f"{A},NVIDIA,1,2:" * 100_000 + ";;"))) == MAX_DEVICES
    assert len(parts(*[part(0, A, "MIG-1")] * 1000)) == MAX_DEVICES
    nested = msgspec.structs.replace(pod(""), annotations={PARTS_KEY: "[" * 100_000})
    assert claims(nested, PARTS) == []


@given(st.text(max_size=200) | st.text(st.sampled_from("GPU-0,:;[]12 "), max_size=80))
def test_any_text_is_read_and_no_device_is_made_up(text: str) -> None:
    for rule in (SLICES, LIST):
        for claim in claims(pod(text), rule):
            assert claim.names
            assert all(value and value in text for value in claim.names.values())
