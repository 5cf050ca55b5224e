"""PodResources against a real gRPC server that plays the kubelet."""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from collectors.unary import RpcError
from exporter.attribution import podresources
from exporter.attribution.held import Held, Unreadable
from exporter.attribution.podresources import MAX_ANSWER, PodResources, ask
from tests.attribution_rig import Heard, in_loop, running, turns_during, until
from tests.fakes.kubelet.messages import Claim, Container, Devices, Dra, Pod, answer
from tests.fakes.kubelet.server import RATE_LIMIT, Kubelet, hanging, pods, raw, refusal

GPU = "nvidia.com/gpu"


def holding(pod: str, *ids: str, container: str = "main") -> Pod:
    return Pod("ns", pod, [Container(container, [Devices(GPU, [identity], [0]) for identity in ids])])


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet.sock") as found:
        yield found


@pytest.fixture
def heard() -> Heard:
    return Heard()


def source(kubelet: Kubelet, heard: Heard, *, poll: float = 0.05, hold: float = 60.0) -> PodResources:
    return PodResources(str(kubelet.socket), poll, hold, changed=heard.changed, failed=heard.failed)


def owners(found: PodResources) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for claim in found.claims():
        told.setdefault(claim.device_id, []).append(claim.pod)
    return told


def test_the_kubelet_tells_who_holds_what_in_one_order(kubelet: Kubelet) -> None:
    kubelet.script = pods([holding("b", "GPU-1", "GPU-0"), holding("a", "GPU-2"), Pod("ns", "none")], shuffled=True)
    expected = (Held("ns", "a", "main", ((GPU, "GPU-2"),)), Held("ns", "b", "main", ((GPU, "GPU-0"), (GPU, "GPU-1"))))
    assert {ask(str(kubelet.socket)) for _ in range(10)} == {expected}


def test_an_answer_of_17_megabytes_comes_whole(kubelet: Kubelet) -> None:
    stuck = Claim(
        "gpus",
        "t1",
        [Dra("gpu.nvidia.com", "n", f"gpu-{i % 8}", cdi=[f"vendor/class={'x' * 99}"]) for i in range(120_000)],
    )
    body = answer([Pod("t1", "stuck", [Container("c", claims=[stuck])]), holding("fine", "GPU-0")])
    assert len(body) > 17_000_000
    kubelet.script = raw(body)
    found = ask(str(kubelet.socket))
    assert [(held.pod, len(held.devices), len(held.dra)) for held in found] == [("fine", 1, 0), ("stuck", 0, 8)]


def test_an_answer_of_more_than_64_mebibytes_is_refused(kubelet: Kubelet) -> None:
    kubelet.script = raw(b"\x0a" + bytes(MAX_ANSWER))
    with pytest.raises(RpcError) as caught:
        ask(str(kubelet.socket))
    assert caught.value.code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("body", [b"\xff\xff garbage", answer([holding("a", "GPU-0")])[:-3]], ids=["garbage", "half"])
@in_loop
async def test_an_unreadable_answer_is_trouble_and_changes_nothing(kubelet: Kubelet, heard: Heard, body: bytes) -> None:
    kubelet.script = pods([holding("a", "GPU-0")])
    found = source(kubelet, heard)
    async with running(found.run()):
        await until(found.claims)
        kubelet.script = raw(body)
        await until(lambda: heard.troubles["unreadable"] > 1)
        assert owners(found) == {"GPU-0": ["a"]}
        assert not found.status.up
        assert "not understood" in found.status.hint
    with pytest.raises(Unreadable):
        ask(str(kubelet.socket))


