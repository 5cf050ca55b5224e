"""Addresses, waits and pods of the Kubernetes API, without a server."""

from __future__ import annotations

import email.utils
import json
import time
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import api
from exporter.attribution.api import ApiError, Backoff, decoded, service_address
from exporter.attribution.claims import Owner
from exporter.attribution.pods import PodObject, namespaces_of, pods
from exporter.attribution.watch import Listed, Object, by_name
from tests.fakes.apiserver.objects import Json, pod

ID = "0123456789abcdef" * 4
HASH = "92617437c0ed1afb5e49f4240931da98"
LIST = msgspec.json.Decoder(Listed[PodObject])


def kept(*items: Json) -> dict[tuple[str, str], PodObject]:
    found = decoded(LIST, json.dumps({"items": list(items)}).encode(), "/pods")
    return by_name(found.items or ())


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, ""),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, "https://10.0.0.1:6443"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1"}, "https://[fd00::1]:443"),
    ],
)
def test_a_pod_finds_its_api_server_in_the_environment(environ: dict[str, str], url: str) -> None:
    assert service_address(environ) == url


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("", None), ("soon", None), ("7", 7.0), ("100000", 300.0), ("-5", None), ("1.5", None), ("nan", None)],
)
def test_a_wait_that_a_server_asks_for_is_bounded(value: str, seconds: float | None) -> None:
    assert api._retry_after(value) == seconds


def test_a_wait_may_be_a_date() -> None:
    assert api._retry_after(email.utils.formatdate(time.time() + 60, usegmt=True)) == pytest.approx(60, abs=2)
    assert api._retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0


@given(st.text(max_size=40))
def test_any_header_is_a_wait_or_none(value: str) -> None:
    seconds = api._retry_after(value)
    assert seconds is None or 0 <= seconds <= 300


def test_pauses_grow_to_a_limit_and_begin_small_after_two_healthy_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    backoff = Backoff()
    assert [backoff.pause(None) for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    now += 121
    assert backoff.pause(None) == 0.8


def test_a_wait_that_the_server_asks_for_is_kept_and_spread() -> None:
    pauses = {Backoff().pause(5.0) for _ in range(20)}
    assert min(pauses) >= 5
    assert max(pauses) <= 5.8
    assert len(pauses) > 1


def test_what_attribution_needs_of_a_pod() -> None:
    found = pods(
        kept(
            pod(
                "a",
                uid="u",
                phase="Running",
                labels={"app": "x"},
                annotations={"keep": "1", "other": "2"},
                owners=[{"kind": "Job", "name": "j", "controller": True}, {"kind": "X", "name": "y"}],
                containers={"main": f"containerd://{ID}", "waiting": ""},
                init={"first": f"cri-o://{ID[::-1]}"},
            )
        ),
        frozenset({"keep"}),
    )["ns", "a"]
    assert (found.uid, found.phase, found.labels, found.annotations) == ("u", "Running", {"app": "x"}, {"keep": "1"})
    assert found.owners == [Owner("Job", "j", controller=True), Owner("X", "y")]
    assert found.containers == {ID: "main", ID[::-1]: "first"}
    assert (found.init_order, found.container_order) == (["first"], ["main", "waiting"])


def test_a_static_pod_has_the_uid_of_the_kubelet_beside_the_mirrors() -> None:
    mirror = pod("static-node1", uid="u", annotations={"kubernetes.io/config.hash": HASH})
    found = pods(kept(mirror), frozenset())["ns", "static-node1"]
    assert (found.uid, found.other_uid) == ("u", HASH)


def test_metadata_alone_gives_what_it_has() -> None:
    partial = {"kind": "PartialObjectMetadata", "metadata": {"name": "a", "namespace": "ns", "labels": None}}
    found = pods(kept(partial), frozenset())["ns", "a"]
    assert (found.labels, found.phase, found.containers, found.container_order) == ({}, "", {}, [])


def test_labels_and_annotations_of_namespaces() -> None:
    decoder = msgspec.json.Decoder(Listed[Object])
    told = {"name": "ns", "labels": {"team": "red"}, "annotations": {"owner": "alice"}}
    found = decoded(decoder, json.dumps({"items": [{"metadata": told}]}).encode(), "")
    (known,) = namespaces_of(by_name(found.items or ())).values()
    assert (known.labels, known.annotations) == ({"team": "red"}, {"owner": "alice"})


@pytest.mark.parametrize("listed", [{}, {"items": None}, {"items": []}])
def test_a_list_may_be_empty_in_all_spellings(listed: dict[str, Any]) -> None:
    assert by_name(decoded(LIST, json.dumps(listed).encode(), "").items or ()) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "items", "name", "labels", "status", "spec", "ownerReferences", "containers"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=100) | JSON.map(lambda told: json.dumps(told).encode()))
def test_any_answer_is_read_or_refused(data: bytes) -> None:
    with suppress(ApiError):
        found = by_name(decoded(LIST, data, "/pods").items or ())
        assert len(pods(found, frozenset({"a"}))) == len(found)
