"""Devices of Dynamic Resource Allocation: (driver, pool, device) → what the ResourceSlices say the device is."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from exporter.attribution.api import Api, ApiError, Expired, decoded
from exporter.attribution.claims import Claim, SourceName, Status
from exporter.attribution.held import DraDevice, Held
from exporter.attribution.table import DraRule
from exporter.attribution.watch import Object, Watch

GROUP: Final = "/apis/resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""The best first."""
MAX_CLAIMS: Final = 4096
RETRY: Final = 60.0
"""Seconds after which claims are asked for again that were not told."""


class _Value(msgspec.Struct, frozen=True):
    string: str | None = None
    number: int | None = msgspec.field(name="int", default=None)
    version: str | None = None

    def text(self) -> str:
        found = next((value for value in (self.string, self.number, self.version) if value is not None), "")
        return str(found)


class _Basic(msgspec.Struct, frozen=True):
    attributes: dict[str, _Value] | None = None


class _Device(msgspec.Struct, frozen=True):
    name: str = ""
    attributes: dict[str, _Value] | None = None
    basic: _Basic | None = None
    """Of v1beta1."""


class _Pool(msgspec.Struct, frozen=True):
    name: str = ""
    generation: int = 0
    slices: int = msgspec.field(name="resourceSliceCount", default=1)


class _SliceSpec(msgspec.Struct, frozen=True):
    driver: str = ""
    pool: _Pool = _Pool()
    devices: list[_Device] | None = None


class Slice(Object, frozen=True):
    """A ResourceSlice."""

    spec: _SliceSpec = _SliceSpec()


