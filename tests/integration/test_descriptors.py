"""More connections than the process may have open files: real limits of the kernel, real sockets."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.agent import until

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
LIMITED = """\
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
os.execv(sys.executable, [sys.executable, "-m", "exporter", *sys.argv[3:]])
"""
Running = tuple[subprocess.Popen[bytes], int, Path]


@contextmanager
def agent(folder: Path, soft: int, hard: int, connections: int) -> Iterator[Running]:
    """An agent that began with these limits: its process, its port and its log."""
    flags = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--simulate",
        "nvidia=1",
        "--set",
        f"http.max_connections={connections}",
    ]
    output, log = folder / "output", folder / "log"
    with output.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", LIMITED, str(soft), str(hard), *flags],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "ACCEL_EXPORTER_ATTRIBUTION__KUBERNETES__ENABLED": "false"},
        )
    try:
        until(lambda: b"/metrics" in output.read_bytes() or process.poll() is not None, "no address")
        found = re.search(r"127\.0\.0\.1:(\d+)/metrics", output.read_text())
        assert found, log.read_text()
        yield process, int(found[1]), log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()


def answered(opened: socket.socket) -> bool:
    """Whether a request over this connection, which stays open, is answered with 200."""
    opened.settimeout(20)
    try:
        opened.sendall(REQUEST)
        return opened.recv(4096).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def warnings(log: Path) -> list[str]:
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [event["message"] for event in found if event["level"] != "info"]


def test_the_soft_limit_is_raised_as_far_as_the_connections_need(tmp_path: Path) -> None:
    with agent(tmp_path, soft=64, hard=4096, connections=300) as (process, port, log), ExitStack() as stack:
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert 300 < soft < 1024
        assert hard == 4096
        # Each is answered while all the others stay open.
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(300)]
        assert all(answered(client) for client in clients)
        assert all(answered(client) for client in clients)
        assert warnings(log) == []


def test_with_too_low_a_hard_limit_it_takes_fewer_and_says_so_once(tmp_path: Path) -> None:
    with agent(tmp_path, soft=128, hard=256, connections=5000) as (process, port, log), ExitStack() as stack:
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (256, 256)
        [line] = warnings(log)
        found = re.search(r"it takes (\d+) connections at a time; raise the limit \(LimitNOFILE", line)
        assert found, line
        assert "http.max_connections is 5000, but this process may have no more than 256 open files" in line
        possible = int(found[1])
        assert 20 <= possible < 256 - 64
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(400)]
        with socket.create_connection(("127.0.0.1", port)) as scraper:
            assert answered(scraper)
            still_open = [client for client in silent if answered(client)]
            # The others made room; nobody ran into the kernel's limit.
            assert 1 <= len(still_open) <= possible
        assert len(warnings(log)) == 1


@pytest.mark.parametrize("connections", [64, 500])
def test_usual_limits_are_left_alone(tmp_path: Path, connections: int) -> None:
    with agent(tmp_path, soft=1024, hard=4096, connections=connections) as (process, _, log):
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (1024, 4096)
        assert warnings(log) == []
