"""The exposition of each world, compared with a text that was read by eye against NVIDIA's documents.

What the agent tells of itself is left out, but for its collectors.

UPDATE_GOLDEN=1 rewrites the texts. Counters stand still in these worlds; other tests see to it that they grow.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.worlds import WITHOUT_DEVICES, WORLDS, place, still
from tests.golden import assert_golden

pytestmark = pytest.mark.gcc

OWN = re.compile(r"(# (HELP|TYPE) )?(process_|accel_exporter_(?!collector_))")


def of_devices(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not OWN.match(line))


@pytest.mark.parametrize("world", WORLDS)
def test_exposition_of_a_world(tmp_path: Path, world: str) -> None:
    here = place(tmp_path, still(WORLDS[world]()))
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(here.config()))
    command = ["once", "--schema", "all", "--wait", "0.8", "--config", str(config)]
    result = subprocess.run(
        [sys.executable, "-m", "exporter", *command],
        env=here.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in result.stderr
    assert_golden(f"nvidia/{world}.txt", of_devices(result.stdout))
    if world in WITHOUT_DEVICES:
        assert result.returncode == 1
        assert result.stderr == "accel-exporter: nothing was read; 'accel-exporter doctor' tells why\n"
    else:
        assert result.returncode == 0