@pytest.mark.parametrize(
    ("code", "detail", "kind", "hint"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, RATE_LIMIT, "resource_exhausted", f"how often.*{RATE_LIMIT}"),
        (grpc.StatusCode.UNKNOWN, "PodResources API List method disabled", "unknown", "List method disabled"),
    ],
)
@in_loop
async def test_a_refusal_is_counted_and_explained_and_the_last_answer_stays(
    kubelet: Kubelet, heard: Heard, code: grpc.StatusCode, detail: str, kind: str, hint: str
) -> None:
    kubelet.script = pods([holding("a", "GPU-0")])
    found = source(kubelet, heard)
    async with running(found.run()):
        await until(found.claims)
        good = found.status.last_success
        kubelet.script = refusal(code, detail)
        await until(lambda: heard.troubles[kind] > 1)
        assert owners(found) == {"GPU-0": ["a"]}
        assert found.status.last_success >= good > 0
        assert re.search(hint, found.status.hint)
        kubelet.script = pods([holding("b", "GPU-0")])
        await until(lambda: owners(found) == {"GPU-0": ["b"]})
        assert found.status.up
        assert found.status.hint == ""


@in_loop
async def test_a_kubelet_without_v1_is_too_old_and_the_hint_says_so(tmp_path: Path, heard: Heard) -> None:
    with Kubelet(tmp_path / "kubelet.sock", serves_v1=False) as kubelet:
        found = source(kubelet, heard)
        async with running(found.run()):
            await until(lambda: heard.troubles["unimplemented"])
            assert "Kubernetes 1.20" in found.status.hint


@in_loop
async def test_without_a_socket_the_hint_names_the_path_and_the_setting(tmp_path: Path, heard: Heard) -> None:
    found = PodResources(str(tmp_path / "none.sock"), 0.05, 60, changed=heard.changed, failed=heard.failed)
    async with running(found.run()):
        await until(lambda: heard.troubles["unavailable"])
    assert str(tmp_path / "none.sock") in found.status.hint
    assert "pod_resources_socket" in found.status.hint
    assert heard.changes == 0


@in_loop
async def test_a_kubelet_that_hangs_delays_nobody(
    kubelet: Kubelet, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources, "TIMEOUT", 0.3)
    kubelet.script = pods([holding("a", "GPU-0")])
    found = source(kubelet, heard)
    async with running(found.run()):
        await until(found.claims)
        kubelet.script = hanging(kubelet)
        await until(lambda: heard.troubles["deadline_exceeded"])
        assert owners(found) == {"GPU-0": ["a"]}
        kubelet.script = pods([holding("b", "GPU-0")])
        await until(lambda: owners(found) == {"GPU-0": ["b"]})


def test_a_kubelet_that_hangs_does_not_delay_the_end(
    kubelet: Kubelet, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources, "TIMEOUT", 3600.0)
    kubelet.script = hanging(kubelet)
    found = source(kubelet, heard)

    async def stopped_while_it_waits() -> None:
        async with running(found.run()):
            await until(lambda: kubelet.questions == 1)

    # The end of the loop waits for its threads: were one left with the kubelet, this would end with the answer.
    asyncio.run(stopped_while_it_waits())
    assert kubelet.answers == 0
    assert not heard.troubles


@pytest.mark.parametrize("leave_file", [True, False], ids=["the file stays", "the file goes"])
@in_loop
async def test_a_restarted_kubelet_is_found_again_at_its_new_socket(
    kubelet: Kubelet, heard: Heard, leave_file: bool
) -> None:
    kubelet.script = pods([holding("a", "GPU-0")])
    found = source(kubelet, heard)
    async with running(found.run()):
        await until(found.claims)
        await asyncio.to_thread(kubelet.stop, leave_file=leave_file)
        assert kubelet.socket.exists() == leave_file
        await until(lambda: heard.troubles["unavailable"])
        assert owners(found) == {"GPU-0": ["a"]}
        assert "no kubelet listens" in found.status.hint
        kubelet.script = pods([holding("b", "GPU-0")])
        await asyncio.to_thread(kubelet.start)
        await until(lambda: owners(found) == {"GPU-0": ["b"]})


