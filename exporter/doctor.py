"""``accel-exporter doctor``: what was looked for, what was found, what is missing, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal

import msgspec

from collectors.base import HostPaths
from exporter.agent import Agent
from exporter.assemble import timing
from exporter.attribution.claims import Status
from exporter.catalogue import Catalogue, DoctorCheck
from exporter.config.otlp import receivers
from exporter.config.paths import expand
from exporter.detection import glob, pci_devices, present, signs
from exporter.once import reach
from exporter.program import Program
from exporter.selfmetrics import SelfMetrics
from exporter.supervisor import Runner

Verdict = Literal["ok", "note", "problem"]
MARKS: dict[Verdict, str] = {"ok": "ok  ", "note": "note", "problem": "FAIL"}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    verdict: Verdict
    what: str
    advice: str = ""


class VendorReport(msgspec.Struct, frozen=True, kw_only=True):
    collector: str
    title: str
    state: str
    devices: int
    findings: tuple[Finding, ...]


def doctor(program: Program, output: Literal["text", "json"]) -> int:
    """Print a report. Exit code 1 if anything of a vendor that is here keeps it from being read."""
    reports, attribution = asyncio.run(examine(program))
    pushed = _pushed(program)
    if output == "json":
        parts = {"collectors": reports, "attribution": attribution, "otlp": pushed}
        found = {name: msgspec.to_builtins(part) for name, part in parts.items()}
        json.dump({"node": program.config.node, **found}, sys.stdout, indent=1)
        print()
    else:
        print(_text(program, reports, attribution, pushed))
    findings = [*attribution, *pushed, *(finding for report in reports for finding in report.findings)]
    return int(any(finding.verdict == "problem" for finding in findings))


async def examine(program: Program) -> tuple[list[VendorReport], list[Finding]]:
    """Look at the host, then let each collector try and each source of attribution answer."""
    paths = program.config.paths.host
    bus = await asyncio.to_thread(pci_devices, paths.sys)
    longest = timing(program.config).startup_deadline
    try:
        async with asyncio.timeout(longest):
            # Time for the sources of attribution to answer once.
            agent = (await reach(program, 1.0, SelfMetrics())).agent
    except TimeoutError:
        agent = Agent(program.config, (), SelfMetrics())
    runners = {runner.spec.name: runner for runner in agent.runners}
    reports = []
    for name, (_, catalogue) in sorted(program.catalogues.items()):
        found = list(signs(catalogue.collector.detect, paths, bus))
        count = present(catalogue.collector.detect, bus)
        reports.append(_report(name, catalogue, paths, found, count, runners.get(name), simulated=program.simulated))
    return reports, _attribution(agent)


def _attribution(agent: Agent) -> list[Finding]:
    """How the sources are, which ids no collector knows, and which devices nobody holds."""
    if not agent.attribution.active:
        advice = "mount the kubelet's pod-resources directory, or set attribution in the configuration"
        return [Finding("note", "there is no source that tells who works on a device", advice)]
    findings = [_source(name, status) for name, status in agent.attribution.statuses().items()]
    joined = agent.attribution.joined
    if joined is not None:
        findings += [
            Finding(
                "problem",
                f"{count} ids of {resource} match no device",
                "the device plugin names devices in a way that the vendor's table lacks: please report an id",
            )
            for resource, count in sorted(joined.unmatched.items())
        ]
        findings += [
            Finding("note", f"{count} devices or parts have no workload ({reason})")
            for reason, count in joined.unattributed.items()
            if count
        ]
    return findings


def _source(name: str, status: Status) -> Finding:
    if not status.up:
        return Finding("problem", f"{name} does not answer", status.hint)
    return Finding("note", f"{name}: {status.hint}") if status.hint else Finding("ok", f"{name} answers")


def _pushed(program: Program) -> list[Finding]:
    """Whether the receivers of OTLP can be connected to: what they say to a request, the agent's own metrics tell."""
    endpoints = receivers(program.config.otlp)
    if not endpoints:
        return []
    from exporter.otlp.reach import reach

    findings = []
    for found in reach(endpoints):
        way = f"{found.name} through the proxy {found.proxy}" if found.proxy else found.name
        if not found.trouble:
            findings.append(Finding("ok", f"{way} can be connected to"))
            continue
        advice = (
            "correct otlp.proxy, or HTTPS_PROXY and NO_PROXY, or start the proxy"
            if found.proxy
            else "correct the endpoint in otlp, start the receiver, or let this host's firewall, or the pod's "
            "NetworkPolicy, through to it"
        )
        findings.append(Finding("problem", f"{way} cannot be connected to: {found.trouble}", advice))
    if any(endpoint.protocol == "grpc" for endpoint in endpoints) and find_spec("grpc") is None:
        findings.append(Finding("problem", "grpcio is not installed", "pip install grpcio, or use http/protobuf"))
    return findings


