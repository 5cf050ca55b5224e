"""Alerts on the agents themselves: without them the others are silent."""

from __future__ import annotations

from typing import Final

from alerts import conditions as c
from alerts.model import AGENT, COUNT, Alert, Group
from dashboards import promql as q

_ON: Final = q.on(c.COLLECTOR)
_ABSENT: Final = "starting|no_device|no_library|no_driver"
"""States of a vendor that may just not be there."""
_UP: Final = "accel_exporter_collector_up"
_STATE: Final = "accel_exporter_collector_state"
_DOWN: Final = c.of_collectors(f"{_UP} == 0")
_BROKEN: Final = c.of_collectors(f'{_STATE}{{state!~"{_ABSENT}|running|released"}} == 1')
_WAS_UP: Final = c.of_collectors(f"max_over_time({_UP}[6h]) == 1")
_RELEASED: Final = c.of_collectors(f'{_STATE}{{state="released"}} == 1')
_BUCKETS: Final = f"sum {q.by((*c.COLLECTOR, 'le'))} (rate(accel_exporter_collector_duration_seconds_bucket[10m]))"
_INSTANCE: Final = ("cluster", "job", "instance")
_RELOADED: Final = q.most(_INSTANCE, "accel_exporter_config_reload_success")
_WEB_RELOADED: Final = q.most(_INSTANCE, "accel_exporter_web_config_reload_success")
_NOT_AFTER: Final = q.most(_INSTANCE, "accel_exporter_web_certificate_not_after_timestamp_seconds")
_NOT_BEFORE: Final = q.most(_INSTANCE, "accel_exporter_web_certificate_not_before_timestamp_seconds")
_LEFT: Final = f"({_NOT_AFTER} - time())"
_LAST_QUARTER: Final = f"({_LEFT} < {q.on(_INSTANCE)} ({_NOT_AFTER} - {q.on(_INSTANCE)} {_NOT_BEFORE}) / 4)"
"""Who renews certificates does it earlier, also of those that live for a day."""
_TARGETS: Final = (
    f'up{{job=~".*accel-exporter.*"}} or up and {q.on(_INSTANCE)} last_over_time(accel_exporter_build_info[1d])'
)
_AGENT: Final = ("cluster", "node", "instance")
_UNREACHED: Final = f"({q.most(_AGENT, _TARGETS)} == 0)"
"""Not by job: an agent has two, one for each half, and is missed once, when neither reaches it."""

