"""The generated pages are up to date and say what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collectors.base import Fault
from exporter.catalogue import Catalogue
from exporter.derived import Book
from exporter.docs import pages as docs
from exporter.docs.metrics import AGENT_MADE, metrics_page
from exporter.docs.text import code, prose, table
from exporter.docs.vendors import vendor_page
from exporter.model import Attributed, Usage, Workload
from exporter.publisher import CollectorStatus, Publisher
from exporter.registry import catalogues
from exporter.schema import METRICS
from exporter.view import View, ViewOptions
from tests.acme import MAX_AGE, catalogue, device, sample, snapshot
from tests.unit.test_repository import ROOT

GENERATED = docs.pages()
ANY_GENERATED = pytest.mark.parametrize("path", GENERATED)


# The generated pages


@ANY_GENERATED
def test_a_generated_page_is_up_to_date(path: str) -> None:
    file = ROOT / path
    assert file.exists(), f"{path} is missing: run `make docs`"
    assert file.read_text() == GENERATED[path], f"{path} is not up to date: run `make docs`"


def test_no_page_is_left_of_a_vendor_that_is_gone() -> None:
    assert set(docs.differences(ROOT, GENERATED)) <= GENERATED.keys(), "run `make docs`"


def test_a_generated_page_begins_with_the_command_that_makes_it() -> None:
    for path, text in GENERATED.items():
        if path != docs.INDEX:
            assert re.match(r"<!-- .*`python -m exporter\.docs`.* -->\n# ", text), path


@ANY_GENERATED
def test_every_row_of_a_table_has_as_many_cells_as_its_head(path: str) -> None:
    width, tables = 0, 0
    for number, line in enumerate(GENERATED[path].splitlines(), 1):
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        tables += width == 0
        width = width or cells
        assert cells == width, f"{path}:{number}"
        assert line.endswith(" |") or set(line) == {"|", "-"}
    assert tables


def test_writing_brings_a_checkout_up_to_date_and_removes_what_is_left_over(tmp_path: Path) -> None:
    (tmp_path / "docs/vendors").mkdir(parents=True)
    (tmp_path / "docs/vendors/gone.md").write_text("of a vendor that is gone")
    (tmp_path / "docs/metrics.md").write_text("old")
    (tmp_path / "docs/design.md").write_text("by hand")
    wanted = {"docs/metrics.md": "new", "docs/vendors/acme.md": "acme"}
    assert docs.write(tmp_path, wanted) == ["docs/metrics.md", "docs/vendors/acme.md", "docs/vendors/gone.md"]
    left = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.md")}
    assert left == {**wanted, "docs/design.md": "by hand"}
    assert docs.write(tmp_path, wanted) == []


def test_the_check_fails_and_names_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, text in GENERATED.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "pages", lambda: GENERATED)
    assert docs.main(["--check"]) == 0
    (tmp_path / "docs/metrics.md").write_text("edited by hand")
    assert docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "docs/metrics.md: not up to date: run `make docs`\n"
    assert (tmp_path / "docs/metrics.md").read_text() == "edited by hand"
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_outside_a_checkout_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(docs.NotARepository):
        docs.pages(tmp_path)
    monkeypatch.setattr(docs, "pages", lambda pages=docs.pages: pages(tmp_path))
    assert docs.main([]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/docs/index.md is missing: run this in a checkout of the repository\n"
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_vendors_keeps_what_stands_around_it() -> None:
    index = f"before\n{docs.BEGIN}- an old one\n{docs.END}after\n"
    expected = f"before\n{docs.BEGIN}- [Acme accelerators](vendors/acme.md)\n{docs.END}after\n"
    assert docs.with_vendors(index, {"acme": catalogue()}) == expected
    with pytest.raises(ValueError, match="needs the two lines"):
        docs.with_vendors("no marks", {})


# What the pages say


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b", r"a\|b"),
        ("<b> *x* `y` [z](u)", r"\<b\> \*x\* \`y\` \[z\](u)"),
        ("two\n  lines", "two lines"),
        ("SNAKE_CASE and _edges_", r"SNAKE_CASE and \_edges\_"),
    ],
)
def test_prose_means_nothing_to_markdown(text: str, written: str) -> None:
    assert prose(text) == written


@pytest.mark.parametrize(("text", "written"), [("", ""), ("a|b", r"`a\|b`"), ("a`b", "``a`b``"), ("`a", "`` `a ``")])
def test_code_stays_code_in_a_cell(text: str, written: str) -> None:
    assert code(text) == written


def test_columns_and_tables_without_content_are_left_out() -> None:
    assert table(("a", "b"), [("1", ""), ("2", "")]) == "| a |\n|---|\n| 1 |\n| 2 |\n"
    assert table(("a", "b"), []) == ""


def test_every_metric_has_its_place_in_the_order_of_the_schema() -> None:
    text = GENERATED["docs/metrics.md"]
    assert re.findall(r"^### (\S+)$", text, flags=re.MULTILINE) == list(METRICS)
    assert re.findall(r"^\| \[`(\w+)`\]\(#\1\) \|", text, flags=re.MULTILINE) == list(METRICS)
    sections = [
        "Identity and state", "Temperature, power, energy", "Memory", "Utilization and efficiency",
        "Clocks and throttling", "Links", "Errors", "Per container and process", "Provenance", "The agent itself",
    ]  # fmt: skip
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == sections


def of(text: str, heading: str) -> str:
    """What stands below a heading, up to the next of its rank or above."""
    rank = heading.partition(" ")[0]
    rest = text.partition(f"\n{heading}\n")[2]
    return re.split(rf"^#{{1,{len(rank)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(
    ("metric", "row"),
    [
        # Of series.toml's entry: milliwatts; permille and second in the table; bits 6; kibibytes by link; equals 2.
        ("accel_power_watts", "`acme_power_mw` | exact | ÷ 1000"),
        ("accel_utilization_ratio", "`acme_duty_permille` | approximate | ÷ 1000"),
        (
            "accel_throttle_active",
            '`acme_state_bits` | `{reason="thermal"}` | exact | 1 if any bit of 0x6 is set',
        ),
        (
            "accel_interconnect_received_bytes_total",
            '`acme_link_bytes` | `{fabric="acmelink"}` | exact | × 1024, sum over links, by link with links: each',
        ),
        (
            "accel_fabric_state",
            '`acme_fabric` | `{state="completed"}` | exact | 1 if 2',
        ),
        ("accel_temperature_celsius", '`acme_temperature` | `{sensor="die"}` | exact'),
    ],
)
def test_a_metric_says_what_feeds_it(metric: str, row: str) -> None:
    text = of(metrics_page({"acme": catalogue()}), f"### {metric}")
    assert f"| [acme](vendors/acme.md) | {row} |" in text.splitlines()


def test_a_metric_says_what_it_is() -> None:
    text = of(metrics_page({"acme": catalogue()}), "### accel_temperature_celsius")
    assert text.splitlines()[1] == "Stable. Carries the workload."
    assert (
        "- `sensor`: `die`, `hotspot`, `memory`, `board`, `vr`, `inlet`, `outlet`, `edge`, `soc`" in text.splitlines()
    )


def test_a_metric_that_nothing_gives_is_called_absent() -> None:
    assert "Absent: nothing gives it yet." in of(metrics_page({"acme": catalogue()}), "### accel_pcie_sent_bytes_total")
    assert "Absent" not in of(metrics_page({"acme": catalogue()}), "### accel_info")


def test_the_metrics_that_are_said_to_be_made_by_the_agent_are_those_that_it_makes() -> None:
    vendor, book = catalogue(), Book(fault_hold=600.0)
    view = View(vendor, ViewOptions(raw=frozenset(), max_age=MAX_AGE))
    found = snapshot([device("0")], {"normal": sample([("acme_power_mw", 0, 5)])})
    book.record(vendor, found.devices, [Fault(0, "acme:7", 1.0)], now=2.0, monotonic=100.0)
    status = CollectorStatus(name="acme", view=view, snapshot=found, present=1)
    owners = (Workload(namespace="n", pod="a"), Workload(namespace="n", pod="b"))
    usage = {("ACME-0", "", "n", "a", ""): Usage(memory=7, utilization=0.5)}
    attributed = Attributed({("ACME-0", ""): owners}, usage)
    publication = Publisher(book, lambda *_: None).publish([status], attributed, now=2.0, monotonic=100.0)
    fed = {feed.metric for series in vendor.series.values() for feed in series.feeds}
    assert {family.name for family in publication.families} - fed == set(AGENT_MADE)


def test_the_agents_own_metrics_are_listed_with_their_labels() -> None:
    text = of(GENERATED["docs/metrics.md"], "## The agent itself")
    assert "| `accel_exporter_collector_up` | gauge | `collector` | 1 if the collector gives fresh samples. |" in text
    assert "| `accel_exporter_collector_restarts_total` | counter | `collector`<br>`cause`: timeout, crashed" in text
    assert "| `accel_exporter_http_request_duration_seconds` | histogram | `route`<br>`code` |" in text


def test_the_page_of_a_vendor_tells_what_its_tables_say() -> None:
    text = vendor_page(catalogue(), "collectors/acme")
    assert "\n# Acme accelerators\n" in text
    assert "[README](../../collectors/acme/README.md)" in text
    assert of(text, "## Detection").rstrip().splitlines()[-2:] == [
        "- a PCI device of the vendor `0xacce`, whose class begins with `0x0302`",
        "- the file `{dev}/acme[0-9]*`",
    ]
    assert "| failed | `acme_repair_failed` is 1 | memory repair failed |" in of(text, "## Health")
    assert "| degraded | `acme_load_percent` is above 150 | nonsense load |" in of(text, "## Health")
    assert "| `acme:7` | core halted | compute | fatal | reset_device |" in of(text, "## Faults")
    assert "| `world` | File that says what the devices do. | a text | empty |" in of(text, "## Options")
    assert "| `default` | the names and labels of the vendor's current exporter |" in of(text, "## Profiles")
    assert "| `{dev}/acme0` | be readable | yes | the driver is asked through it | load the acme driver |" in of(
        text, "## Checks"
    )
    assert "usually at `http://127.0.0.1:9999/metrics`" in of(text, "## Bridge").replace("\n", " ")


def test_the_raw_series_of_a_vendor_stand_by_what_they_feed() -> None:
    text = vendor_page(catalogue(), "collectors/acme")
    memory = of(text, "### Memory").splitlines()
    assert (
        "| `acme_memory_used_mib`<br>Used memory (in MiB). | gauge | mebibytes | normal | part | on | `memory()` |"
        in memory
    )
    target = '[`accel_memory_used_bytes{memory="device"}`](../metrics.md#accel_memory_used_bytes)'
    assert f"| `acme_memory_used_mib` | {target} | exact | × 1048576 |" in memory
    assert "Temperature (in C). No reading: `0`." in of(text, "### Temperature, power, energy")
    assert "Bytes received by link (in KiB). Labels: `link`." in of(text, "### Links")
    only = of(text, "### Raw only")
    assert "`acme_node_driver_restarts`" in only
    assert "`acme_link_bytes`" not in only


def names_in(page: str, vendor: Catalogue) -> set[str]:
    return {name for name in (*vendor.series, *vendor.aliases) if f"`{name}`" in page}


@pytest.mark.parametrize("path", [path for path in GENERATED if path.startswith(docs.VENDORS)])
def test_the_page_of_a_vendor_leaves_no_series_fault_or_spelling_out(path: str) -> None:
    _, vendor = catalogues()[Path(path).stem]
    assert names_in(GENERATED[path], vendor) == {*vendor.series, *vendor.aliases}
    assert [fault for fault in vendor.faults if f"| `{fault}` |" not in GENERATED[path]] == []
