"""Receivers that others wrote, which hand on what they got: rotel and the OpenTelemetry Collector."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START = 30.0
COLLECTOR = "otelcol"


@dataclass(frozen=True, slots=True)
class Program:
    http: str
    """URL of its receiver for OTLP over HTTP."""
    grpc: str
    prometheus: str = ""
    """URL at which it serves what it got to Prometheus; empty: it cannot."""


def rotel_agent() -> Path | None:
    """The program in PyPI's package rotel, where that is installed."""
    found = importlib.util.find_spec("rotel")
    if found is None or not found.submodule_search_locations:
        return None
    agent = Path(found.submodule_search_locations[0]) / "rotel-agent"
    return agent if agent.exists() else None


@contextlib.contextmanager
def rotel(folder: Path, forward_to: str) -> Iterator[Program]:
    """Hands everything on over HTTP to ``forward_to``."""
    agent = rotel_agent()
    assert agent is not None
    http, grpc = free_ports(2)
    command = [str(agent), "start", "--otlp-http-endpoint", f"127.0.0.1:{http}"]
    command += ["--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--exporter", "otlp"]
    command += ["--otlp-exporter-endpoint", forward_to, "--otlp-exporter-protocol", "http"]
    command += ["--otlp-exporter-compression", "none", "--batch-timeout", "100ms"]
    with _running(command, folder, (http, grpc)):
        yield Program(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}")


def collector_components() -> set[str]:
    """The names of the components that the Collector on PATH has; none where there is no Collector."""
    if shutil.which(COLLECTOR) is None:
        return set()
    listed = subprocess.run([COLLECTOR, "components"], capture_output=True, text=True, check=True, timeout=START).stdout
    return {line.split("name:")[1].strip() for line in listed.splitlines() if "name:" in line}


@contextlib.contextmanager
def collector(folder: Path, forward_to: str) -> Iterator[Program]:
    """Hands everything on over HTTP to ``forward_to``, and serves it to Prometheus if it was built for that."""
    known = collector_components()
    http, grpc, prometheus = free_ports(3)
    forward = "otlp_http" if "otlp_http" in known else "otlphttp"
    exporters: dict[str, Any] = {forward: {"endpoint": forward_to, "compression": "none"}}
    if "prometheus" in known:
        exporters["prometheus"] = {"endpoint": f"127.0.0.1:{prometheus}"}
    protocols = {"http": {"endpoint": f"127.0.0.1:{http}"}, "grpc": {"endpoint": f"127.0.0.1:{grpc}"}}
    config = {
        "receivers": {"otlp": {"protocols": protocols}},
        "exporters": exporters,
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": list(exporters)}},
        },
    }
    # JSON is YAML.
    (folder / "collector.yaml").write_text(json.dumps(config))
    with _running([COLLECTOR, "--config", str(folder / "collector.yaml")], folder, (http, grpc)):
        served = f"http://127.0.0.1:{prometheus}/metrics" if "prometheus" in known else ""
        yield Program(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", served)


@contextlib.contextmanager
def _running(command: Sequence[str], folder: Path, ports: Sequence[int]) -> Iterator[None]:
    log = folder / "program.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + START
        while not all(map(_listens, ports)):
            alive = process.poll() is None and time.monotonic() < end
            assert alive, log.read_text(errors="replace")[-3000:]
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(START)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
