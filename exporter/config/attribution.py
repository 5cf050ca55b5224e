"""The part of the configuration that says how devices are attributed to workloads."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from exporter.config import checks
from exporter.config.checks import SECONDS, checked

Switch = bool | Literal["auto"]
LabelKey = Annotated[str, checked(checks.LABEL_KEY), Meta(min_length=1, max_length=317)]
"""A key of a Kubernetes label: an optional prefix of 253 characters and a name of 63."""


class TenantSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place where the tenant may stand. The first that has one counts."""

    source: Annotated[
        Literal[
            "pod_label",
            "pod_annotation",
            "namespace_label",
            "namespace_annotation",
            "namespace",
            "queue",
            "slurm_account",
            "value",
        ],
        Meta(description="Where to look."),
    ]
    key: Annotated[
        str, Meta(max_length=317, description="The label's or annotation's key; for `value` the tenant itself.")
    ] = ""
    pattern: Annotated[
        str,
        checked(checks.REGEX),
        Meta(
            max_length=200,
            description="What to take of its first 128 characters: the group `tenant`, else the match; empty: all.",
        ),
    ] = ""


class JobRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A label of pods that names the job, before the built-in ones."""

    label: Annotated[LabelKey, Meta(description="The label's key.")]
    kind: Annotated[str, checked(checks.NAME), Meta(description="What `job_kind` is then.")]


class KubernetesAttribution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pods, from the kubelet and the API server."""

    enabled: Annotated[
        Switch, Meta(description="`auto`: where the kubelet's socket or a service account is there.")
    ] = "auto"
    pod_resources_socket: Annotated[
        str,
        checked(checks.HOST_PATH),
        Meta(description="The kubelet's PodResources socket. In a container mount its directory, not the file."),
    ] = "{var_lib}/kubelet/pod-resources/kubelet.sock"
    poll: Annotated[float, Meta(ge=1, le=300, description="Period of asking the kubelet.", extra=SECONDS)] = 10.0
    hold: Annotated[
        float,
        Meta(
            ge=0, le=3600, description="How long the last good answer of a source counts after it fails.", extra=SECONDS
        ),
    ] = 60.0
    pods_from: Annotated[
        Literal["auto", "apiserver", "kubelet", "none"],
        Meta(
            description="Where labels, owners and uids of pods come from. `auto`: the API server where a service "
            "account is mounted, else none. `kubelet` needs the permission `nodes/pods`."
        ),
    ] = "auto"
    node_name: Annotated[
        str,
        checked(checks.NODE_NAME),
        Meta(description="This node's name in Kubernetes; empty: as `node`."),
    ] = ""
    api_url: Annotated[
        str,
        checked(checks.URL),
        Meta(description="The API server; empty: as a pod finds it in its environment."),
    ] = ""
    kubelet_url: Annotated[
        str, checked(checks.URL), Meta(description="The kubelet, for `pods_from: kubelet`; empty: https://NODE:10250.")
    ] = ""
    token_file: Annotated[
        str, checked(checks.PATH_OR_EMPTY), Meta(description="The service account's token, read again as it rotates.")
    ] = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    ca_file: Annotated[
        str, checked(checks.PATH_OR_EMPTY), Meta(description="Certificates of the API server; empty: the system's.")
    ] = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    kubelet_ca_file: Annotated[
        str,
        checked(checks.PATH_OR_EMPTY),
        Meta(description="Certificates of the kubelet; empty: it is not verified, as it usually signs its own."),
    ] = ""
    namespaces: Annotated[
        bool, Meta(description="Watch namespaces, too: for tenants that come from a namespace's labels or annotations.")
    ] = False
    dra: Annotated[
        Switch, Meta(description="Resolve devices of Dynamic Resource Allocation. `auto`: where a pod holds any.")
    ] = "auto"
    own_pods: Annotated[
        tuple[Annotated[str, Meta(max_length=317)], ...],
        Meta(
            max_length=100,
            description="Pods (`NAMESPACE/NAME`, `*` is a wildcard) that never count as owners, such as monitors. The "
            "agent's own pod is always among them.",
        ),
    ] = ()


