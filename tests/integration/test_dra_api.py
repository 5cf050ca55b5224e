"""Dynamic Resource Allocation at the API server: versions, slices, claims with administrative access."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from exporter.attribution import api as limits
from exporter.attribution import dra
from exporter.attribution.api import Api, ApiError
from exporter.attribution.dra import AdminClaims, index, served_version, slice_watch
from exporter.attribution.held import DraDevice
from tests.attribution_rig import Heard, in_loop, running, until
from tests.fakes.apiserver.objects import DRA, Json, resource_claim, resource_slice
from tests.fakes.apiserver.server import ApiServer, body, refuse

CLAIMS = f"{DRA}/v1/namespaces/t1/resourceclaims"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKOFF_FIRST", 0.02)


@asynccontextmanager
async def client(server: ApiServer) -> AsyncIterator[Api]:
    api = Api(server.url, "", "")
    try:
        yield api
    finally:
        await api.close()


@pytest.mark.parametrize(
    ("served", "best"),
    [
        (["v1", "v1beta2", "v1beta1"], "v1"),
        (["v1beta1", "v1beta2"], "v1beta2"),
        (["v1beta1"], "v1beta1"),
        (["v1alpha3"], ""),
        ([], ""),
    ],
)
@in_loop
async def test_the_best_version_that_is_served_is_used(served: Sequence[str], best: str) -> None:
    with ApiServer(dra=served) as server:
        async with client(server) as api:
            assert await served_version(api) == best


@in_loop
async def test_a_server_in_trouble_does_not_mean_that_the_group_is_missing() -> None:
    with ApiServer() as server:
        server.faults += [refuse(503), refuse(403), refuse(410), body(b"{")]
        async with client(server) as api:
            for kind in ("server", "forbidden", "answer", "answer"):
                with pytest.raises(ApiError) as caught:
                    await served_version(api)
                assert caught.value.kind == kind


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@in_loop
async def test_the_nodes_slices_are_watched(version: str) -> None:
    path = f"{DRA}/{version}/resourceslices"
    uuid = {"uuid": {"string": "GPU-0"}}
    with ApiServer(dra=[version]) as server:
        server.put(
            path,
            resource_slice("mine", {"gpu-0": uuid}, version=version),
            resource_slice("other", {"gpu-0": uuid}, version=version, node="node2", pool="node2"),
        )
        async with client(server) as api:
            heard = Heard()
            watch = slice_watch(api, version, "node1", changed=heard.changed, failed=heard.failed)
            async with running(watch.run()):
                await until(lambda: watch.objects)
                assert set(index(watch.objects.values())) == {("gpu.nvidia.com", "node1", "gpu-0")}
                newer = resource_slice("mine", {"gpu-0": uuid, "gpu-1": uuid}, version=version, generation=2)
                server.put(path, newer)
                await until(lambda: len(index(watch.objects.values())) == 2)


def device(name: str = "gpu-0", claim: str = "all") -> DraDevice:
    return DraDevice("gpu.nvidia.com", "node1", name, "", claim, "t1")


def result(name: str, *, admin: bool | None) -> Json:
    told = {"request": "gpus", "driver": "gpu.nvidia.com", "pool": "node1", "device": name}
    return told if admin is None else {**told, "adminAccess": admin}


@in_loop
async def test_a_claim_is_asked_for_once_and_tells_which_devices_it_only_watches() -> None:
    with ApiServer() as server:
        server.put(CLAIMS, resource_claim("t1", "all", [result("gpu-0", admin=True), result("gpu-1", admin=None)]))
        server.put(CLAIMS, resource_claim("t1", "train", [result("gpu-0", admin=False)]))
        server.put(CLAIMS, resource_claim("t1", "pending", None))
        async with client(server) as api:
            admin = AdminClaims(api, lambda: "v1")
            asked = [
                device("gpu-0"),
                device("gpu-1"),
                device(claim="train"),
                device(claim="pending"),
                device(claim="gone"),
            ]
            assert [admin(each) for each in asked] == [False] * 5
            assert await admin.learn()
            assert [admin(each) for each in asked] == [True, False, False, False, False]
            assert not await admin.learn()
        assert len(server.requests) == 4


@in_loop
async def test_without_the_permission_claims_count_as_ordinary_and_are_asked_for_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ApiServer() as server:
        server.put(CLAIMS, resource_claim("t1", "all", [result("gpu-0", admin=True)]))
        server.faults.append(refuse(403))
        async with client(server) as api:
            admin = AdminClaims(api, lambda: "v1")
            for _ in range(5):
                assert not admin(device())
                assert not await admin.learn()
            assert len(server.requests) == 1
            monkeypatch.setattr(dra, "RETRY", 0.0)
            later = AdminClaims(api, lambda: "v1")
            later(device())
            assert await later.learn()


@in_loop
async def test_claims_that_nobody_holds_any_more_are_forgotten() -> None:
    with ApiServer() as server:
        server.put(CLAIMS)
        async with client(server) as api:
            admin = AdminClaims(api, lambda: "v1")
            for turn in range(50):
                admin(device(claim=f"claim-{turn}"))
                await admin.learn()
            assert len(admin._known) == 1


@in_loop
async def test_a_hostile_name_does_not_leave_its_place_in_the_path() -> None:
    with ApiServer() as server:
        async with client(server) as api:
            admin = AdminClaims(api, lambda: "v1")
            admin(DraDevice("d", "p", "g", "", "../../../../../api/v1/secrets?x=", "t1"))
            await admin.learn()
        assert [request.path.count("/") for request in server.requests] == [CLAIMS.count("/") + 1]
