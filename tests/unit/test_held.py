"""The kubelet's answers, written by the protobuf runtime and read by our decoder."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import held as limits
from exporter.attribution.held import DraDevice, Held, Unreadable, decode
from tests.fakes.kubelet.messages import Claim, Container, Devices, Dra, Pod, answer

GPU = "example.com/gpu"
CDI = "k8s.gpu.nvidia.com/claim=0f1e2d3c-0000-1111-2222-333344445555-gpu-"


def one(container: Container) -> Pod:
    return Pod("default", "two", [container])


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(
            [Devices(GPU, ["GPU-0", "GPU-1"], [0]), Devices(GPU, ["GPU-1"], [1])],
            ((GPU, "GPU-0"), (GPU, "GPU-1")),
            id="1.20: grouped by NUMA node",
        ),
        pytest.param(
            [Devices(GPU, ["GPU-1"], [0]), Devices(GPU, ["GPU-1"], [1]), Devices(GPU, ["GPU-0"])],
            ((GPU, "GPU-0"), (GPU, "GPU-1")),
            id="newer: an entry for each device and node",
        ),
        pytest.param(
            [Devices(f"{GPU}.shared", ["GPU-9::1"], [0]), Devices(GPU, ["GPU-9::1"])],
            ((GPU, "GPU-9::1"), (f"{GPU}.shared", "GPU-9::1")),
            id="one id under two resources",
        ),
        pytest.param([Devices("nvidia.com/gpu", ["nvidia0/gi7/vgpu0"])], (("nvidia.com/gpu", "nvidia0/gi7/vgpu0"),)),
        pytest.param([Devices(GPU, [""]), Devices("", ["GPU-0"]), Devices(GPU, [])], None, id="nothing is told"),
    ],
)
def test_a_container_holds_each_device_once(
    devices: list[Devices], expected: tuple[tuple[str, str], ...] | None
) -> None:
    found = decode(answer([one(Container("c1", devices))]))
    assert found == (() if expected is None else (Held("default", "two", "c1", expected),))


def test_containers_without_a_device_are_left_out_whatever_else_they_hold() -> None:
    pods = [
        Pod("default", "nogpu", [Container("c1", cpus=[3, 4, 5], memory=[1 << 40])], cpus=[3, 4, 5]),
        Pod("default", "done", [Container("c1")]),
        Pod("kube-system", "static-node1", [Container("c1")]),
        Pod("default", "empty"),
    ]
    assert decode(answer(pods)) == ()


def test_cpus_memory_and_pod_level_resources_stand_beside_devices() -> None:
    container = Container("main", [Devices(GPU, ["GPU-3"], [1])], cpus=range(300), memory=[1 << 63])
    pod = Pod("default", "whole", [Container("sidecar"), container], cpus=range(300))
    assert decode(answer([pod])) == (Held("default", "whole", "main", ((GPU, "GPU-3"),)),)


def test_the_order_of_the_answer_means_nothing() -> None:
    pods = [
        Pod(f"ns{i}", f"p{i}", [Container(name, [Devices(GPU, [f"GPU-{i}{name}"])]) for name in "ab"])
        for i in range(20)
    ]
    first = decode(answer(pods))
    assert [held.pod for held in first[:4]] == ["p0", "p0", "p1", "p1"]
    for seed in range(5):
        assert decode(answer(random.Random(seed).sample(pods, len(pods)))) == first


def test_devices_of_a_claim_are_told_by_driver_pool_device_and_share() -> None:
    devices = [
        Dra("gpu.nvidia.com", "node1", "gpu-0", cdi=[f"{CDI}0"]),
        Dra("gpu.nvidia.com", "node1", "gpu-1", cdi=[f"{CDI}0", f"{CDI}1"]),
        Dra("gpu.nvidia.com", "node1", "gpu-1", "3b241101-e2bb-4255-8caf-4136c566a962", [f"{CDI}0", f"{CDI}1"]),
        Dra("gpu.nvidia.com", "node1", "gpu-1", cdi=[f"{CDI}0"]),
    ]
    claim = Claim("train-0-gpus-abcde", "t1", devices)
    expected = [
        DraDevice("gpu.nvidia.com", "node1", name, share, "train-0-gpus-abcde", "t1")
        for name, share in (("gpu-0", ""), ("gpu-1", ""), ("gpu-1", "3b241101-e2bb-4255-8caf-4136c566a962"))
    ]
    assert decode(answer([one(Container("c1", claims=[claim]))])) == (
        Held("default", "two", "c1", (), tuple(expected)),
    )


def test_a_claim_of_kubernetes_1_27_names_no_device_and_so_is_none() -> None:
    claim = Claim("gpus", "t1", [Dra(cdi=["vendor.com/gpu=0"])], class_name="gpu.example.com")
    assert decode(answer([one(Container("c1", claims=[claim]))])) == ()


def test_what_a_newer_kubelet_adds_is_passed_over() -> None:
    known = answer([one(Container("c1", [Devices(GPU, ["GPU-0"])]))])
    varint, fixed64, fixed32 = b"\xa0\x06\xff\x01", b"\xa1\x06" + bytes(8), b"\xa5\x06" + bytes(4)
    text, far = b"\xa2\x06\x03abc", b"\xfa\xff\xff\xff\x0f\x01x"
    # A known number with an unknown type is not the known field.
    retyped = b"\x08\x05" + b"\x0d" + bytes(4)
    assert decode(varint + fixed64 + known + fixed32 + text + far + retyped) == decode(known)


def test_a_name_that_is_no_text_is_replaced_where_it_is_none() -> None:
    body = answer([one(Container("c1", [Devices(GPU, ["GPU-0"])]))]).replace(b"GPU-0", b"GPU-\xff")
    assert decode(body)[0].devices == ((GPU, "GPU-�"),)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0a", id="no size"),
        pytest.param(b"\x0a\x05ab", id="ends within a pod"),
        pytest.param(b"\x0a\x03\x0a\x05ab", id="a name longer than its pod"),
        pytest.param(b"\x02\x00", id="field 0"),
        pytest.param(b"\x0b\x0c", id="a group"),
        pytest.param(b"\x0a" + b"\xff" * 11, id="a number of 77 bits"),
        pytest.param(b"\x0a" + b"\xff" * 9 + b"\x01", id="a size of 64 bits"),
        pytest.param(b"\x08\xff", id="ends within a number"),
        pytest.param(b"\x0d\x00\x00", id="ends within a fixed number"),
        pytest.param(b"<html>502 Bad Gateway</html>", id="a page"),
    ],
)
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(body)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9, 0.999])
def test_half_an_answer_is_refused(place: float) -> None:
    body = answer([one(Container("c1", [Devices(GPU, [f"GPU-{i}" for i in range(50)])]))])
    with pytest.raises(Unreadable):
        decode(body[: int(len(body) * place)])


def test_ids_that_are_quantities_are_cut_and_no_harm_to_others() -> None:
    memory = Devices("volcano.sh/vgpu-memory", [f"GPU-0-{i}" for i in range(2 * limits.MAX_IDS)])
    found = decode(answer([one(Container("c1", [memory, Devices(GPU, ["GPU-0"])]))]))
    assert found[0].devices[0] == (GPU, "GPU-0")
    assert len(found[0].devices) == 1 + limits.MAX_IDS


def test_ids_of_resources_that_nobody_wants_are_not_kept() -> None:
    body = answer([one(Container("c1", [Devices("other.com/nic", ["a"]), Devices(GPU, ["GPU-0"])]))])
    assert decode(body, lambda resource: resource == GPU)[0].devices == ((GPU, "GPU-0"),)


def test_more_devices_than_a_node_has_are_refused() -> None:
    pods = [
        Pod("ns", f"p{i}", [Container("c", [Devices(GPU, [f"{i}-{j}" for j in range(limits.MAX_IDS)])])])
        for i in range(limits.MAX_HELD // limits.MAX_IDS + 1)
    ]
    with pytest.raises(Unreadable, match=f"more than {limits.MAX_HELD} devices"):
        decode(answer(pods))


def test_a_device_that_a_failing_driver_repeats_without_end_is_one() -> None:
    device = Dra("gpu.nvidia.com", "node1", "gpu-0", cdi=[f"{CDI}0"])
    body = answer([one(Container("c1", claims=[Claim("g", "t1", [device] * 100_000)]))])
    assert [found.device for found in decode(body)[0].dra] == ["gpu-0"]


NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
PLAIN = NAMES.map(lambda text: "".join(filter(str.isprintable, text)))
DEVICES = st.builds(Devices, PLAIN, st.lists(NAMES, max_size=3), st.lists(st.integers(0, 7), max_size=2))
DRA = st.builds(Dra, NAMES, NAMES, NAMES, st.none() | NAMES, st.lists(NAMES, max_size=2))
CLAIMS = st.builds(Claim, NAMES, NAMES, st.lists(DRA, max_size=2), NAMES)
CONTAINERS = st.builds(
    Container,
    PLAIN,
    st.lists(DEVICES, max_size=2),
    st.lists(CLAIMS, max_size=2),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.lists(st.integers(0, 2**64 - 1), max_size=2),
)
PODS = st.lists(st.builds(Pod, PLAIN, PLAIN, st.lists(CONTAINERS, max_size=2)), max_size=3)


@given(PODS)
def test_exactly_what_was_written_is_read(pods: list[Pod]) -> None:
    expected = [
        (
            (pod.namespace, pod.name, container.name),
            sorted({(each.resource, identity) for each in container.devices for identity in each.ids if identity}),
            sorted(
                {
                    (each.driver, each.pool, each.device, each.share or "", claim.namespace, claim.name)
                    for claim in container.claims
                    for each in claim.devices
                    if each.driver and each.device
                }
            ),
        )
        for pod in pods
        if pod.name
        for container in pod.containers
    ]
    found = [
        (
            (held.namespace, held.pod, held.container),
            list(held.devices),
            [(each.driver, each.pool, each.device, each.share, *_claim(each)) for each in held.dra],
        )
        for held in decode(answer(pods))
    ]
    told = [(name, [each for each in devices if each[0]], dra) for name, devices, dra in expected]
    assert sorted(found) == sorted(each for each in told if each[1] or each[2])


def _claim(device: DraDevice) -> tuple[str, str]:
    return device.claim_namespace, device.claim_name


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        found = decode(body)
    except Unreadable:
        return
    assert all(held.pod and (held.devices or held.dra) for held in found)


@given(PODS, st.data())
def test_an_answer_with_damage_is_read_or_refused(pods: list[Pod], data: st.DataObject) -> None:
    body = bytearray(answer(pods))
    for _ in range(data.draw(st.integers(1, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Unreadable):
        assert all(held.pod for held in decode(bytes(body)))


def test_names_are_printable_and_bounded_and_a_pod_that_is_left_is_one() -> None:
    """A kubelet tells names as they are: two that are the same on a label must not be two workloads."""
    hostile = [Pod("n\u202es", name, [Container("c\x1b[31m", [Devices(GPU, ["GPU-0"])])]) for name in ("a\n", "a\0")]
    long = Pod("n" * 10_000, "p" * 10_000, [Container("c" * 10_000, [Devices(GPU, ["x" * 10_000])])])
    *pods, last = decode(answer([*hostile, long]))
    assert last == Held("ns", "a", "c[31m", ((GPU, "GPU-0"),))
    found = next(held for held in (*pods, last) if held.pod.startswith("p"))
    assert (len(found.namespace), len(found.pod), len(found.container)) == (253, 253, 253)
    assert len(found.devices[0][1]) == limits.MAX_TEXT
    assert {(held.namespace, held.pod, held.container) for held in (*pods, last)} == {
        ("ns", "a", "c[31m"),
        (found.namespace, found.pod, found.container),
    }


def field(number: int, body: bytes) -> bytes:
    size, rest = [], len(body)
    while rest >= 0x80:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + body


NOTHINGS = limits.MAX_MESSAGES + 1
CROWDS = {
    "pods": field(1, b"") * NOTHINGS,
    "containers": field(1, field(1, b"p") + field(3, b"") * NOTHINGS),
    "devices": field(1, field(1, b"p") + field(3, field(2, b"") * NOTHINGS)),
    "claims": field(1, field(1, b"p") + field(3, field(5, b"") * NOTHINGS)),
}


@pytest.mark.parametrize("body", CROWDS.values(), ids=CROWDS)
def test_two_bytes_a_message_are_not_looked_into_without_end(body: bytes) -> None:
    """64 MiB of them would take half a minute of each poll."""
    with pytest.raises(Unreadable, match=f"more than {limits.MAX_MESSAGES} pods"):
        decode(body)


@pytest.mark.parametrize("of_claims", [False, True], ids=["ids", "resources of claims"])
def test_an_answer_takes_no_multiple_of_its_size_in_memory(*, of_claims: bool) -> None:
    many = 1_000_000
    distinct = b"".join(field(4, number.to_bytes(4, "big")) for number in range(1 << 27, (1 << 27) + many))
    ids = field(2, field(1, GPU.encode()) + b"\x12\x01a" * many)
    body = field(1, field(1, b"p") + field(3, field(5, distinct) if of_claims else ids))
    tracemalloc.start()
    with suppress(Unreadable):
        decode(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * len(body)
