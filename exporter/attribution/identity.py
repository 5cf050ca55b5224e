"""What a pod's labels, annotations and owners say about its job, queue, model and tenant."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from collectors.base import Labels
from exporter.attribution.claims import Namespaces, Pod
from exporter.attribution.join import Identify
from exporter.attribution.text import MAX_NAME, clean
from exporter.config.attribution import Attribution, TenantSource
from exporter.config.regex import MAX_TEXT
from exporter.model import Workload

JOB_LABELS: Final = (
    ("scheduler.slinky.slurm.net/slurm-jobid", "SlurmJob"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("training.kubeflow.org/job-name", "TrainingJob"),
    ("ray.io/cluster", "RayCluster"),
    ("volcano.sh/job-name", "VolcanoJob"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("disaggregatedset.x-k8s.io/name", "DisaggregatedSet"),
    ("serving.kserve.io/inferenceservice", "InferenceService"),
    ("workflows.argoproj.io/workflow", "Workflow"),
    ("batch.kubernetes.io/job-name", "Job"),
    ("job-name", "Job"),
)
"""Labels that name the job, the highest owner first: a Job that a JobSet made is noise."""

QUEUE_KEYS: Final = (
    "kueue.x-k8s.io/local-queue-name",
    "kueue.x-k8s.io/queue-name",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
    "slurmjob.slinky.slurm.net/partition",
)
"""Labels, else annotations, that name the queue."""

MODEL_LABELS: Final = ("serving.kserve.io/inferenceservice", "leaderworkerset.sigs.k8s.io/name")
PART_OF, NAME = "app.kubernetes.io/part-of", "app.kubernetes.io/name"
LLM_SERVICE: Final = "llminferenceservice"
TRAINJOB_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
TEMPLATE_HASH: Final = "pod-template-hash"
_NAMES: Final = ("namespace", "pod", "container", "pod_uid", "resource", "share")


def identifier(config: Attribution, namespaces: Callable[[], Namespaces]) -> Identify:
    """A function that fills in what the pod tells. What the claim's own source knows stays."""

    def identify(workload: Workload, pod: Pod | None) -> Workload:
        job_name, job_kind = workload.job_name, workload.job_kind
        if not job_name and pod is not None:
            job_name, job_kind = job(pod, config)
        known = msgspec.structs.replace(
            workload,
            **{name: clean(getattr(workload, name), MAX_NAME) for name in _NAMES},
            raw={label: clean(value, MAX_NAME) for label, value in workload.raw.items()},
            job_name=clean(job_name),
            job_kind=clean(job_kind),
            queue=clean(workload.queue or (queue(pod) if pod is not None else "")),
            served_model=clean(model(pod, config) if pod is not None else ""),
            labels=chosen_labels(pod.labels, config.pod_labels) if pod is not None else (),
        )
        return msgspec.structs.replace(known, tenant=clean(_tenant(known, pod, config.tenant_from, namespaces())))

    return identify


def job(pod: Pod, config: Attribution) -> tuple[str, str]:
    """(name, kind) of what the pod works for; empty where nothing tells."""
    rules = [(rule.label, rule.kind) for rule in config.job_rules]
    for label, kind in (*rules, *JOB_LABELS):
        name = pod.labels.get(label, "")
        if name:
            if kind == "JobSet" and TRAINJOB_STEP in pod.labels:
                return name, "TrainJob"
            return name, kind
    if pod.labels.get(PART_OF) == LLM_SERVICE and pod.labels.get(NAME):
        return pod.labels[NAME], "LLMInferenceService"
    return _owner(pod)


def _owner(pod: Pod) -> tuple[str, str]:
    """The controller; a Deployment instead of the ReplicaSet that it made."""
    for owner in pod.owners:
        if not owner.controller:
            continue
        template = pod.labels.get(TEMPLATE_HASH, "")
        if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
            return owner.name.removesuffix(f"-{template}"), "Deployment"
        return owner.name, owner.kind
    return "", ""


def queue(pod: Pod) -> str:
    for key in QUEUE_KEYS:
        found = pod.labels.get(key) or pod.annotations.get(key)
        if found:
            return found
    return ""


def model(pod: Pod, config: Attribution) -> str:
    """What the pod serves, if it serves a model."""
    for key in (*config.served_model_labels, *MODEL_LABELS):
        found = pod.labels.get(key)
        if found:
            return found
    return pod.labels.get(NAME, "") if pod.labels.get(PART_OF) == LLM_SERVICE else ""


def _tenant(
    workload: Workload,
    pod: Pod | None,
    sources: Iterable[TenantSource],
    namespaces: Namespaces,
) -> str:
    for source in sources:
        value = _told(source, workload, pod, namespaces)
        if value and source.pattern:
            value = _taken(source.pattern, value[:MAX_TEXT])
        if value:
            return value
    return workload.tenant


@functools.lru_cache(4096)
def _taken(pattern: str, value: str) -> str:
    """What an expression takes of a value. Found once for each: a pod's label is looked at again and again."""
    found = re.search(pattern, value)
    return "" if found is None else found.groupdict().get("tenant") or found[0]


def _told(source: TenantSource, workload: Workload, pod: Pod | None, namespaces: Namespaces) -> str:
    match source.source:
        case "pod_label":
            return pod.labels.get(source.key, "") if pod is not None else ""
        case "pod_annotation":
            return pod.annotations.get(source.key, "") if pod is not None else ""
        case "namespace_label":
            known = namespaces.get(workload.namespace)
            return (known.labels or {}).get(source.key, "") if known is not None else ""
        case "namespace_annotation":
            known = namespaces.get(workload.namespace)
            return (known.annotations or {}).get(source.key, "") if known is not None else ""
        case "namespace":
            return workload.namespace
        case "queue":
            return workload.queue
        case "slurm_account":
            return workload.tenant
        case "value":
            return source.key


def chosen_labels(labels: Mapping[str, str], keys: Iterable[str]) -> Labels:
    """Allowed labels, called as kube-state-metrics calls them, so that both can be joined.

    Of several keys of one such name each gets a number, in their order: two labels of one name void a whole scrape.
    """
    names = {key: _label_name(key) for key in sorted(set(keys)) if key in labels}
    count = Counter(names.values())
    number: Counter[str] = Counter()
    found: list[tuple[str, str]] = []
    for key, name in names.items():
        number[name] += 1
        found.append((f"{name}_conflict{number[name]}" if count[name] > 1 else name, clean(labels[key])))
    return tuple(found)


def _label_name(key: str) -> str:
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"[^a-zA-Z0-9_]", "_", key))
    return f"label_{words.lower()}"
