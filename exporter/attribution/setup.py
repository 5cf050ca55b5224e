"""Configuration → the sources of attribution that this host can have."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from exporter.attribution.annotations import AnnotationSource
from exporter.attribution.api import Api, ApiError, service_address
from exporter.attribution.bridged import BridgeSource
from exporter.attribution.cgroups import has_slurm
from exporter.attribution.claims import ClaimSource, Namespaces, Pods, SourceName, Status
from exporter.attribution.dra import AdminClaims, DraSource, Slice, served_version, slice_watch
from exporter.attribution.held import Wanted
from exporter.attribution.identity import QUEUE_KEYS
from exporter.attribution.join import Excluded
from exporter.attribution.match import concerns
from exporter.attribution.podresources import PodResources
from exporter.attribution.pods import PodObject, Poll, namespaces_of, pods
from exporter.attribution.processes import ProcessSource, Running
from exporter.attribution.slurm import SlurmSource
from exporter.attribution.squeue import JobDetails
from exporter.attribution.static import StaticSource
from exporter.attribution.table import Attribution
from exporter.attribution.watch import Object, Watch
from exporter.catalogue import Catalogue
from exporter.config import Config
from exporter.config.attribution import KubernetesAttribution
from exporter.config.paths import expand
from exporter.files import is_folder, is_there, small_text

NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
RETRY: Final = 30.0
"""Seconds between two tries to learn what the API server serves."""

MAX_NAMESPACES: Final = 50_000
"""Of the cluster."""

Task = Callable[[], Coroutine[None, None, None]]
Failed = Callable[[str, str], None]
"""source, kind"""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What runs and what it keeps."""

    sources: tuple[ClaimSource, ...] = ()
    tasks: tuple[Task, ...] = ()
    pods: Callable[[], Pods] = dict
    namespaces: Callable[[], Namespaces] = dict
    others: Mapping[SourceName, Callable[[], Status]] = {}
    """How those are that claim nothing themselves, and tell more of what others claim."""
    excluded: Excluded = Excluded()
    apis: tuple[Api, ...] = ()

    async def close(self) -> None:
        await asyncio.gather(*(api.close() for api in self.apis))


def build(
    config: Config,
    catalogues: Sequence[Catalogue],
    *,
    changed: Callable[[], None],
    failed: Failed,
    running: Callable[[], Sequence[Running]],
    environ: Mapping[str, str] = os.environ,
) -> Parts:
    """The sources that are configured, or that ``auto`` finds signs of."""
    attribution = config.attribution
    parts = Parts(excluded=Excluded(own_pods(attribution.kubernetes, environ)))
    kubernetes = attribution.kubernetes
    if kubernetes.enabled is True or (kubernetes.enabled == "auto" and _in_cluster(kubernetes, environ)):
        parts = _with_kubernetes(parts, config, catalogues, changed, failed, environ)
    details = _details(config, changed, failed)
    if details is not None:
        others: Mapping[SourceName, Callable[[], Status]] = {**parts.others, "squeue": lambda: details.status}
        parts = msgspec.structs.replace(parts, tasks=(*parts.tasks, details.run), others=others)
    parts = _with_slurm(parts, config, catalogues, details, changed, failed)
    if attribution.processes.enabled is not False:
        fill = details.fill if details is not None else lambda claim: claim
        sure = attribution.processes.enabled is True or bool(parts.sources)
        host = config.paths.host
        source = ProcessSource(host.proc, running, parts.pods, fill, lambda: sure or has_slurm(host.sys))
        parts = msgspec.structs.replace(parts, sources=(*parts.sources, source))
    parts = msgspec.structs.replace(parts, sources=(*parts.sources, BridgeSource()))
    if attribution.static:
        parts = msgspec.structs.replace(parts, sources=(*parts.sources, StaticSource(attribution.static)))
    return parts


def _details(config: Config, changed: Callable[[], None], failed: Failed) -> JobDetails | None:
    """What Slurm's controller knows of jobs, whichever source tells these."""
    slurm = config.attribution.slurm
    if slurm.details == "none" or slurm.enabled is False:
        return None
    return JobDetails(slurm.details_poll, changed=changed, failed=lambda kind: failed("squeue", kind))


