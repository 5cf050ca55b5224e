"""The chart asks for no more than what the agent needs: of Linux, of the host's files, of Kubernetes' API."""

from __future__ import annotations

import asyncio
import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from collectors.amd.health_service import SOCKET
from collectors.base import HostPaths
from collectors.gaudi.binding import USUAL_PATH
from exporter.attribution.setup import build
from exporter.catalogue import Catalogue
from exporter.config.attribution import KubernetesAttribution
from exporter.config.paths import expand
from exporter.program import Source, read
from exporter.registry import survey
from tests.attribution_rig import in_loop, until
from tests.charts import (
    CASES,
    CHART,
    FLAVOURS,
    VENDORS,
    Json,
    configurations,
    host_mounts,
    merged,
    of_kind,
    only,
    pods,
    render,
)
from tests.fakes.apiserver.objects import DRA, NAMESPACES, PODS, resource_claim, resource_slice
from tests.fakes.apiserver.server import ApiServer, Request
from tests.fakes.kubelet import messages
from tests.fakes.kubelet.server import Kubelet
from tests.fakes.kubelet.server import pods as kubelet_pods
from tests.images import INSTALLED

pytestmark = pytest.mark.helm

PRIVILEGED: Final = {"neuron", "gaudi"}
"""Flavours whose vendor's tools open device nodes that no unprivileged container may open; values.yaml says so."""
UNATTRIBUTED: Final[Json] = {"config": {"attribution": {"kubernetes": {"enabled": False}}}}
ANY_FLAVOUR = pytest.mark.parametrize("flavour", FLAVOURS)


def pod_of(flavour: str, values: Json | None = None, **settings: Any) -> Json:
    return pods(render(merged(only(flavour, **settings), values or {})))[flavour]


def security(pod: Json) -> Json:
    """Of the container, where the pod's holds unless the container says otherwise."""
    (container,) = pod["containers"]
    return {**pod["securityContext"], **container["securityContext"]}


# Linux


