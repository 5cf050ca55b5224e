"""Commands that print tables, with simulated devices."""

from __future__ import annotations

import json

import pytest

from exporter.cli import main


def test_a_collector_that_does_not_exist_is_told_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mapping", "--collector", "nvdia"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "'nvdia'" in told.err
    assert "nvidia" in told.err.replace("'nvdia'", "")


def test_devices_shows_the_temperature_of_the_first_sensor_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """AMD has no sensor that is simply the die's."""
    assert main(["devices", "--simulate", "amd=1,nvidia=1", "--wait", "0", "--format", "json"]) == 0
    rows = {row["vendor"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"amd", "nvidia"}
    for row in rows.values():
        assert 20 < row["temperature_celsius"] < 120


def test_the_help_tells_what_a_flag_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "devices that do not exist, so many of each collector (simulate.devices)" in text
