"""The rule files beside the code: ``python -m alerts`` writes them, ``--check`` compares them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from alerts import openshift, recording
from alerts.agents import AGENTS
from alerts.devices import FAULTS, HEAT, LINKS, MEMORY, PRESENCE
from alerts.model import Alert, Group, text
from alerts.pages import pages
from alerts.usage import USAGE
from dashboards.files import ROOT, report

ALERTS: Final[tuple[Group, ...]] = (PRESENCE, FAULTS, MEMORY, HEAT, LINKS, USAGE, AGENTS)
RECORDING: Final = "alerts/recording.yaml"
OPENSHIFT: Final = "alerts/openshift-accelerator.yaml"
RULES: Final = "alerts/alerts.yaml"


def every_alert() -> list[Alert]:
    return [rule for group in ALERTS for rule in group.rules if isinstance(rule, Alert)]


def wanted(base: str = "") -> dict[str, str]:
    """Path from the repository's root → text. ``base``: what stands before the paths of runbooks."""
    return {
        RECORDING: text("alerts/recording.py", recording.GROUPS, base),
        RULES: text("alerts/", ALERTS, base),
        OPENSHIFT: text("alerts/openshift.py", openshift.GROUPS, base),
        **pages(ALERTS, recording.GROUPS, openshift.GROUPS),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare. Returns 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m alerts", description="Write the Prometheus rules.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    parser.add_argument(
        "--runbook-base", default="", metavar="URL", help="what to put before docs/runbooks/… in runbook_url"
    )
    arguments = parser.parse_args(argv)
    return report(ROOT, wanted(arguments.runbook_base), check=arguments.check)