@ANY_FLAVOUR
def test_a_flavour_has_no_host_namespace_and_cannot_write(flavour: str) -> None:
    pod = pod_of(flavour)
    assert {"hostPID", "hostIPC", "hostNetwork"} & pod.keys() == set()
    assert security(pod)["readOnlyRootFilesystem"] is True
    assert security(pod)["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all(mount["readOnly"] is True for mount in pod["containers"][0]["volumeMounts"])


@ANY_FLAVOUR
def test_a_flavour_has_no_privilege_unless_its_values_say_why(flavour: str) -> None:
    context = security(pod_of(flavour))
    assert context["privileged"] is (flavour in PRIVILEGED)
    if flavour not in PRIVILEGED:
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("flavour", sorted(PRIVILEGED))
def test_the_reason_of_a_privilege_stands_beside_it(flavour: str) -> None:
    text = (CHART / "values.yaml").read_text()
    section = re.search(rf"^{flavour}:\n((?: .*\n|\n)+)", text, flags=re.MULTILINE)
    assert section is not None
    reason = re.search(r"((?:^ *# .*\n)+) *privileged: true\n", section[1], flags=re.MULTILINE)
    assert reason is not None
    assert "device cgroup" in reason[1]


@pytest.mark.parametrize("flavour", [flavour for flavour in FLAVOURS if flavour not in PRIVILEGED])
def test_without_the_kubelet_an_unprivileged_flavour_is_nobody(flavour: str) -> None:
    # The kubelet's socket lets root alone connect; nothing else here does.
    assert security(pod_of(flavour))["runAsUser"] == 0
    pod = pod_of(flavour, UNATTRIBUTED)
    assert security(pod)["runAsUser"] == 65532
    assert security(pod)["runAsNonRoot"] is True
    assert list(host_mounts(pod)) == []
    assert pod["automountServiceAccountToken"] is False


def test_owners_of_devices_in_the_hosts_processes_take_two_capabilities() -> None:
    pod = pod_of("tpu", UNATTRIBUTED, hostProcesses=True)
    assert pod["hostPID"] is True
    assert security(pod)["runAsUser"] == 0
    # Descriptors and environments of another user's processes are closed to a root without the second.
    assert security(pod)["capabilities"] == {"drop": ["ALL"], "add": ["DAC_READ_SEARCH", "SYS_PTRACE"]}
    assert security(pod)["privileged"] is False


def test_the_kernels_log_takes_privileges() -> None:
    pod = pod_of("nvidia", kernelLog=True)
    assert security(pod)["privileged"] is True
    # Kubernetes refuses both together.
    assert "allowPrivilegeEscalation" not in security(pod)
    assert "/dev/kmsg" in dict(host_mounts(pod))


def test_amds_device_plugin_finds_the_health_service_where_it_asks() -> None:
    asked = {"config": {"collectors": {"amd": {"options": {"health_service": True}}}}}
    pod = pod_of("amd", merged(UNATTRIBUTED, asked))
    mount = dict(host_mounts(pod))[f"/var/lib/{Path(SOCKET).parent}"]
    # The one place that is written to; it is root's.
    assert mount["mountPath"] == f"/var/lib/{Path(SOCKET).parent}"
    assert "readOnly" not in mount
    assert security(pod)["runAsUser"] == 0
    assert security(pod)["capabilities"] == {"drop": ["ALL"]}
    assert "amd-health" not in str(pod_of("amd"))
    assert "amd-health" not in str(pod_of("nvidia", asked))


def test_the_hosts_network_keeps_the_clusters_names() -> None:
    pod = pod_of("neuron", hostNetwork=True)
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


@pytest.mark.parametrize("flavour", sorted(PRIVILEGED))
def test_a_privileged_flavour_cannot_write_to_sysfs(flavour: str) -> None:
    # A privileged container's own is writable: a write to a counter clears it, or resets the device.
    mount = dict(host_mounts(pod_of(flavour)))["/sys"]
    assert (mount["mountPath"], mount["readOnly"], mount["recursiveReadOnly"]) == ("/sys", True, "IfPossible")


# The host's files


def told(catalogue: Catalogue) -> Iterator[str]:
    """Paths that doctor looks at, and so tells of when they are missing."""
    for check in catalogue.collector.doctor:
        yield expand(check.path, HostPaths())


def named_by_doctor(flavour: str) -> set[str]:
    tables = survey().collectors
    names = VENDORS if flavour == "auto" else (flavour,)
    found = {path for name in names for path in told(tables[name][1])}
    # Of the sources of attribution.
    return found | {expand(KubernetesAttribution().pod_resources_socket, HostPaths())}


def holds(folder: str, path: str) -> bool:
    """Whether a folder or file of the host is needed for one of the paths, which may have wildcards."""
    return fnmatch.fnmatchcase(folder, path) or path.startswith(f"{folder}/")


MOUNTING: Final[Json] = {
    **{name: (name, {}) for name in FLAVOURS},
    "nvidia with the kernel's log": ("nvidia", {"kernelLog": True}),
    "neuron with the kernel's log": ("neuron", {"kernelLog": True}),
    "amd with its library": ("amd", {"privileged": True, "hostMounts": [{"path": "/dev/dri"}, {"path": "/opt"}]}),
    "amd with its error records": ("amd", {"privileged": True, "hostMounts": [{"path": "/sys/kernel/debug"}]}),
}

UNMOUNTED: Final[Mapping[str, tuple[str, Callable[[Json], bool]]]] = {
    # What a container has of the host without a mount, and what the pod needs for it.
    "/sys": ("each container's sysfs shows the host's devices", lambda _: True),
    "/proc/1": ("the host's processes", lambda pod: pod.get("hostPID") is True),
    "/dev/nvidia": ("NVIDIA's runtime brings them", lambda pod: pod.get("runtimeClassName") == "nvidia"),
    "/proc/driver/nvidia": ("the same", lambda pod: pod.get("runtimeClassName") == "nvidia"),
    "/dev/neuron": ("a privileged container has the host's devices", lambda pod: security(pod)["privileged"]),
}
MOUNTED: Final = ("/sys/kernel/debug",)
"""Of these places those that a container has not."""


@pytest.mark.parametrize("case", MOUNTING)
def test_every_mount_is_one_that_doctor_names(case: str) -> None:
    flavour, settings = MOUNTING[case]
    paths = named_by_doctor(flavour)
    mounts = dict(host_mounts(pod_of(flavour, **settings)))
    assert [mounted for mounted in mounts if not any(holds(mounted, path) for path in paths)] == []
    # The agent looks for them where they are on the host.
    assert {path: mount["mountPath"] for path, mount in mounts.items()} == {path: path for path in mounts}


@pytest.mark.parametrize("case", MOUNTING)
def test_no_mount_hides_the_agent_itself(case: str) -> None:
    flavour, settings = MOUNTING[case]
    # Where the image has the agent, and Python.
    places = (f"/{INSTALLED}", "/usr/local/bin/python")
    hiding = [path for path, _ in host_mounts(pod_of(flavour, **settings)) for place in places if holds(path, place)]
    assert hiding == []


@pytest.mark.parametrize("flavour", VENDORS)
def test_everything_that_doctor_names_can_be_had_with_the_chart(flavour: str) -> None:
    """Doctor must not send somebody after a path that no value of the chart brings into the container."""
    cases = [settings for of, settings in MOUNTING.values() if of == flavour]
    rendered = [pod_of(flavour, **settings) for settings in (*cases, {"hostProcesses": True})]
    lacking = [path for path in named_by_doctor(flavour) if not any(brings(pod, path) for pod in rendered)]
    assert lacking == []


def brings(pod: Json, path: str) -> bool:
    """Whether the container has this path of the host."""
    if any(holds(mounted, path) for mounted, _ in host_mounts(pod)):
        return True
    return not path.startswith(MOUNTED) and any(
        path.startswith(place) and has(pod) for place, (_, has) in UNMOUNTED.items()
    )


def test_a_path_that_no_value_brings_is_found() -> None:
    pod = pod_of("gaudi")
    assert brings(pod, "/usr/lib/habanalabs/libhlml.so")
    assert not brings(pod, "/usr/lib/elsewhere/libhlml.so")
    assert not brings(pod_of("tpu"), "/proc/1/environ")


def advice(flavour: str, path: str) -> str:
    """What doctor says to do about a path."""
    (found,) = [check.fix for check in survey().collectors[flavour][1].collector.doctor if check.path == path]
    return found


@pytest.mark.parametrize("flavour", ["nvidia", "neuron"])
def test_doctor_asks_for_what_the_chart_gives_for_the_kernels_log(flavour: str) -> None:
    context, text = security(pod_of(flavour, kernelLog=True)), advice(flavour, "{kmsg}")
    assert context["privileged"] is True
    assert all(word in text for word in ("privileged", "/dev/kmsg", "kernelLog", "CAP_SYSLOG"))


def test_doctor_asks_for_what_the_chart_gives_for_the_hosts_processes() -> None:
    pod, text = pod_of("tpu", UNATTRIBUTED, hostProcesses=True), advice("tpu", "{proc}/1/environ")
    assert all(name in text for name in security(pod)["capabilities"]["add"])
    assert all(word in text for word in ("hostPID: true", "root", "hostProcesses"))


def test_doctor_looks_where_the_collector_does() -> None:
    # It loads the library from here where the loader does not find it.
    assert "/usr/lib/habanalabs" in advice("gaudi", USUAL_PATH)


def test_a_mount_that_doctor_does_not_name_is_found() -> None:
    assert not any(holds("/etc", path) or holds("/var/run", path) for path in named_by_doctor("tpu"))


def test_a_kubelet_elsewhere_is_mounted_where_the_agent_looks() -> None:
    mounts = dict(host_mounts(pod_of("amd", {"kubeletDirectory": "/var/lib/k0s/kubelet/"})))
    socket = Path(expand(KubernetesAttribution().pod_resources_socket, HostPaths()))
    assert mounts["/var/lib/k0s/kubelet/pod-resources"]["mountPath"] == str(socket.parent)


def test_the_amd_recipe_of_the_values_is_the_one_that_is_checked() -> None:
    settings = MOUNTING["amd with its library"][1]
    (written,) = re.findall(r"hostMounts: (\[\{path: /dev/dri\}.*?\])", (CHART / "values.yaml").read_text())
    assert yaml.safe_load(written) == settings["hostMounts"]


# Kubernetes' API


def granted(objects: list[Json]) -> set[tuple[str, str, str]]:
    """(group, resource, verb)"""
    return {
        (group, resource, verb)
        for role in of_kind(objects, "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(request: Request) -> tuple[str, str, str] | None:
    """What the API server, or the kubelet, authorizes a request as; None: anybody who is authenticated may."""
    if request.path == "/pods":
        return ("", "nodes/pods", "get")
    found = re.fullmatch(r"/(?:api|apis/([^/]+))/v[^/]+(?:/namespaces/[^/]+)?/([a-z]+)(/[^/]+)?", request.path)
    if found is None:
        # The list of a group's versions: the role system:discovery.
        assert request.path == DRA
        return None
    verb = "watch" if request.is_watch else "get" if found[3] else "list"
    return (found[1] or "", found[2], verb)


CLAIM: Final = messages.Claim("gpus", "ns", [messages.Dra("gpu.nvidia.com", "node1", "gpu-0")])
SLICES: Final = f"{DRA}/v1/resourceslices"
CLAIMS: Final = f"{DRA}/v1/namespaces/ns/resourceclaims"


async def asked(text: str, folder: Path, expected: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """What an agent with this configuration asks of a cluster in which a pod holds a device of each kind.

    Raises AssertionError if it does not come to ask for all that is expected.
    """
    (folder / "config.yaml").write_text(text)
    (folder / "token").write_text("secret")
    with ApiServer(dra=["v1"]) as api, Kubelet(folder / "kubelet.sock") as kubelet:
        kubelet.script = kubelet_pods([messages.Pod("ns", "p", [messages.Container("c", (), [CLAIM])])])
        api.put(PODS)
        api.put(NAMESPACES)
        api.put("/pods")
        api.put(SLICES, resource_slice("s", {"gpu-0": {}}))
        api.put(CLAIMS, resource_claim("ns", "gpus", []))
        # No certificates here: otherwise as in a pod.
        places = {
            "API_URL": api.url,
            "KUBELET_URL": api.url,
            "TOKEN_FILE": str(folder / "token"),
            "CA_FILE": "",
            "POD_RESOURCES_SOCKET": str(folder / "kubelet.sock"),
            "NODE_NAME": "node1",
            "POLL": "1",
        }
        environ = {f"ACCEL_EXPORTER_ATTRIBUTION__KUBERNETES__{key}": value for key, value in places.items()}
        program = read(Source(folder / "config.yaml", {}), environ)
        parts = build(
            program.config,
            [catalogue for _, catalogue in program.catalogues.values()],
            changed=lambda: None,
            failed=lambda *_: None,
            running=lambda: [],
            environ={},
        )
        tasks = [asyncio.create_task(task()) for task in parts.tasks]

        def seen() -> set[tuple[str, str, str]]:
            # Looking at the claims makes it ask for more of them.
            for source in parts.sources:
                source.claims()
            return {found for request in list(api.requests) if (found := needed(request)) is not None}

        try:
            await until(lambda: kubelet.questions >= 2 or not tasks)
            await until(lambda: expected <= seen(), f"it never asks for {expected - seen()}")
            return seen()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await parts.close()


@pytest.mark.parametrize(
    "kubernetes",
    [
        {},
        {"namespaces": True, "dra": False},
        {"pods_from": "kubelet", "namespaces": True},
        {"pods_from": "none", "dra": False},
        {"enabled": False},
    ],
    ids=str,
)
def test_the_role_grants_exactly_what_the_agent_asks_for(kubernetes: Json, tmp_path: Path) -> None:
    objects = render({"config": {"attribution": {"kubernetes": kubernetes}}})
    (text,) = configurations(objects).values()
    found: set[tuple[str, str, str]] = set()

    @in_loop
    async def run() -> None:
        found.update(await asked(text, tmp_path, granted(objects)))

    run()
    assert granted(objects) == found
    # Who asks for nothing has no token to ask with.
    (pod,) = pods(objects).values()
    assert pod["automountServiceAccountToken"] is bool(found)


def test_the_role_is_bound_to_the_account_of_the_pods() -> None:
    for values in CASES.values():
        objects = render(values)
        for binding in of_kind(objects, "ClusterRoleBinding"):
            (role,) = of_kind(objects, "ClusterRole")
            assert binding["roleRef"]["name"] == role["metadata"]["name"]
            (account,) = of_kind(objects, "ServiceAccount")
            assert binding["subjects"] == [
                {
                    "kind": "ServiceAccount",
                    "name": account["metadata"]["name"],
                    "namespace": account["metadata"]["namespace"],
                }
            ]
            assert {pod["serviceAccountName"] for pod in pods(objects).values()} == {account["metadata"]["name"]}


def test_one_flavours_wish_is_granted_to_the_common_account() -> None:
    values = merged(
        only("nvidia", "amd"),
        UNATTRIBUTED,
        {"amd": {"config": {"attribution": {"kubernetes": {"enabled": True, "dra": False}}}}},
    )
    objects = render(values)
    assert granted(objects) == {("", "pods", "list"), ("", "pods", "watch")}
    tokens = {name: pod["automountServiceAccountToken"] for name, pod in pods(objects).items()}
    assert tokens == {"nvidia": False, "amd": True}
