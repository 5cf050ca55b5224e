"""An operator's bad day: reloads without pause, full disks, closed descriptors, a file system that does not answer."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.agent import Agent, until

STORM = 100


def config(number: int, *, on: bool) -> dict[str, Any]:
    """Each differs from the one before in what is read, how it is shown and who owns it."""
    return {
        "node": f"node-{number}",
        "intervals": {"normal": 0.2 + 0.01 * (number % 5)},
        "simulate": {"devices": {"nvidia": 1, "amd": 1} if on else {"amd": 1}},
        "attribution": {"static": [{"devices": ["0"], "tenant": f"tenant-{number}"}]},
    }


def test_the_last_of_many_configurations_is_in_force(tmp_path: Path) -> None:
    with Agent.start(tmp_path, dict(os.environ), config(0, on=True)) as agent:
        for number in range(1, STORM):
            agent.reload(config(number, on=number % 3 == 0))
            time.sleep(0.01)
        agent.reload(config(STORM, on=True))
        seen = agent.wait_for(
            lambda seen: seen.has("accel_power_watts", vendor="nvidia", node=f"node-{STORM}", tenant=f"tenant-{STORM}"),
            patience=60,
        )
        assert {sample.labels["node"] for sample in seen.all("accel_info")} == {f"node-{STORM}"}
        assert seen.value("accel_exporter_config_reload_success") == 1
        assert agent.get("/healthz").status == 200
        # Not one reading of the file for each signal.
        assert agent.log_text.count("configuration reloaded") < STORM


def test_an_agent_that_is_ended_before_it_serves_ends_in_order() -> None:
    """As process 1 of a container it would otherwise outlive the signal: that has no default action there."""
    script = (
        "import os, signal, sys, time\n"
        "from exporter import cli\n"
        "cli.read = lambda _: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(20))\n"
        "sys.exit(cli.main(['serve']))\n"
    )
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert time.monotonic() - began < 15


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def served(folder: Path, redirections: str, more: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """An agent behind a shell that has changed its descriptors; ended by SIGTERM with exit code 0."""
    port = free_port()
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"simulate": {"devices": {"nvidia": 1}}, "listen": [f"127.0.0.1:{port}"]}) + more)
    command = f'exec "{sys.executable}" -m exporter serve --config "{file}" {redirections}'
    process = subprocess.Popen(["bash", "-c", command], stdin=subprocess.DEVNULL)
    try:
        until(lambda: process.poll() is not None or _listens(port), "it does not serve")
        yield process, port
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("redirections", [">/dev/full 2>/dev/full", "<&- >&- 2>&-", ">&- 2>/dev/null"])
def test_an_agent_that_cannot_write_serves_and_ends_in_order(tmp_path: Path, redirections: str) -> None:
    with served(tmp_path, redirections) as (process, _):
        standard = [str(Path(f"/proc/{process.pid}/fd/{descriptor}").readlink()) for descriptor in range(3)]
        assert not [target for target in standard if re.match("socket:|anon_inode:", target)], standard


def test_a_file_system_that_does_not_answer_keeps_nobody_from_reading_scraping_or_ending(tmp_path: Path) -> None:
    """Threads that read the certificates wait for ever on a pipe that nobody writes; each reload adds one."""
    pipe = tmp_path / "ca.crt"
    os.mkfifo(pipe)

    def waiting(number: int) -> dict[str, Any]:
        kubernetes = {
            "enabled": True,
            "pod_resources_socket": str(tmp_path / "none"),
            "api_url": "https://127.0.0.1:1",
            "ca_file": str(pipe),
        }
        return {
            "node": f"node-{number}",
            "simulate": {"devices": {"nvidia": 1}},
            "collection": {"stop_grace": 0.2},
            "otlp": {"stop_timeout": 0.1},
            "attribution": {"kubernetes": kubernetes, "pod_labels": [f"label-{number}"]},
        }

    with Agent.start(tmp_path, dict(os.environ), waiting(0)) as agent:
        for number in range(1, 10):
            agent.reload(waiting(number))
            agent.wait_for(lambda seen, node=f"node-{number}": seen.has("accel_info", node=node))  # type: ignore[misc]
        assert _gzipped(agent) != b""
        assert agent.stop() < 15


def _gzipped(agent: Agent) -> bytes:
    request = urllib.request.Request(f"http://{agent.address}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        body: bytes = answer.read()
        return body