def _wanted(tables: Sequence[Attribution]) -> Wanted:
    """Whether a resource hands out devices of any vendor that this agent can read."""

    @functools.lru_cache(1024)
    def wanted(resource: str) -> bool:
        return any(concerns(table, resource) for table in tables)

    return wanted


def _in_cluster(kubernetes: KubernetesAttribution, environ: Mapping[str, str]) -> bool:
    return is_folder(Path(kubernetes.pod_resources_socket).parent) or bool(
        service_address(environ) and is_there(kubernetes.token_file)
    )


def own_pods(kubernetes: KubernetesAttribution, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Patterns NAMESPACE/NAME of pods that own nothing: those of the configuration, and the agent's."""
    name = environ.get("POD_NAME") or environ.get("HOSTNAME", "")
    namespace = environ.get("POD_NAMESPACE", "")
    if not namespace:
        namespace = small_text(NAMESPACE_FILE)
    return (*kubernetes.own_pods, f"{namespace}/{name}") if name and namespace else kubernetes.own_pods


def _with_kubernetes(
    parts: Parts,
    config: Config,
    catalogues: Sequence[Catalogue],
    changed: Callable[[], None],
    failed: Failed,
    environ: Mapping[str, str],
) -> Parts:
    kubernetes = config.attribution.kubernetes
    resources = PodResources(
        kubernetes.pod_resources_socket,
        kubernetes.poll,
        kubernetes.hold,
        changed=changed,
        failed=lambda kind: failed("podresources", kind),
        wanted=_wanted([catalogue.collector.attribution for catalogue in catalogues]),
    )
    parts = msgspec.structs.replace(parts, sources=(*parts.sources, resources), tasks=(*parts.tasks, resources.run))
    api = _api(kubernetes, environ)
    parts = _with_pods(parts, config, catalogues, resources, api, changed, failed)
    if kubernetes.dra is not False and api is not None:
        parts = _with_dra(parts, kubernetes, catalogues, resources, api, changed, failed)
    return parts


def _api(kubernetes: KubernetesAttribution, environ: Mapping[str, str]) -> Api | None:
    url = kubernetes.api_url or service_address(environ)
    return Api(url, kubernetes.token_file, kubernetes.ca_file) if url else None


def _with_pods(
    parts: Parts,
    config: Config,
    catalogues: Sequence[Catalogue],
    resources: PodResources,
    api: Api | None,
    changed: Callable[[], None],
    failed: Failed,
) -> Parts:
    kubernetes = config.attribution.kubernetes
    chosen = kubernetes.pods_from
    if chosen == "auto":
        chosen = "apiserver" if api is not None else "none"
    if chosen == "none" or (chosen == "apiserver" and api is None):
        return parts

    def pods_failed(kind: str) -> None:
        failed("pods", kind)

    keeper: Watch[PodObject] | Poll
    apis = parts.apis
    if chosen == "apiserver" and api is not None:
        query = {"fieldSelector": f"spec.nodeName={kubernetes.node_name}"}
        keeper = Watch(api, "/api/v1/pods", query, PodObject, changed=changed, failed=pods_failed)
        apis = (*apis, api)
    else:
        url = kubernetes.kubelet_url or f"https://{kubernetes.node_name}:10250"
        kubelet = Api(url, kubernetes.token_file, kubernetes.kubelet_ca_file, verify=bool(kubernetes.kubelet_ca_file))
        keeper = Poll(kubelet, kubernetes.poll, changed=changed, failed=pods_failed)
        apis = (*apis, kubelet)
    wanted = _annotations(config, catalogues)
    rules = [(c.collector.vendor, rule) for c in catalogues for rule in c.collector.attribution.annotations]

    def told() -> Pods:
        return pods(keeper.objects, wanted)

    sources: tuple[ClaimSource, ...] = (*parts.sources, AnnotationSource(rules, told, resources.told))
    tasks: tuple[Task, ...] = (*parts.tasks, keeper.run)
    parts = msgspec.structs.replace(
        parts, sources=sources, tasks=tasks, pods=told, others={"pods": lambda: keeper.status}, apis=apis
    )
    if kubernetes.namespaces and api is not None:
        namespaces = Watch(
            api,
            "/api/v1/namespaces",
            {},
            Object,
            changed=changed,
            failed=pods_failed,
            metadata_only=True,
            most=MAX_NAMESPACES,
        )
        parts = msgspec.structs.replace(
            parts,
            tasks=(*parts.tasks, namespaces.run),
            namespaces=lambda: namespaces_of(namespaces.objects),
        )
    return parts


def _annotations(config: Config, catalogues: Iterable[Catalogue]) -> frozenset[str]:
    """Keys of annotations that some rule looks at; all others are not kept."""
    keys = {rule.key for catalogue in catalogues for rule in catalogue.collector.attribution.annotations}
    keys |= {source.key for source in config.attribution.tenant_from if source.source == "pod_annotation"}
    return frozenset(keys | set(QUEUE_KEYS))


def _with_dra(
    parts: Parts,
    kubernetes: KubernetesAttribution,
    catalogues: Sequence[Catalogue],
    resources: PodResources,
    api: Api,
    changed: Callable[[], None],
    failed: Failed,
) -> Parts:
    rules = {rule.driver: (c.collector.vendor, rule) for c in catalogues for rule in c.collector.attribution.dra}
    state = _DraState()
    admin = AdminClaims(api, lambda: state.version)

    async def run() -> None:
        """Begins when some container holds such a device: most clusters never ask the API for slices."""
        while not (kubernetes.dra is True or any(held.dra for held in resources.held)):  # noqa: ASYNC110 - seldom
            await asyncio.sleep(kubernetes.poll)
        while not state.version:
            try:
                state.version = await served_version(api)
            except ApiError as error:
                failed("dra", error.kind)
                state.status = Status(up=False, hint=error.hint)
            if not state.version:
                await asyncio.sleep(RETRY)
        state.watch = slice_watch(
            api, state.version, kubernetes.node_name, changed=changed, failed=lambda kind: failed("dra", kind)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(state.watch.run())
            while True:
                if await admin.learn():
                    changed()
                await asyncio.sleep(kubernetes.poll)

    source = DraSource(lambda: resources.held, rules, state.slices, admin, lambda: state.told)
    apis = parts.apis if api in parts.apis else (*parts.apis, api)
    return msgspec.structs.replace(parts, sources=(*parts.sources, source), tasks=(*parts.tasks, run), apis=apis)


class _DraState:
    """What is known of the API's resource group, once anything asks for it."""

    def __init__(self) -> None:
        self.version = ""
        self.watch: Watch[Slice] | None = None
        self.status = Status(up=True, hint="no container holds a device of Dynamic Resource Allocation")

    @property
    def told(self) -> Status:
        return self.watch.status if self.watch is not None else self.status

    def slices(self) -> Iterable[Slice]:
        return self.watch.objects.values() if self.watch is not None else ()


def _with_slurm(
    parts: Parts,
    config: Config,
    catalogues: Sequence[Catalogue],
    details: JobDetails | None,
    changed: Callable[[], None],
    failed: Failed,
) -> Parts:
    slurm, paths = config.attribution.slurm, config.paths.host
    tables = [catalogue.collector.attribution for catalogue in catalogues]
    lines = [*slurm.job_directories, *(expand(path, paths) for table in tables for path in table.job_directories)]
    objects = [*slurm.json_directories, *(expand(path, paths) for table in tables for path in table.json_directories)]
    there = any(is_folder(path) for path in (*lines, *objects))
    if slurm.enabled is False or (slurm.enabled == "auto" and not there):
        return parts
    source = SlurmSource(
        slurm,
        lines,
        objects,
        paths.proc,
        changed=changed,
        failed=lambda kind: failed("slurm", kind),
        details=details,
    )
    return msgspec.structs.replace(parts, sources=(*parts.sources, source), tasks=(*parts.tasks, source.run))
