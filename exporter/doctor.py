"""``accel-exporter doctor``: what was looked for, what was found, what is missing, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Literal

import msgspec

from collectors.base import HostPaths
from exporter.agent import Agent
from exporter.assemble import timing
from exporter.catalogue import Catalogue, DoctorCheck
from exporter.detection import expand, glob, pci_devices, present, signs
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
    reports = asyncio.run(examine(program))
    if output == "json":
        json.dump({"node": program.config.node, "collectors": msgspec.to_builtins(reports)}, sys.stdout, indent=1)
        print()
    else:
        print(_text(program, reports))
    return int(any(finding.verdict == "problem" for report in reports for finding in report.findings))


async def examine(program: Program) -> list[VendorReport]:
    """Look at the host, then let each collector try."""
    paths = program.config.paths.host
    bus = await asyncio.to_thread(pci_devices, paths.sys)
    longest = timing(program.config).startup_deadline
    try:
        async with asyncio.timeout(longest):
            agent = (await reach(program, 0.0, SelfMetrics())).agent
    except TimeoutError:
        agent = Agent(program.config, (), SelfMetrics())
    runners = {runner.spec.name: runner for runner in agent.runners}
    reports = []
    for name, (_, catalogue) in sorted(program.catalogues.items()):
        found = list(signs(catalogue.collector.detect, paths, bus))
        count = present(catalogue.collector.detect, bus)
        reports.append(_report(name, catalogue, paths, found, count, runners.get(name), simulated=program.simulated))
    return reports


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
        findings.append(Finding("note", "the collector does not run", f"set collectors.{name}.enabled to auto"))
    elif runner.state == "running":
        findings.append(Finding("ok", f"the collector runs and reads {devices} devices and parts"))
        findings += _missing(count, runner)
    elif found:
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
    troubles = {f"{error.kind}: {error.detail}" for sample in snapshot.groups.values() for error in sample.errors}
    findings += [Finding("note", trouble) for trouble in sorted(troubles)[:20]]
    findings += [
        Finding("problem", f"device {snapshot.devices[lost].index or '?'} ({snapshot.devices[lost].uuid}) does not answer")
        for lost in sorted(snapshot.lost)
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


def _text(program: Program, reports: Sequence[VendorReport]) -> str:
    lines = [f"node {program.config.node}", ""]
    for report in reports:
        lines.append(f"{report.title} ({report.collector}): {report.state}, {report.devices} devices and parts")
        for finding in report.findings:
            lines.append(f"  {MARKS[finding.verdict]}  {finding.what}")
            if finding.advice and finding.verdict != "ok":
                lines.append(f"        → {finding.advice}")
        lines.append("")
    problems = sum(finding.verdict == "problem" for report in reports for finding in report.findings)
    lines.append(f"{problems} problems" if problems != 1 else "1 problem")
    return "\n".join(lines)
