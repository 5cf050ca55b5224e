"""docs/alerts.md: when each alert fires, and for which vendors it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from alerts.model import Alert, Group, Record
from dashboards.coverage import Told, built_in, same_number, silent
from exporter.docs.text import code, link, page, prose, table

PAGE: Final = "docs/alerts.md"
TITLES: Final[Mapping[str, str]] = {
    "accel-presence": "Devices that are gone or have failed",
    "accel-faults": "Faults",
    "accel-memory": "Memory errors",
    "accel-thermal": "Heat and power",
    "accel-links": "Links",
    "accel-usage": "Use",
    "accel-agents": "The agents",
}
INTRODUCTION: Final = """\
<!-- Made from alerts/ by `python -m alerts` (`make dashboards`). Do not edit. -->
# Alerts and recording rules

Three Prometheus rule files on the common schema, so that each rule serves every vendor:

| file | for |
|---|---|
| [alerts/alerts.yaml](../alerts/alerts.yaml) | alerts |
| [alerts/recording.yaml](../alerts/recording.yaml) | sums and averages by device, node, class and tenant |
| [alerts/openshift-accelerator.yaml](../alerts/openshift-accelerator.yaml) | names that OpenShift asks for |

The first two do not need each other. Name them under `rule_files` of Prometheus' configuration.

**Texts.** Summary and description name the device, its node, and the workloads on it. The workloads are asked of
Prometheus when the alert fires, so that shared devices and `attribution.mode: join` are covered. Faults are named by
the vendors' tables.

**Severities.** *critical*: wakes somebody, for work is being lost or results may be wrong. *warning*: somebody looks
within the day. *info*: nobody is woken; for owners of workloads and for planning.

**Actions.** The label `action` says what to do first, so that a robot can: `restart_workload`, `reset_device`, `drain`,
`reboot_node`, `replace`, `recover_fabric` as in `accel_recovery_action`; `investigate`, `fix_agent`, `tell_owner`
(of the workload), `none`. Of faults it is the one that the vendor's fault table gives to the code.

**Events.** Faults are found by the time of their last event, not by a rate: a rate misses the first event of a code,
and a gauge hides that one came again. Counters are read by their increase, which survives resets; states by level.

**Silent rules.** A vendor that does not tell a quantity has no series of it, and a rule on it can never fire there. The
last column names the collectors for which that is so, by their catalogues: no news from them is no good news.

**One trouble, one call.** One failing device fires several: a lost one often had a fatal fault and memory errors
before. [deploy/prometheus/alertmanager.yaml](../deploy/prometheus/alertmanager.yaml) is an example for Alertmanager:
the worst alert of a device holds back its others, an agent that cannot be reached all of its node, and a collector
that is down its consequences. Put your receivers in. What belongs to a node is known by the label `node` of the target:
the chart and [deploy/prometheus/kubernetes.yaml](../deploy/prometheus/kubernetes.yaml) give it, elsewhere add it to the
scrape job.

## Runbooks

Each alert has a page in [docs/runbooks](runbooks): what it means, what to do, the vendors' commands, the expression.
`runbook_url` is its path in this repository. To make it a link that can be clicked:

1. Serve the folder `docs/runbooks` where those on call can read it. A mirror of this repository on your Git server
   does: its view of the folder, for example `https://git.example.com/monitoring/accel-exporter/blob/main/docs/runbooks/`,
   shows the pages with their tables. Pages of your own under the same names (`AccelDeviceLost.md`) work as well.
2. With the chart: `prometheusRule.runbookBaseUrl` is that address.
3. Without: `make rules ARGS='--runbook-base https://git.example.com/…/docs/runbooks/ --output my-alerts.yaml'` writes
   the alerts with that address to a file of yours, which you load instead of alerts.yaml. Nothing else is changed.
"""
TRY: Final = """\
## Try it

    accel-exporter serve --simulate nvidia=2 --simulate-scenario failing

