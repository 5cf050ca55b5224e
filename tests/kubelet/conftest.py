"""One cluster for all tests of this folder, and an agent on it for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests import charts
from tests.e2e.agent import Agent
from tests.e2e.worlds import place
from tests.fakes.nvml import scenarios
from tests.kubelet.api import Json
from tests.kubelet.cluster import HOST, NODE, PATIENCE, POD_RESOURCES, PORT, Cluster
from tests.kubelet.node import GPU, SHARED, Node, is_up
from tests.kubelet.plugin import DevicePlugin

SCENARIO: Final = scenarios.h100(4)
UUIDS: Final = tuple(str(SCENARIO.keys(f"gpu {index}")["uuid"]) for index in range(4))
ALONE, TOGETHER = UUIDS[:3], UUIDS[3]
"""GPUs that one container gets at a time; one that several share."""
POLL: Final = 1
KUBERNETES: Final = {"namespaces": True}
"""What the chart is told of attribution, and so grants."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if "KUBELET_CGROUP" not in os.environ:
        pytest.skip("a kubelet built from source, in namespaces of its own: `make test-kubelet` runs it")
    plugins = [DevicePlugin(GPU, ALONE), DevicePlugin(SHARED, [f"{TOGETHER}::{share}" for share in range(2)])]
    found = Cluster(Path(os.environ["KUBELET_PROGRAMS"]) / "bin", tmp_path_factory.mktemp("logs"), plugins)
    with found.running():
        yield found


@pytest.fixture(scope="session")
def account(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the token of an account that may do what the chart grants, and nothing else."""
    objects = charts.render(
        charts.merged(charts.only("nvidia"), {"config": {"attribution": {"kubernetes": KUBERNETES}}})
    )
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": charts.NAMESPACE}}
    accounts = charts.of_kind(objects, "ServiceAccount")
    roles = [*charts.of_kind(objects, "ClusterRole"), *charts.of_kind(objects, "ClusterRoleBinding")]
    for item in (namespace, *accounts, *roles):
        cluster.api.create(item)
    (found,) = accounts
    path = f"/api/v1/namespaces/{charts.NAMESPACE}/serviceaccounts/{found['metadata']['name']}/token"
    asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    file = tmp_path_factory.mktemp("account") / "token"
    file.write_text(cluster.api.call("POST", path, asked)["status"]["token"])
    return file


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    found = Node(cluster)
    yield found
    found.clear()


@pytest.fixture
def start_agent(cluster: Cluster, account: Path, tmp_path: Path) -> Callable[..., AbstractContextManager[Agent]]:
    """Starts an agent on the fake NVML that asks the real kubelet and, with its account, the real API server.

    Keywords are settings of attribution.kubernetes.
    """

    @contextmanager
    def start(**more: Any) -> Iterator[Agent]:
        here = place(tmp_path, SCENARIO)
        kubernetes = {
            **KUBERNETES,
            "pod_resources_socket": str(POD_RESOURCES),
            "poll": POLL,
            "token_file": str(account),
            "ca_file": str(cluster.authority),
            **more,
        }
        config = here.config(node=NODE, attribution={"kubernetes": kubernetes})
        environ = {**here.environ, "KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(PORT)}
        with Agent.start(tmp_path, environ, config) as found:
            found.wait_for(lambda seen: is_up(seen, "podresources") and is_up(seen, "pods"), PATIENCE)
            yield found

    return start


@pytest.fixture
def agent(start_agent: Callable[..., AbstractContextManager[Agent]]) -> Iterator[Agent]:
    """With the bounds that it has by default."""
    with start_agent() as found:
        yield found
