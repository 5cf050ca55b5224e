"""Labels through restarts of the kubelet and of the API server, and their bound while one of them is away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.e2e.agent import Agent
from tests.kubelet.cluster import PATIENCE, Cluster
from tests.kubelet.node import TENANT, Node, agrees, container, held, is_up, job, names, pod, recording, spec, told

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(600)]

KILLED_OR_ENDED = pytest.mark.parametrize("kill", [True, False], ids=["killed", "ended"])


@pytest.fixture
def working(node: Node) -> Node:
    """With a job of one pod and two devices, of a tenant."""
    node.make_namespace("work", {TENANT: "physics"})
    node.start(job("work", "fit", spec(container(gpu=2))), devices=2)
    return node


@KILLED_OR_ENDED
def test_every_scrape_through_a_restart_of_the_kubelet_shows_the_pods_that_are_there(
    working: Node, agent: Agent, cluster: Cluster, kill: bool
) -> None:
    before = names(agrees(agent))
    assert {(row.job_name, row.tenant) for row in before} == {("fit", "physics")}
    with recording(agent) as scrapes:
        cluster.kubelet.stop(kill=kill)
        try:
            agent.wait_for(lambda seen: not is_up(seen, "podresources"), PATIENCE)
        finally:
            cluster.start_kubelet()
        agent.wait_for(lambda seen: is_up(seen, "podresources"), PATIENCE)
    assert set(scrapes) == {before}
    # And what it starts now is seen.
    working.start(pod("work", "more", spec(container(gpu=1))), devices=1)
    assert {row.pod for row in names(agrees(agent)) - before} == {"more"}


def test_what_ends_while_the_kubelet_is_away_is_gone_at_the_bound_and_stays_gone(
    working: Node, start_agent: Callable[..., AbstractContextManager[Agent]], cluster: Cluster
) -> None:
    stays = held()
    with start_agent(hold=5) as agent:
        goes = working.start(pod("work", "goes", spec(container(gpu=1))), devices=1)
        assert told(agrees(agent)) == stays | goes
        cluster.kubelet.stop(kill=True)
        try:
            working.end_containers(goes)
            working.api.delete("Pod", "goes", "work", grace=0)
            agent.wait_for(lambda seen: not is_up(seen, "podresources"), PATIENCE)
            agent.wait_for(lambda seen: not names(seen), PATIENCE)
        finally:
            with recording(agent) as scrapes:
                cluster.start_kubelet()
                agent.wait_for(lambda seen: told(seen) == stays, PATIENCE)
        assert not [row for scrape in scrapes for row in scrape if row.pod == "goes"]


@KILLED_OR_ENDED
def test_every_scrape_through_a_restart_of_the_api_server_shows_job_and_tenant(
    working: Node, agent: Agent, cluster: Cluster, kill: bool
) -> None:
    before = names(agrees(agent))
    with recording(agent) as scrapes:
        cluster.apiserver.stop(kill=kill)
        try:
            agent.wait_for(lambda seen: not is_up(seen, "pods"), PATIENCE)
        finally:
            cluster.start_apiserver()
        agent.wait_for(lambda seen: is_up(seen, "pods"), PATIENCE)
    assert set(scrapes) == {before}
    # It goes on with what has changed since.
    working.make_namespace("later", {TENANT: "chemistry"})
    working.start(job("later", "dock", spec(container(gpu=1))), devices=1)
    agent.wait_for(lambda seen: ("dock", "chemistry") in {(row.job_name, row.tenant) for row in names(seen)}, PATIENCE)
    assert told(agrees(agent)) == held()


def test_a_pod_that_ends_while_the_api_server_is_away_gives_its_device_back(
    working: Node, agent: Agent, cluster: Cluster
) -> None:
    fit = held()
    other = working.start(pod("work", "other", spec(container(gpu=1))), devices=1)
    agrees(agent)
    cluster.apiserver.stop(kill=True)
    try:
        agent.wait_for(lambda seen: not is_up(seen, "pods"), PATIENCE)
        working.end_containers(other)
        # The kubelet knows it without the API server.
        agent.wait_for(lambda seen: told(seen) == fit, PATIENCE)
    finally:
        cluster.start_apiserver()
    agent.wait_for(lambda seen: is_up(seen, "pods"), PATIENCE)
    assert {(row.job_name, row.tenant) for row in names(agrees(agent))} == {("fit", "physics")}


def test_a_pod_that_the_kubelet_refuses_has_no_device(working: Node, agent: Agent, cluster: Cluster) -> None:
    """It has the name of one that ended while the kubelet was away, and of which the kubelet spoke last."""
    stays = held()
    old = working.start(pod("work", "db-0", spec(container(gpu=1)), {"job-name": "old"}), devices=1)
    assert told(agrees(agent)) == stays | old
    cluster.kubelet.stop(kill=True)
    try:
        working.end_containers(old)
        working.api.delete("Pod", "db-0", "work", grace=0)
        # More than there is.
        working.api.create(pod("work", "db-0", spec(container(gpu=3)), {"job-name": "new"}))
    finally:
        cluster.start_kubelet()
    working.wait(lambda: working.phase("work", "db-0") == "Failed", "the kubelet does not refuse the pod")
    agent.wait_for(lambda seen: told(seen) == stays, PATIENCE)
