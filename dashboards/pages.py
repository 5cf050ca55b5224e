"""docs/dashboards.md: what each panel shows, and for which vendors it stays empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dashboards.coverage import Told, built_in, silent
from dashboards.grafana import everything, filled, panels, variables
from exporter.docs.text import code, page, prose, table

PAGE: Final = "docs/dashboards.md"
INTRODUCTION: Final = """\
<!-- Made from dashboards/ by `python -m dashboards` (`make dashboards`). Do not edit. -->
# Dashboards

Eight Grafana dashboards on the common schema, so that each serves every vendor at once. They are JSON files in
[dashboards/json](../dashboards/json), for Grafana 10 to 12, made from the code beside them.

To import one: *Dashboards → New → Import*, upload the file, and choose the data source at the top of the dashboard.
To provision them all: a folder with these files and a provider of type `file`. They cannot be edited in place, for the
next version would overwrite that; *Save as* makes a copy of your own.

**What they need.** Prometheus, or what speaks its API, that scrapes the agents with `honor_labels: true`. They need no
recording rules. Numbers of workloads need [attribution](configuration.md#attribution).

**Variables.** *Cluster* is for those who add a label `cluster` to their targets; without one it stays empty and does
nothing. *Class* is `device_class` of `accel_info`, the operator's own name for a kind of device. *Namespace* and *Job*
choose a workload: panels of what a workload causes or feels then show its devices alone, and what is free or shared is
left out; the dashboards *workload* and *tenants* find shared devices, too, by `accel_allocation_info`.

**Sums.** Every quantity stands at one level, on parts or on the whole: sums are right with partitions and without.
Ratios of parts are averaged with their compute units as weights. A workload that holds a part holds that share of the
device, and containers that share a device have equal shares of it.

**Counters.** They are read by rates over `$__rate_interval` alone, or over the whole chosen time.

**Raw series.** Dashboards of devices end with a closed row: which raw series feeds what, and the chosen raw series as
they are. For these the agent has to serve them (`schema.raw`).

The last column names the collectors whose devices cannot have the panel, since the vendor does not tell the quantity.
"""


def pages(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Path from the repository's root → text."""
    among = built_in()
    parts = (part for name, document in documents.items() for part in _board(name, document, among))
    return {PAGE: page(INTRODUCTION, *parts)}


def _board(name: str, document: Mapping[str, Any], among: Mapping[str, Told]) -> Iterable[str]:
    yield f"## {name}"
    chosen = ", ".join(variable["label"] for variable in variables(document).values())
    yield f"{prose(document['description'])} File: {code(f'dashboards/json/{name}.json')}. Variables: {chosen}."
    values = everything(document)
    rows = []
    for panel in panels(document):
        empty = silent([filled(target["expr"], values) for target in panel["targets"]], among)
        rows.append((prose(panel["title"]), prose(panel["description"]), ", ".join(empty)))
    yield table(("panel", "shows", "empty for"), rows)