class SlurmAttribution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs of Slurm."""

    enabled: Annotated[Switch, Meta(description="`auto`: where one of the directories is there.")] = "auto"
    job_directories: Annotated[
        tuple[Annotated[str, checked(checks.HOST_PATH)], ...],
        Meta(
            max_length=16,
            description="Directories with a file for each device, named `<index>` or `<index>.<instance>`, with a job "
            "id a line, as a prolog writes them; beyond those that the vendors' pages name.",
        ),
    ] = ()
    json_directories: Annotated[
        tuple[Annotated[str, checked(checks.HOST_PATH)], ...],
        Meta(max_length=16, description="The same with a JSON file for each device, with the job's SLURM_* variables."),
    ] = ()
    vendor: Annotated[
        str,
        checked(checks.NAME_OR_EMPTY),
        Meta(description="The vendor whose devices the files number; empty: the only one that is here."),
    ] = ""
    device_order: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=9999)], ...],
        Meta(
            max_length=2048,
            description="Where Slurm numbers devices in another order: the index of its device 0, of its device 1, and "
            "so on. With `AutoDetect` in gres.conf both are the same.",
        ),
    ] = ()
    poll: Annotated[float, Meta(ge=1, le=300, description="Period of reading the files.", extra=SECONDS)] = 5.0
    details: Annotated[
        Literal["none", "squeue"],
        Meta(
            description="Where account, user and partition of a job come from, beyond the files. `squeue` must be on "
            "the agent's PATH, and may tell its user of others' jobs (PrivateData). It is asked for a text of these "
            "fields, and for JSON only where a job is known by its SLUID alone (Slurm 26.05)."
        ),
    ] = "none"
    details_poll: Annotated[
        float, Meta(ge=30, le=86400, description="Period of asking the controller, at most.", extra=SECONDS)
    ] = 300.0


class ProcessAttribution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processes that use a device, by their control groups."""

    enabled: Annotated[
        Switch,
        Meta(
            description="`auto`: beside other sources, and on a host whose control groups show that Slurm runs jobs "
            "there. In a container the host's pid namespace is needed (hostPID)."
        ),
    ] = "auto"


class StaticOwner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices that are always used by the same workload or tenant, for hosts without a scheduler."""

    vendor: Annotated[str, checked(checks.NAME_OR_EMPTY), Meta(description="The vendor; empty: any.")] = ""
    devices: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...],
        Meta(max_length=4096, description="Index, uuid, serial number or PCI address of each device; empty: all."),
    ] = ()
    namespace: Annotated[str, Meta(max_length=253, description="What `namespace` is.")] = ""
    pod: Annotated[str, Meta(max_length=253, description="What `pod` is.")] = ""
    job_name: Annotated[str, Meta(max_length=253, description="What `job_name` is.")] = ""
    tenant: Annotated[str, Meta(max_length=253, description="What `tenant` is.")] = ""


DEFAULT_TENANT: Final = (
    TenantSource(source="namespace_label", key="capsule.clastix.io/tenant"),
    TenantSource(source="namespace_label", key="projectcapsule.dev/tenant"),
    TenantSource(source="namespace_label", key="field.cattle.io/projectId"),
    TenantSource(source="slurm_account"),
    TenantSource(source="namespace"),
)


class Attribution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pod, job and tenant use each device. It never delays or blanks a reading."""

    mode: Annotated[
        Literal["labels", "join"],
        Meta(
            description="`labels`: the workload stands on the series of what it causes. `join`: only on "
            "`accel_allocation_info`, for fleets where pods come and go so fast that series are too many."
        ),
    ] = "labels"
    labels_on: Annotated[
        Literal["usage", "all"],
        Meta(description="`usage`: on the series that docs/metrics.md marks. `all`: on every series of a device."),
    ] = "usage"
    raw_labels: Annotated[
        bool, Meta(description="Put the workload on raw series, too, as the vendor's own exporter does.")
    ] = True
    raw_copies: Annotated[
        bool,
        Meta(
            description="One copy of a raw series for each workload of a shared device, as some vendors' exporters do."
        ),
    ] = False
    kubernetes: KubernetesAttribution = KubernetesAttribution()
    tenant_from: Annotated[
        tuple[TenantSource, ...], Meta(max_length=32, description="Where the tenant comes from, in order.")
    ] = DEFAULT_TENANT
    job_rules: Annotated[
        tuple[JobRule, ...], Meta(max_length=64, description="Labels that name the job, before the built-in ones.")
    ] = ()
    served_model_labels: Annotated[
        tuple[LabelKey, ...], Meta(max_length=16, description="Labels that name the served model, before the built-in.")
    ] = ()
    pod_labels: Annotated[
        tuple[LabelKey, ...],
        Meta(
            max_length=16,
            description="Labels of pods to put on `accel_allocation_info`, called as in kube-state-metrics' "
            "`kube_pod_labels` (`teamName` is `label_team_name`). None by default: each "
            "value is a series.",
        ),
    ] = ()
    slurm: SlurmAttribution = SlurmAttribution()
    processes: ProcessAttribution = ProcessAttribution()
    static: Annotated[
        tuple[StaticOwner, ...], Meta(max_length=4096, description="Fixed owners; they win over all other sources.")
    ] = ()
