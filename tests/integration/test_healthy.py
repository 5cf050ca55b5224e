"""``accel-exporter healthy``, and with it the image's health check, beside agents whose ports let nobody in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import Agent, until
from tests.secured import Site, hashed

Done = subprocess.CompletedProcess[str]
CONFIG: Mapping[str, Any] = {
    "simulate": {"devices": {"nvidia": 1}},
    "attribution": {"kubernetes": {"enabled": False}},
}


def healthy(*flags: str) -> Done:
    command = [sys.executable, "-m", "exporter", "healthy", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def of(process: int, *flags: str) -> Done:
    return healthy("--pid", str(process), *flags)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A web configuration that asks for a client's certificate and a password."""
    (tmp_path / "web").mkdir()
    site = Site(tmp_path / "web")
    asked = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "clients.pem"}
    return site.configure(tls=asked, basic_auth_users={"a": hashed("secret")})


def test_an_open_port_and_one_that_lets_nobody_in_are_the_same(closed: Path, tmp_path: Path) -> None:
    for name, flags in (("open", ()), ("closed", ("--web.config.file", str(closed)))):
        folder = tmp_path / name
        folder.mkdir()
        with Agent.start(folder, os.environ, CONFIG, *flags, ready=False) as agent:
            until(lambda: of(agent.process.pid, "--ready").returncode == 0, "not ready")
            done = of(agent.process.pid)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout == f"process {agent.process.pid}: healthy\n"
        # What does not run is not healthy.
        gone = of(agent.process.pid)
        assert (gone.returncode, gone.stdout) == (1, "")
        assert "is no agent that runs here" in gone.stderr


def test_an_agent_that_listens_on_a_unix_socket_alone_is_found(tmp_path: Path) -> None:
    place = tmp_path / "web.sock"
    command = [sys.executable, "-m", "exporter", "serve", "--listen", f"unix:{place}", "--simulate", "nvidia=1"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until(lambda: of(process.pid).returncode == 0, "never healthy")
        assert place.is_socket()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_one_that_stands_still_is_not_healthy(tmp_path: Path) -> None:
    with Agent.start(tmp_path, os.environ, CONFIG) as agent:
        agent.process.send_signal(signal.SIGSTOP)
        try:
            done = of(agent.process.pid)
        finally:
            agent.process.send_signal(signal.SIGCONT)
        assert done.returncode == 1
        assert "it stands still" in done.stdout
        assert of(agent.process.pid).returncode == 0


def test_a_configuration_that_is_broken_meanwhile_makes_nobody_ill(tmp_path: Path) -> None:
    with Agent.start(tmp_path, os.environ, CONFIG) as agent:
        agent.config_file.write_text("listen: [\n")
        assert of(agent.process.pid).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_tells_nobody_else(tmp_path: Path) -> None:
    with Agent.start(tmp_path, os.environ, CONFIG) as agent:
        # Python itself may be where this user may not read.
        program = (
            "import os, sys\nfrom exporter.healthy import healthy\nos.setgroups([])\nos.setuid(65532)\n"
            f"sys.exit(healthy({agent.process.pid}, ready=False))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (1, "")
        assert "ask as its user, or as root" in done.stderr


def test_an_agent_that_is_not_alive_says_why() -> None:
    """The agent's own verdict is told as it is: here by a process that says that it is neither alive nor ready."""
    program = (
        "import asyncio, sys\n"
        "from exporter.healthy import tell\n"
        "async def main():\n"
        "    server = await tell(lambda: (False, 'the publisher broke'), lambda: (False, 'not yet'))\n"
        "    print('here', flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.read)\n"
        "    server.close()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        for flags, why in (((), "the publisher broke"), (("--ready",), "not yet")):
            done = of(process.pid, *flags)
            assert (done.returncode, done.stdout) == (1, f"process {process.pid}: {why}\n")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
