"""A label that would stand on a series twice is an error of the table, and not of each scrape."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.catalogue import CatalogueError, load

COLLECTOR = 'vendor = "acme"\ntitle = "Acme"\n[attribution]\nraw_labels = { pod = "exported_pod" }\n'


def table(folder: Path, labels: str, level: str = "device") -> Path:
    (folder / "collector.toml").write_text(COLLECTOR)
    (folder / "series.toml").write_text(
        'identity = ["UUID"]\n[[series]]\nname = "load"\ntype = "gauge"\nhelp = "Load."\nnative = "x"\n'
        f'level = "{level}"\nlabels = {labels}\n'
    )
    return folder


@pytest.mark.parametrize("labels", ['["UUID"]', '["exported_pod"]', '["link", "link"]'])
def test_a_label_of_the_device_or_of_its_workload_cannot_be_one_of_the_series(tmp_path: Path, labels: str) -> None:
    with pytest.raises(CatalogueError, match=r"load: a label would stand there twice"):
        load(table(tmp_path, labels), "acme")


def test_a_series_of_the_node_carries_neither_and_may_have_them(tmp_path: Path) -> None:
    assert load(table(tmp_path, '["UUID", "exported_pod"]', "node"), "acme").series
