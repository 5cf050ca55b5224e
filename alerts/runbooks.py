"""The lower part of each runbook: commands by vendor, fault codes, and queries. The upper part is written by hand."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import promql_parser as promql

from alerts.codes import built_in, of_severity
from alerts.model import Alert, Group, pretty
from dashboards.coverage import selectors
from dashboards.files import ROOT
from exporter.catalogue import Catalogue
from exporter.docs.text import code, link, page, prose, table
from exporter.schema import METRICS

BEGIN: Final = "<!-- From here on made by `make dashboards` from alerts/. Do not edit. -->"
TABLE: Final = Path(__file__).parent / "vendors.toml"
LOOK: Final[Mapping[str, str]] = {
    "accel-memory": "memory", "accel-thermal": "heat", "accel-links": "links", "AccelPowerAtLimit": "power",
    "AccelThrottledPowerBrake": "power", "AccelPcieErrors": "pcie", "AccelPcieLinkNarrow": "pcie",
}  # fmt: skip
"""What of the vendor's table belongs to an alert, by its name or its group's."""
CODES: Final[Mapping[str, str]] = {"AccelFaultFatal": "fatal", "AccelFaultDegraded": "degraded"}
DRIVERS: Final = ("AccelCollectorDown", "AccelCollectorRestarting", "AccelCollectorSlow")
"""Alerts on agents that a driver may cause."""
WITHOUT_COMMANDS: Final = ("accel-usage",)
"""Groups in which the hardware is well."""
ACTIONS: Final[Mapping[str, str]] = {
    "restart_workload": "the owner restarts the workload",
    "reset_device": "drain the device, reset it",
    "drain": "drain the device",
    "reboot_node": "drain the node, reboot it",
    "replace": "drain the device, have it replaced",
    "recover_fabric": "restart the fabric's manager",
}
UNNAMED: Final[Mapping[str, str]] = {
    "fatal": "not named: drain the device; reboot the node; if the code comes again, have it replaced",
    "degraded": "not named: look whether the workload goes on; drain the device if the code comes again",
}
SUBJECTS: Final[Mapping[str, Mapping[str, str]]] = {
    "device": {"uuid": "UUID"},
    "vendor": {"node": "NODE", "vendor": "VENDOR"},
    "agent": {"instance": "INSTANCE"},
}
"""Labels that choose what an alert is about, with what stands for their values."""
OF_DEVICES: Final = (
    'accel_health_state{uuid="UUID"} == 1',
    'max by (code, severity) (max_over_time(accel_fault_code_total{uuid="UUID"}[7d]))',
    'accel_allocation_info{uuid="UUID"}',
)
"""Its health, its fault codes of a week with how often each came, and who has it."""


PLACES: Final = (
    "Type them on the node, as root. Put the device's PCI address in the place of *BDF* and its index in the place of "
    "*N*: both are in `accel_info`."
)
HELD: Final = (
    "A reset waits for all programs that hold the device. The agent is one of them. On a host let it go by "
    "`curl -X POST http://127.0.0.1:9859/-/release`, in Kubernetes by `kill -USR1 PID` on the node, with the agent's "
    "PID; both need `admin.release`. Without it: on a host `systemctl stop accel-exporter`; in Kubernetes take away "
    "the node's label that the DaemonSet selects (`kubectl get daemonset --namespace NAMESPACE -o yaml`), and give it "
    "back afterwards."
)


class Commands(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vendor's part of vendors.toml."""

    sources: tuple[str, ...]
    list: str
    driver: str
    state: str
    reset: str
    log: str = ""
    memory: str = ""
    heat: str = ""
    power: str = ""
    links: str = ""
    pcie: str = ""


def commands() -> dict[str, Commands]:
    return msgspec.convert(tomllib.loads(TABLE.read_text()), dict[str, Commands])


def runbooks(groups: Sequence[Group], root: Path = ROOT) -> dict[str, str]:
    """Path from the repository's root → text of each page."""
    return {
        alert.runbook: page(_by_hand(root / alert.runbook), BEGIN, *_made(alert, group))
        for group in groups
        for alert in group.rules
        if isinstance(alert, Alert)
    }


def _by_hand(path: Path) -> str:
    if not path.exists():
        raise SystemExit(
            f"{path} is missing: write what the alert means, what to look at and what to do, as in the others"
        )
    return path.read_text().partition(BEGIN)[0].rstrip("\n")