class _Result(msgspec.Struct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin: bool | None = msgspec.field(name="adminAccess", default=None)


class _Devices(msgspec.Struct, frozen=True):
    results: list[_Result] | None = None


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Devices = _Devices()


class _ClaimStatus(msgspec.Struct, frozen=True):
    allocation: _Allocation | None = None


class _ResourceClaim(Object, frozen=True):
    status: _ClaimStatus = _ClaimStatus()


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


class _ApiGroup(msgspec.Struct, frozen=True):
    versions: list[_Version] | None = None


_CLAIM: Final = msgspec.json.Decoder(_ResourceClaim)
_GROUP: Final = msgspec.json.Decoder(_ApiGroup)

Attributes = Mapping[str, str]
DeviceName = tuple[str, str, str]
"""driver, pool, device"""


def index(slices: Iterable[Slice], before: Mapping[DeviceName, Attributes] = {}) -> dict[DeviceName, Attributes]:
    """The attributes of all devices: of each pool those of the highest generation that is complete.

    While a driver writes a new generation over the old one, none is: what was known ``before`` of the pool stays.
    """
    pools: dict[tuple[str, str], dict[int, list[Slice]]] = defaultdict(lambda: defaultdict(list))
    for item in slices:
        pools[item.spec.driver, item.spec.pool.name][item.spec.pool.generation].append(item)
    found: dict[DeviceName, Attributes] = {}
    for (driver, pool), generations in pools.items():
        complete = [g for g, members in generations.items() if len(members) >= members[0].spec.pool.slices]
        if not complete:
            found |= {name: told for name, told in before.items() if name[:2] == (driver, pool)}
            continue
        for member in generations[max(complete)]:
            for device in member.spec.devices or ():
                found[driver, pool, device.name] = _attributes(driver, device)
    return found


def _attributes(driver: str, device: _Device) -> Attributes:
    """By their names; one of the driver's own domain also without it."""
    told = device.attributes or (device.basic.attributes if device.basic else None) or {}
    found = {name: value.text() for name, value in told.items()}
    return {**{name.removeprefix(f"{driver}/"): value for name, value in found.items()}, **found}


def names_of(device: DraDevice, rule: DraRule, attributes: Attributes) -> dict[str, str] | None:
    """Names by which a collector knows the device; None for what is no device, such as a channel."""
    if any(re.fullmatch(pattern, device.device) for pattern in rule.skip):
        return None
    told = {fact: attributes[name] for name, fact in rule.attributes.items() if attributes.get(name)}
    if told:
        return told
    for pattern in rule.names:
        match = re.fullmatch(pattern, device.device)
        if match is not None:
            return {name: value for name, value in match.groupdict().items() if value is not None}
    return {}


def raw_of(rule: DraRule, attributes: Attributes) -> dict[str, str]:
    """What the vendor's own exporter tells of such a device beyond its claim."""
    if any(attributes.get(name) != value for name, value in rule.raw_where.items()):
        return {}
    return {label: attributes[name] for label, name in rule.raw.items() if attributes.get(name)}


class DraSource:
    """Claims of containers that hold devices of DRA. Watches slices only while some container does."""

    name: SourceName = "dra"

    def __init__(
        self,
        held: Callable[[], Sequence[Held]],
        rules: Mapping[str, tuple[str, DraRule]],
        slices: Callable[[], Iterable[Slice]],
        admin: Callable[[DraDevice], bool],
        status: Callable[[], Status],
    ) -> None:
        """``rules``: driver → vendor and rule. ``admin``: whether a claim has administrative access, as monitors'."""
        self._held, self._rules, self._slices, self._admin, self._told = held, rules, slices, admin, status
        self._known: dict[DeviceName, Attributes] = {}

    @property
    def status(self) -> Status:
        return self._told()

    def claims(self) -> Sequence[Claim]:
        holders = [holder for holder in self._held() if holder.dra]
        self._known = index(self._slices(), self._known) if holders else {}
        return [claim for holder in holders for claim in self._of(holder)]

    def _of(self, holder: Held) -> Iterator[Claim]:
        for device in holder.dra:
            vendor, rule = self._rules.get(device.driver, ("", None))
            if rule is None or self._admin(device):
                continue
            attributes = self._known.get((device.driver, device.pool, device.device), {})
            names = names_of(device, rule, attributes)
            if names is None:
                continue
            yield Claim(
                source="dra",
                resource=device.driver,
                device_id=device.device,
                names=names,
                vendor=vendor,
                share=device.share,
                namespace=holder.namespace,
                pod=holder.pod,
                container=holder.container,
                raw={
                    "dra_claim_name": device.claim_name,
                    "dra_claim_namespace": device.claim_namespace,
                    "dra_driver_name": device.driver,
                    "dra_pool_name": device.pool,
                    "dra_device_name": device.device,
                    **raw_of(rule, attributes),
                },
            )


class AdminClaims:
    """Which claims have administrative access. Asked once for each; until it is known a claim counts as ordinary."""

    def __init__(self, api: Api, version: Callable[[], str]) -> None:
        self._api, self._version = api, version
        self._known: dict[tuple[str, str], frozenset[DeviceName]] = {}
        self._seen: dict[tuple[str, str], None] = {}
        """Those that were asked after since the last ``learn``."""
        self._not_before = float("-inf")

    def __call__(self, device: DraDevice) -> bool:
        name = (device.claim_namespace, device.claim_name)
        if len(self._seen) < MAX_CLAIMS:
            self._seen[name] = None
        return (device.driver, device.pool, device.device) in self._known.get(name, ())

    async def learn(self) -> bool:
        """Ask for claims that are not known yet. Returns whether any has administrative access.

        Without the permission monitors with such claims are named in the configuration (own_pods).
        """
        if time.monotonic() < self._not_before:
            return False
        seen, self._seen = self._seen, {}
        if seen:
            self._known = {name: admin for name, admin in self._known.items() if name in seen}
        news = False
        for name in seen.keys() - self._known.keys():
            try:
                self._known[name] = await self._ask(*name)
            except (ApiError, Expired):
                self._not_before = time.monotonic() + RETRY
                break
            news = news or bool(self._known[name])
        return news

    async def _ask(self, namespace: str, name: str) -> frozenset[DeviceName]:
        """Devices that a claim has administrative access to; none of a claim that is gone. Raises ApiError, Expired."""
        path = f"{GROUP}/{self._version()}/namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
        try:
            claim = decoded(_CLAIM, await self._api.get(path, {}), path)
        except ApiError as error:
            if error.kind == "not_found":
                return frozenset()
            raise
        results = (claim.status.allocation or _Allocation()).devices.results or ()
        return frozenset((result.driver, result.pool, result.device) for result in results if result.admin)


async def served_version(api: Api) -> str:
    """The best version of resource.k8s.io that the server has; empty if it has none. Raises ApiError."""
    try:
        found = decoded(_GROUP, await api.get(GROUP, {}), GROUP)
    except Expired as error:
        raise ApiError("answer", f"{GROUP}: HTTP 410") from error
    except ApiError as error:
        if error.kind == "not_found":
            return ""
        raise
    served = {item.version for item in found.versions or ()}
    return next((version for version in VERSIONS if version in served), "")


def slice_watch(
    api: Api, version: str, node: str, *, changed: Callable[[], None], failed: Callable[[str], None]
) -> Watch[Slice]:
    """The node's ResourceSlices."""
    path = f"{GROUP}/{version}/resourceslices"
    return Watch(api, path, {"fieldSelector": f"spec.nodeName={node}"}, Slice, changed=changed, failed=failed)