shows two devices that fail again and again, in rounds of ten minutes. Minutes and seconds from the start on:
"""
COURSE: Final = (
    ("0:00", "works", ""),
    ("1:30", "has correctable memory errors, and a fault", "AccelFaultDegraded at once"),
    ("2:00", "gets hot and slows down", "AccelThrottledThermal at 9:00"),
    ("5:00", "has a fatal fault and an uncorrectable error, and hangs", "AccelFaultFatal at once"),
    ("", "", "AccelDeviceFailed, AccelMemoryUncorrectableErrors at 6:00"),
    ("6:00", "is lost", "AccelDeviceLost at 8:00"),
    ("10:00", "is back", "AccelLinkErrors, AccelPcieErrors; at 17:00 AccelMemoryCorrectableErrors"),
)
"""What a simulated device does, and what was seen to fire."""
TRIED: Final = """\
Prometheus needs the rules and a scrape job for it (`prometheus.yaml`):

```yaml
global: {scrape_interval: 15s, evaluation_interval: 15s}
rule_files: [alerts/alerts.yaml]
scrape_configs:
  - job_name: accel-exporter
    honor_labels: true
    params: {schema: [common]}
    static_configs: [{targets: ["localhost:9859"]}]
alerting:
  alertmanagers: [{static_configs: [{targets: ["localhost:9093"]}]}]
```

Start `prometheus --config.file prometheus.yaml`: its page *Alerts* shows them come. Start
`alertmanager --config.file deploy/prometheus/alertmanager.yaml` (Debian: `prometheus-alertmanager`), and look at
`http://localhost:9093` or `amtool --alertmanager.url http://localhost:9093 alert query`, which leaves out what is held
back, and with `--inhibited` shows that alone: one hears AccelFaultDegraded, then AccelFaultFatal alone, then
AccelDeviceLost alone. The rounds go on: later ones meet alerts of earlier ones. `--simulate amd=2` shows another
vendor's.
"""
OPENSHIFT: Final = """\
Consoles on OpenShift ask for seven names that vendors' operators record there too, with whatever unit the vendor's
exporter happens to have: percent, MiB, MHz, milliwatts. This file records them in the units that the names say. Load it
only where no operator records them, or there will be two values of each.
"""
RECORDED: Final = """\
All are evaluated every minute. Dashboards and alerts do not need them; they are for months at a time:

- device-hours of a tenant in 30 days: `sum_over_time(tenant:accel_allocation_info:share_sum[30d]) / 60`
- joules of a tenant in 30 days: `sum_over_time(tenant:accel_energy_joules:rate5m[30d]) * 60`
- idle share of a tenant: `sum_over_time(tenant:accel_allocation_info:idle_share_sum[30d]) /
  sum_over_time(tenant:accel_allocation_info:share_sum[30d])`

A name tells the level, the metric, and what was made of it.
"""


def pages(alerts: Sequence[Group], recording: Sequence[Group], openshift: Sequence[Group]) -> dict[str, str]:
    """Path from the repository's root → text."""
    among = built_in()
    parts = [INTRODUCTION, TRY, table(("after", "the device", "fires"), COURSE), TRIED]
    for group in alerts:
        parts += [f"## {TITLES[group.name]}", _alerts(group, among)]
    parts += ["## Recording rules", RECORDED]
    for group in recording:
        parts += [f"### {group.name}", _records(group)]
    parts += ["## OpenShift's names", OPENSHIFT, *(_records(group) for group in openshift)]
    return {PAGE: page(*parts)}


def mute(alert: Alert, among: Mapping[str, Told]) -> list[str]:
    """Collectors for whose devices the alert can never fire."""
    same = [name for name, of in among.items() if same_number(of, alert.differ)]
    return sorted({*silent([alert.expr], among), *same})


def _alerts(group: Group, among: Mapping[str, Told]) -> str:
    return table(
        ("alert", "severity", "after", "action", "fires when", "silent for"),
        [
            (
                link(alert.name, alert.runbook.removeprefix("docs/")),
                alert.severity,
                alert.wait or "at once",
                code(alert.action) if alert.action else "the fault's",
                prose(alert.when).replace("\\`", "`"),
                ", ".join(mute(alert, among)) or "nobody",
            )
            for alert in group.rules
            if isinstance(alert, Alert)
        ],
    )


def _records(group: Group) -> str:
    rows = [
        (code(rule.name), prose(rule.meaning).replace("\\`", "`")) for rule in group.rules if isinstance(rule, Record)
    ]
    return table(("series", "meaning"), rows)