def _made(alert: Alert, group: Group) -> Iterator[str]:
    vendors = list(built_in())
    if alert.subject != "agent" and group.name not in WITHOUT_COMMANDS:
        yield from _commands(vendors, LOOK.get(alert.name, LOOK.get(group.name, "")))
    if alert.name in DRIVERS:
        yield from _drivers(vendors)
    if severity := CODES.get(alert.name):
        yield from _codes(vendors, severity)
    yield from _queries(alert)
    yield (
        f"How long it waits, its action, and vendors for which it is silent: {link('alerts', '../alerts.md')}. "
        f"All pages: {link('runbooks', '../alerts.md#runbooks')}."
    )


def on_the_bus(catalogue: Catalogue) -> str:
    """How the vendor's devices are found on the bus, by what the agent itself looks for."""
    signs = catalogue.collector.detect.pci
    shown = code(f"lspci -nn -d {signs[0].vendor.removeprefix('0x')}:")
    devices = ", ".join(device.removeprefix("0x") for sign in signs for device in sign.devices)
    return f"{shown}: devices {devices}" if devices else shown


def _commands(vendors: Iterable[tuple[str, Catalogue]], look: str) -> Iterator[str]:
    known = commands()
    rows = []
    for name, catalogue in vendors:
        typed = known.get(name)
        page_of = link(catalogue.collector.title, f"../vendors/{name}.md#health")
        if typed is None:
            rows.append((page_of, "see its page", on_the_bus(catalogue), "", ""))
            continue
        rows.append((page_of, typed.list, on_the_bus(catalogue), getattr(typed, look, "") or typed.state, typed.reset))
    yield "## Commands"
    yield PLACES
    yield table(("vendor", "list devices", "on the PCI bus", "look at", "reset"), rows)
    yield HELD
    yield from _kernel(known)


def _drivers(vendors: Iterable[tuple[str, Catalogue]]) -> Iterator[str]:
    known = commands()
    yield "## Commands"
    yield "Type them on the node, as root. An error in the first column: the driver is not loaded. No answer: it hangs."
    yield table(
        ("vendor", "is the driver loaded", "does it answer", "on the PCI bus"),
        [
            (
                link(catalogue.collector.title, f"../vendors/{name}.md#checks"),
                known[name].driver if name in known else "see its page",
                known[name].list if name in known else "",
                on_the_bus(catalogue),
            )
            for name, catalogue in vendors
        ],
    )
    yield from _kernel(known)


def _kernel(known: Mapping[str, Commands]) -> Iterator[str]:
    lines = "|".join(sorted((typed.log for typed in known.values() if typed.log), key=str.casefold))
    yield "What the kernel says of the devices:"
    yield _block("sh", f"dmesg -T | grep -E '{lines}'")


def _codes(vendors: Iterable[tuple[str, Catalogue]], severity: str) -> Iterator[str]:
    yield "## Codes"
    yield f"Codes of severity {severity}, by the vendors' fault tables."
    yield table(
        ("vendor", "code", "name", "class", "do first"),
        [
            (
                link(catalogue.collector.vendor, f"../vendors/{name}.md#faults"),
                code(fault.code),
                prose(fault.name),
                fault.fault_class,
                f"{code(fault.action)}: {ACTIONS[fault.action]}" if fault.action in ACTIONS else UNNAMED[severity],
            )
            for name, catalogue in vendors
            for fault in of_severity(catalogue, severity)
        ],
    )


def _queries(alert: Alert) -> Iterator[str]:
    words = " and ".join(f"*{value}*" for value in SUBJECTS[alert.subject].values())
    yield "## Queries"
    yield "The alert fires while this has a result:"
    yield _block("promql", pretty(alert.expr))
    yield f"What it was made of, over time. Put the alert's labels in the place of {words}:"
    yield _block("promql", "\n".join(history(alert)))


def history(alert: Alert) -> list[str]:
    """Queries for the past of what the alert is about: each series of its expression, and of devices some more."""
    chosen = SUBJECTS[alert.subject]
    found: dict[str, None] = {}
    for selector in selectors(promql.parse(alert.expr)):
        matchers = [f"{name}{_operator(each)}{_quoted(each.value)}" for each in selector.matchers.matchers
                    for name in (each.name,) if name not in chosen]  # fmt: skip
        matchers += [f"{name}={_quoted(value)}" for name, value in chosen.items()]
        series = f"{selector.name}{{{','.join(matchers)}}}"
        found[f"increase({series}[1h])" if _counts(selector.name) else series] = None
    return [*found, *(each for each in OF_DEVICES if alert.subject == "device" and each not in found)]


def _counts(name: str | None) -> bool:
    known = METRICS.get(name or "")
    return known.type == "counter" if known else (name or "").endswith(("_total", "_bucket"))


def _operator(matcher: Any) -> str:
    return {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}[str(matcher.op).rpartition(".")[2]]


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