@in_loop
async def test_the_last_good_answer_counts_for_a_time_and_no_longer(kubelet: Kubelet, heard: Heard) -> None:
    kubelet.script = pods([holding("a", "GPU-0")])
    found = source(kubelet, heard, hold=0.3)
    async with running(found.run()):
        await until(found.claims)
        before = heard.changes
        kubelet.script = refusal(grpc.StatusCode.INTERNAL, "broken")
        await until(lambda: heard.troubles["internal"])
        assert found.claims()
        await until(lambda: not found.claims())
        await until(lambda: heard.changes == before + 1)
        assert found.told() is None
        assert found.held == ()


@in_loop
async def test_a_finished_pod_that_is_still_listed_gives_way_to_the_next_holder(kubelet: Kubelet, heard: Heard) -> None:
    """Kubelets before 1.34 list finished pods, sometimes with what they held."""
    kubelet.script = pods([holding("first", "GPU-0", "GPU-1")])
    found = source(kubelet, heard)
    async with running(found.run()):
        await until(found.claims)
        kubelet.script = pods([holding("first", "GPU-0", "GPU-1"), holding("second", "GPU-0")], shuffled=True)
        await until(lambda: owners(found) == {"GPU-0": ["second"], "GPU-1": ["first"]})
        kubelet.script = pods([holding("second", "GPU-0")])
        await until(lambda: owners(found) == {"GPU-0": ["second"]})


@in_loop
async def test_of_pods_that_were_there_from_the_start_all_are_named(kubelet: Kubelet, heard: Heard) -> None:
    kubelet.script = pods([holding("done", "GPU-0"), holding("runs", "GPU-0")])
    found = source(kubelet, heard)
    async with running(found.run()):
        await until(lambda: owners(found) == {"GPU-0": ["done", "runs"]})


@in_loop
async def test_containers_of_one_pod_may_hold_the_same_device(kubelet: Kubelet, heard: Heard) -> None:
    """What an init container held, a later container is given."""
    both = [Container("sidecar", [Devices(GPU, ["GPU-0"])]), Container("main", [Devices(GPU, ["GPU-0"])])]
    kubelet.script = pods([Pod("ns", "a", both)])
    found = source(kubelet, heard)
    async with running(found.run()):
        await until(lambda: [claim.container for claim in found.claims()] == ["main", "sidecar"])


@in_loop
async def test_an_answer_like_the_last_one_is_no_change(kubelet: Kubelet, heard: Heard) -> None:
    kubelet.script = pods([holding(f"p{i}", f"GPU-{i}") for i in range(8)], shuffled=True)
    found = source(kubelet, heard, poll=0.01)
    async with running(found.run()):
        await until(lambda: kubelet.questions > 10)
        assert heard.changes == 1


@in_loop
async def test_a_large_answer_does_not_stop_the_event_loop(kubelet: Kubelet) -> None:
    stuck = Claim("gpus", "t1", [Dra("gpu.nvidia.com", "n", f"gpu-{i}", cdi=["x" * 100]) for i in range(100_000)])
    body = answer([Pod("t1", "stuck", [Container("c", claims=[stuck])])])
    kubelet.script = raw(body)
    assert await turns_during(asyncio.to_thread(ask, str(kubelet.socket))) > 10


@in_loop
async def test_polls_do_not_add_up_in_memory(kubelet: Kubelet, heard: Heard) -> None:
    listed = [[holding(f"p{turn}-{i}", f"GPU-{i}") for i in range(8)] for turn in range(2)]
    found = source(kubelet, heard, poll=0.0)
    turns = iter(range(1_000_000))

    def alternating(context: grpc.ServicerContext) -> bytes:
        return pods(listed[next(turns) % 2])(context)

    kubelet.script = alternating
    async with running(found.run()):
        await until(lambda: kubelet.questions > 50)
        tracemalloc.start()
        try:
            before = tracemalloc.take_snapshot()
            await until(lambda: kubelet.questions > 350)
            ours = tracemalloc.Filter(True, "*/exporter/attribution/*")
            grown = (
                tracemalloc.take_snapshot().filter_traces([ours]).compare_to(before.filter_traces([ours]), "filename")
            )
        finally:
            tracemalloc.stop()
    assert sum(each.size_diff for each in grown) < 64 * 1024