AGENTS: Final = Group(
    name="accel-agents",
    rules=[
        Alert(
            name="AccelCollectorDown", severity="warning", action="fix_agent", wait="5m", subject="agent",
            expr=f"({_DOWN} and {_ON} ({_BROKEN} or {_WAS_UP})) unless {_ON} {_RELEASED}",
            when="A collector gives no fresh samples: its state says why, or it did within six hours. A vendor that "
            "was "
            "never there does not count, nor does a release on request.",
            summary=f"The collector {{{{ $labels.collector }}}} of {AGENT} is down",
            description="It gives no fresh samples: its devices are not watched. accel_exporter_collector_state says "
            "why.",
        ),
        Alert(
            name="AccelCollectorSlow", severity="warning", action="fix_agent", wait="10m", subject="agent",
            expr=f"histogram_quantile(0.9, {_BUCKETS}) > 5",
            when="One of ten readings of a group of series takes longer than five seconds.",
            summary=f"The collector {{{{ $labels.collector }}}} of {AGENT} is slow",
            description="One of ten readings takes longer than {{ $value | humanizeDuration }}. A driver that becomes "
            "slow often hangs soon.",
        ),
        Alert(
            name="AccelCollectorStale", severity="warning", action="fix_agent", wait="1m", subject="agent",
            expr=f"time() - {c.of_collectors('accel_exporter_collector_last_success_timestamp_seconds')} > 300 "
            f"unless {_ON} {_RELEASED}",
            when="The last sample of a collector is older than five minutes.",
            summary=f"The collector {{{{ $labels.collector }}}} of {AGENT} has stale data",
            description="Its last sample is {{ $value | humanizeDuration }} old. Values have vanished long before.",
        ),
        Alert(
            name="AccelCollectorRestarting", severity="warning", action="fix_agent", wait="5m", subject="agent",
            expr=q.total(c.COLLECTOR, "increase(accel_exporter_collector_restarts_total[1h])") + " > 3",
            when="A collector's worker was restarted more than three times in an hour.",
            summary=f"The collector {{{{ $labels.collector }}}} of {AGENT} keeps restarting",
            description=f"About {COUNT} restarts in the last hour.",
        ),
        Alert(
            name="AccelAttributionDown", severity="warning", action="fix_agent", wait="10m", subject="agent",
            expr=q.most((*_INSTANCE, "source"), "accel_exporter_attribution_up == 0"),
            when="A source of attribution does not answer.",
            summary=f"{AGENT} does not know who uses its devices",
            description="The source {{ $labels.source }} does not answer: new workloads are missing on the series.",
        ),
        Alert(
            name="AccelOtlpDropping", severity="warning", action="fix_agent", wait="5m", subject="agent",
            expr=q.total(_INSTANCE, "increase(accel_exporter_otlp_dropped_total[15m])") + f" > 0 or {q.on(_INSTANCE)} "
            + q.total(_INSTANCE, "increase(accel_exporter_otlp_points_rejected_total[15m])") + " > 0",
            when="Points for the OTLP receiver were dropped or rejected within 15 minutes.",
            summary=f"{AGENT} loses points on the way to its OTLP receiver",
            description=f"About {COUNT} were dropped or rejected in the last 15 minutes.",
        ),
        Alert(
            name="AccelConfigReloadFailed", severity="warning", action="fix_agent", wait="5m", subject="agent",
            expr=f"{_RELOADED} == 0 or {q.on(_INSTANCE)} {_WEB_RELOADED} == 0",
            when="An agent could not read its configuration again, or the web configuration file with its "
            "certificates and users: the old one is in force.",
            summary=f"{AGENT} runs with an old configuration",
            description="The last reading of its configuration, or of its web configuration file, failed. Its log "
            "names the key.",
        ),
        Alert(
            name="AccelCertificateExpiring", severity="warning", action="fix_agent", wait="15m", subject="agent",
            expr=f"{_LEFT} < 7 * 86400 and {q.on(_INSTANCE)} {_LAST_QUARTER}",
            when="The certificate of an agent's own port expires within seven days and is in the last quarter of its "
            "life, or has expired.",
            summary=f"The certificate of {AGENT} expires soon, or has expired",
            description="{{ if gt $value 0.0 }}It expires in {{ $value | humanizeDuration }}{{ else }}It has "
            "expired{{ end }}: then every client that checks it is refused, Prometheus first. What should exchange "
            "it did not.",
        ),
        Alert(
            name="AccelExporterAbsent", severity="critical", action="fix_agent", wait="5m", subject="agent",
            expr=f"{_UNREACHED} or absent(accel_exporter_build_info) unless {q.on(())} {_UNREACHED}",
            when="Prometheus reaches no job's target of an instance that was an agent within a day, or whose job's "
            "name has `accel-exporter` in it; or there is no agent and no such target at all.",
            summary="The agent {{ or $labels.instance `of every node` }} cannot be reached",
            description="Prometheus gets nothing from {{ or $labels.instance `any agent` }}: no other alert of these "
            "rules can fire for it.",
        ),
        Alert(
            name="AccelScrapeFailing", severity="critical", action="fix_agent", wait="10m", subject="agent",
            expr=f"({q.most((*_AGENT, 'job'), _TARGETS)} == 0) unless {q.on(_AGENT)} {_UNREACHED}",
            when="Prometheus reaches an agent by one job and not by another.",
            summary=f"The job {{{{ $labels.job }}}} does not reach {AGENT}, and another does",
            description="If this is the job of the common schema, no other alert of these rules can fire for it; if "
            "it is that of the vendors' own series, their dashboards are empty.",
        ),
    ],
)  # fmt: skip
