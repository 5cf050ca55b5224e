"""The rule files beside the code: ``python -m alerts`` writes them, ``--check`` compares them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from alerts import openshift, recording
from alerts.agents import AGENTS
from alerts.devices import FAULTS, HEAT, LINKS, MEMORY, PRESENCE
from alerts.model import RUNBOOKS, Alert, Group, text
from alerts.pages import pages
from alerts.runbooks import runbooks
from alerts.usage import USAGE
from dashboards.files import ROOT, report

ALERTS: Final[tuple[Group, ...]] = (PRESENCE, FAULTS, MEMORY, HEAT, LINKS, USAGE, AGENTS)
RECORDING: Final = "alerts/recording.yaml"
OPENSHIFT: Final = "alerts/openshift-accelerator.yaml"
RULES: Final = "alerts/alerts.yaml"


def every_alert() -> list[Alert]:
    return [rule for group in ALERTS for rule in group.rules if isinstance(rule, Alert)]


def wanted() -> dict[str, str]:
    """Path from the repository's root → text."""
    return {
        RECORDING: text("alerts/recording.py", recording.GROUPS),
        RULES: text("alerts/", ALERTS),
        OPENSHIFT: text("alerts/openshift.py", openshift.GROUPS),
        **pages(ALERTS, recording.GROUPS, openshift.GROUPS),
        **runbooks(ALERTS),
    }


def with_links(base: str) -> str:
    """The rules of alerts, with runbooks at this address: that of the folder, with or without a slash at its end."""
    return text("alerts/", ALERTS, base.rstrip("/"))


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare. Returns 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m alerts", description="Write the Prometheus rules.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    parser.add_argument(
        "--runbook-base", type=_address, metavar="URL",
        help=f"write alerts alone, to --output, with the runbooks at this address instead of {RUNBOOKS}/",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE", help="the file for --runbook-base; no other is touched")
    arguments = parser.parse_args(argv)
    if (arguments.runbook_base is None) != (arguments.output is None) or (arguments.check and arguments.output):
        parser.error("--runbook-base URL and --output FILE go together, and not with --check")
    if arguments.output is None:
        return report(ROOT, wanted(), check=arguments.check)
    arguments.output.write_text(with_links(arguments.runbook_base))
    return 0


def _address(given: str) -> str:
    if not re.fullmatch(r"https?://\S+", given):
        raise argparse.ArgumentTypeError(
            f"{given!r}: expected the address of the folder of runbooks, with http:// or https://"
        )
    return given