def _report(
    name: str,
    catalogue: Catalogue,
    paths: HostPaths,
    found: Sequence[str],
    count: int | None,
    runner: Runner | None,
    *,
    simulated: bool,
) -> VendorReport:
    findings: list[Finding] = []
    state = runner.state if runner is not None else "off"
    devices = len(runner.snapshot.devices) if runner is not None and runner.snapshot is not None else 0
    if simulated:
        findings.append(Finding("note", "the devices are simulated; the host was not asked"))
    elif not found:
        findings.append(Finding("ok", "no sign of this vendor on the host"))
    else:
        findings += [Finding("ok", f"found {sign}") for sign in found]
        findings += [_check(check, paths) for check in catalogue.collector.doctor]
    if runner is None:
        advice = "" if simulated else f"set collectors.{name}.enabled to auto"
        findings.append(Finding("note", "the collector does not run", advice))
    elif runner.state == "running":
        way = f" through {runner.snapshot.source}" if runner.snapshot is not None and runner.snapshot.source else ""
        findings.append(Finding("ok", f"the collector runs and reads {devices} devices and parts{way}"))
        findings += _missing(count, runner)
    elif found or not runner.spec.detect:
        findings.append(Finding("problem", f"the collector is in the state {runner.state}", runner.hint))
    return VendorReport(
        collector=name, title=catalogue.collector.title, state=state, devices=devices, findings=tuple(findings)
    )


def _missing(count: int | None, runner: Runner) -> list[Finding]:
    snapshot = runner.snapshot
    if snapshot is None:
        return []
    wholes = sum(not device.partition for device in snapshot.devices)
    findings = []
    if count is not None and count > wholes and not snapshot.simulated:
        findings.append(
            Finding(
                "problem",
                f"{count} devices are on the PCI bus and the vendor's library gives {wholes}",
                "a device fell off, is passed through to a guest, or may not be opened by this process",
            )
        )
    findings += [Finding("note", trouble) for trouble in runner.troubles.recent[:20]]
    findings += [
        Finding("problem", f"device {device.index or '?'} ({device.uuid}) does not answer")
        for device in (snapshot.devices[lost] for lost in sorted(snapshot.lost))
    ]
    return findings


def _check(check: DoctorCheck, paths: HostPaths) -> Finding:
    """Whether a path of the host can be used as the collector needs it."""
    pattern = expand(check.path, paths)
    found = glob(pattern)
    verdict: Verdict = "problem" if check.required else "note"
    if not found:
        return Finding(verdict, f"{pattern} is missing: {check.why}", check.fix)
    modes = {"exists": os.F_OK, "read": os.R_OK, "write": os.W_OK}
    refused = [path for path in found if not os.access(path, modes[check.access])]
    if refused:
        return Finding(verdict, f"no permission to {check.access} {refused[0]}: {check.why}", check.fix)
    return Finding("ok", f"{pattern}: {check.why}")


def _text(
    program: Program, reports: Sequence[VendorReport], attribution: Sequence[Finding], pushed: Sequence[Finding]
) -> str:
    lines = [f"node {program.config.node}", ""]
    for report in reports:
        lines.append(f"{report.title} ({report.collector}): {report.state}, {report.devices} devices and parts")
        lines += _lines(report.findings)
    lines += ["Attribution", *_lines(attribution)]
    if pushed:
        lines += ["Receivers of OTLP", *_lines(pushed)]
    findings = [*attribution, *pushed, *(finding for report in reports for finding in report.findings)]
    problems = sum(finding.verdict == "problem" for finding in findings)
    lines.append(f"{problems} problems" if problems != 1 else "1 problem")
    return "\n".join(lines)


def _lines(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for finding in findings:
        lines.append(f"  {MARKS[finding.verdict]}  {_plain(finding.what)}")
        if finding.advice and finding.verdict != "ok":
            lines.append(f"        → {_plain(finding.advice)}")
    return [*lines, ""]


def _plain(text: str) -> str:
    """Without what could steer a terminal or begin a line: servers, drivers and programs are quoted in findings."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
