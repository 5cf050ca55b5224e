"""``accel-exporter doctor`` and receivers of OTLP: real sockets, which answer, refuse, or let nobody in."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from exporter.config.otlp import OtlpEndpoint
from exporter.otlp.reach import reach
from tests.integration.test_top import no_vendor

TOKEN, PASSWORD = "t0ken-of-the-tenant", "s3cr3t"
NO_PROXIES = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


@contextmanager
def listening(path: Path | None = None, backlog: int = 8) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as opened:
        opened.bind(str(path) if path else ("127.0.0.1", 0))
        opened.listen(backlog)
        yield opened, "" if path else f"127.0.0.1:{opened.getsockname()[1]}"


def closed_port() -> str:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{bound.getsockname()[1]}"


def doctor(
    folder: Path, otlp: Mapping[str, Any], *flags: str, environ: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """On a host without accelerators."""
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"otlp": dict(otlp), "attribution": {"kubernetes": {"enabled": False}}})
    )
    command = [
        sys.executable,
        "-m",
        "exporter",
        "doctor",
        "--config",
        str(folder / "config.yaml"),
        *no_vendor(),
        *flags,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, env={**NO_PROXIES, **environ}
    )


def test_each_receiver_is_tried_and_no_secret_of_its_address_is_shown(tmp_path: Path) -> None:
    with ExitStack() as stack:
        _, open_ = stack.enter_context(listening())
        stack.enter_context(listening(tmp_path / "hidden.sock"))
        shut = closed_port()
        otlp = {
            "endpoints": [
                {"endpoint": f"http://me:{PASSWORD}@{open_}/{TOKEN}/v1/metrics?key={TOKEN}"},
                {"endpoint": f"http://{shut}/{TOKEN}", "headers": {"Authorization": f"Bearer {TOKEN}"}},
                {"endpoint": open_, "protocol": "grpc", "insecure": True},
                {"endpoint": f"unix:{tmp_path}/hidden.sock", "protocol": "grpc"},
            ]
        }
        done = doctor(tmp_path, otlp)
        as_json = json.loads(doctor(tmp_path, otlp, "--format", "json").stdout)
    assert done.stderr == ""
    section = done.stdout.partition("Receivers of OTLP\n")[2]
    assert section.splitlines() == [
        f"  ok    http://{open_} can be connected to",
        f"  FAIL  http://{shut} cannot be connected to: Connection refused",
        "        → correct the endpoint in otlp, start the receiver, or let this host's firewall, or the pod's "
        "NetworkPolicy, through to it",
        f"  ok    {open_} can be connected to",
        "  ok    unix:…/hidden.sock can be connected to",
        "",
        "1 problem",
    ]
    assert done.returncode == 1
    for secret in (TOKEN, PASSWORD, str(tmp_path)):
        assert secret not in done.stdout
    assert [finding["verdict"] for finding in as_json["otlp"]] == ["ok", "problem", "ok", "ok"]


def test_a_proxy_is_tried_in_place_of_what_only_it_reaches(tmp_path: Path) -> None:
    otlp = {"endpoint": f"https://collector.invalid/{TOKEN}"}
    with listening() as (_, proxy):
        done = doctor(tmp_path, otlp, environ={"HTTPS_PROXY": f"http://me:{PASSWORD}@{proxy}"})
    assert f"ok    https://collector.invalid:443 through the proxy {proxy} can be connected to" in done.stdout
    assert done.returncode == 0
    shut = closed_port()
    done = doctor(tmp_path, {**otlp, "proxy": f"http://me:{PASSWORD}@{shut}"})
    assert f"FAIL  https://collector.invalid:443 through the proxy {shut} cannot be connected to" in done.stdout
    assert "→ correct otlp.proxy" in done.stdout
    assert PASSWORD not in done.stdout


def test_a_name_that_nobody_knows_is_told(tmp_path: Path) -> None:
    done = doctor(tmp_path, {"endpoint": "http://collector.invalid:4318"})
    assert "FAIL  http://collector.invalid:4318 cannot be connected to: " in done.stdout
    assert done.returncode == 1


def test_without_receivers_there_is_no_such_section(tmp_path: Path) -> None:
    done = doctor(tmp_path, {"enabled": False, "endpoint": "http://127.0.0.1:1"})
    assert "OTLP" not in done.stdout
    assert done.returncode == 0


def test_a_receiver_that_lets_nobody_in_is_given_up() -> None:
    with listening(backlog=0) as (_, address), ExitStack() as stack:
        # The kernel drops what comes when as many as this wait to be let in.
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", int(address.rpartition(":")[2])))
        [found] = reach([OtlpEndpoint(endpoint=f"http://{address}")], patience=0.5)
    assert found.trouble == "no connection within 0.5 seconds"
