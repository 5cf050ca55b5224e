"""The agent pushes over OTLP while it serves /metrics, and neither waits for the other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from google.protobuf import json_format

from tests.e2e.agent import Agent, Seen, until
from tests.otlp import Point, parse, points, prometheus_label, prometheus_name
from tests.otlp_servers import Server, background

GPUS = 2
DEAD = "http://127.0.0.1:9"


def environ(**more: str) -> dict[str, str]:
    """Without the standard variables of whoever runs the tests."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}, **more}


def config(**otlp: Any) -> dict[str, Any]:
    return {"simulate": {"devices": {"nvidia": GPUS}, "seed": 7}, "node": "node-1", "otlp": otlp}


def arrived(server: Server) -> list[Point]:
    return points(got.body for got in list(server.got))


def wait_for(server: Server, name: str, patience: float = 20.0) -> list[Point]:
    """The points of this metric, once there are any."""
    found: list[Point] = []

    def there() -> bool:
        found[:] = [point for point in arrived(server) if point.name == name]
        return bool(found)

    until(there, f"no {name} arrived", patience)
    return found


def series(seen: Seen) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {(sample.name, frozenset(sample.labels.items())) for sample in seen.samples}


def test_what_is_pushed_is_what_metrics_serves(tmp_path: Path) -> None:
    with background() as server:
        settings = config(endpoint=server.url, interval=1, names="prometheus", schema="both", include=["accel_*"])
        with Agent.start(tmp_path, environ(), settings) as agent:
            wait_for(server, "accel.power")
            scraped = series(agent.scrape("?schema=common"))
    latest = points([server.got[-1].body])
    pushed = {
        (prometheus_name(p.name, p.unit, p.kind), frozenset((prometheus_label(n), v) for n, v in p.attributes.items()))
        for p in latest
    }
    served = {
        (name, labels)
        for name, labels in scraped
        if name.startswith("accel_") and not name.startswith("accel_exporter_")
    }
    assert served <= pushed
    assert len(served) > 150
    # What the scrape has not is the agent's own, and of that nothing but what the two formats write otherwise.
    assert {name for name, _ in pushed - served if not name.startswith("accel_exporter_")} == set()
    resource = latest[0].resource
    assert (resource["service.name"], resource["host.name"]) == ("accel-exporter", "node-1")


def test_the_standard_variables_are_enough(tmp_path: Path) -> None:
    with background() as server:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            "OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=c1,k8s.pod.name=own-pod",
            "OTEL_SERVICE_NAME": "gpus",
        }
        with Agent.start(tmp_path, environ(**variables), {"simulate": {"devices": {"nvidia": GPUS}}}):
            found = wait_for(server, "hw.power")
        assert server.got[0].headers["authorization"] == "Bearer x"
        assert server.got[0].path == "/v1/metrics"
    assert {point.attributes["hw.name"] for point in found} == {"0", "1"}
    assert found[0].resource["service.name"] == "gpus"
    assert found[0].resource["k8s.cluster.name"] == "c1"
    assert "k8s.pod.name" not in found[0].resource


def test_each_workload_has_its_resource(tmp_path: Path) -> None:
    owners = [{"devices": ["0"], "namespace": "ml", "pod": "train-0"}]
    with background() as server:
        settings = {**config(endpoint=server.url, interval=1), "attribution": {"static": owners}}
        with Agent.start(tmp_path, environ(), settings):
            until(lambda: any("k8s.pod.name" in point.resource for point in arrived(server)), "no pod")
            found = [point for point in arrived(server) if point.name == "hw.power" and point.value is not None]
    pods = {point.attributes["hw.name"]: point.resource.get("k8s.pod.name") for point in found}
    assert pods == {"0": "train-0", "1": None}


def test_what_there_is_is_sent_once_more_when_the_agent_ends(tmp_path: Path) -> None:
    with background() as server:
        with Agent.start(tmp_path, environ(), config(endpoint=server.url, interval=3600)) as agent:
            agent.wait_for(lambda seen: seen.has("accel_power_watts", device="1"))
            before = len(server.got)
            assert agent.stop() < 10
        assert len(server.got) == before + 1
        last = points([server.got[-1].body])
    assert {point.attributes["hw.name"] for point in last if point.name == "hw.power"} == {"0", "1"}


@pytest.mark.parametrize("trouble", ["hangs", "refuses", "away"])
def test_a_receiver_in_trouble_takes_nothing_along(trouble: str, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if trouble == "hangs":
            await asyncio.sleep(3600)
        return web.Response(status=400)

    with background(answer) as server:
        endpoint = DEAD if trouble == "away" else server.url
        settings = config(endpoint=endpoint, interval=1, stop_timeout=1, timeout=30)
        with Agent.start(tmp_path, environ(), settings) as agent:
            exports = "accel_exporter_otlp_exports_total"
            if trouble == "hangs":
                until(lambda: len(server.got) >= 1, "nothing was sent")
            else:
                wanted = {"refuses": "refused", "away": "retry"}[trouble]
                agent.wait_for(lambda seen: seen.value(exports, result=wanted) >= 1)
            assert max(agent.get("/metrics").seconds for _ in range(20)) < 2
            dropped = agent.scrape().value("accel_exporter_otlp_dropped_total")
            assert (dropped > 0) == (trouble == "refuses")
            assert agent.stop() < 15
            assert len([line for line in agent.log if line["level"] == "warning" and "dropped" in str(line)]) <= 2


def test_receivers_come_and_go_with_the_configuration(tmp_path: Path) -> None:
    with background() as first, background() as second, Agent.start(tmp_path, environ(), config()) as agent:
        assert not agent.scrape().has("accel_exporter_otlp_queue_length")
        agent.reload(config(endpoint=first.url, interval=1))
        wait_for(first, "hw.power")
        agent.reload(config(endpoint=first.url, interval=1, endpoints=[{"endpoint": second.url, "interval": 1}]))
        wait_for(second, "hw.power")
        energy = [point for point in arrived(first) if point.name == "hw.energy"]
        agent.reload(config(enabled=False, endpoint=first.url))
        until(lambda: agent.log_text.count("configuration reloaded") == 3, "not reloaded three times")
        counts = len(first.got), len(second.got)
        # Longer than the interval.
        time.sleep(1.5)
        assert (len(first.got), len(second.got)) == counts
    # The first receiver was left alone: its counters kept their start.
    by_device: dict[str, set[int]] = {}
    for point in energy:
        by_device.setdefault(point.attributes["hw.id"], set()).add(point.start)
    assert {len(starts) for starts in by_device.values()} == {1}


def once(*flags: str, variables: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exporter", "once", "--simulate", "nvidia=1", "--wait", "0.1"]
    return subprocess.run(
        [*command, "--format", "otlp-json", *flags],
        env=environ(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize(
    ("flags", "there", "absent"),
    [
        ((), "hw.power", "DCGM_FI_DEV_POWER_USAGE"),
        (("--schema", "raw"), "DCGM_FI_DEV_POWER_USAGE", "hw.power"),
        (("--schema", "all"), "DCGM_FI_DEV_POWER_USAGE", ""),
        (("--set", "otlp.endpoint=http://c:4318", "--set", "otlp.names=prometheus"), "accel.power", "hw.power"),
    ],
)
def test_once_prints_what_would_be_sent(flags: tuple[str, ...], there: str, absent: str) -> None:
    (line,) = once(*flags).stdout.splitlines()
    request = json_format.ParseDict(json.loads(line), parse(b""))
    names = {point.name for point in points([request.SerializeToString()])}
    assert there in names
    assert absent not in names


def modules(settings: str) -> set[str]:
    """What a serving agent with these settings has imported, by top-level name."""
    code = f"""
import asyncio, sys
from exporter.program import Source, read
from exporter.agent import Agent
from exporter.push import Pusher
from exporter.selfmetrics import SelfMetrics

async def main():
    program = read(Source(None, {{"set": {settings!r}.split()}}))
    metrics = SelfMetrics()
    pusher = Pusher(Agent(program.config, (), metrics), metrics)
    await pusher.apply(program.config)
    await asyncio.sleep(0.5)
    await pusher.stop()

asyncio.run(main())
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ(), capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_libraries_of_the_push_are_loaded_where_they_are_used_and_nowhere_else() -> None:
    assert modules("log.level=info") & {"opentelemetry", "grpc"} == set()
    http = f"otlp.endpoint={DEAD} otlp.stop_timeout=0"
    assert modules(http) & {"opentelemetry", "grpc"} == {"opentelemetry"}
    assert "grpc" in modules(f"{http} otlp.protocol=grpc")


def test_the_status_page_tells_how_a_receiver_is(tmp_path: Path) -> None:
    with background() as server, Agent.start(tmp_path, environ(), config(endpoint=server.url, interval=1)) as agent:
        wait_for(server, "hw.power")
        found: list[dict[str, Any]] = []

        def told() -> bool:
            found[:] = json.loads(agent.get("/api/v1/status", accept="application/json").body)["otlp"]
            return bool(found) and found[0].get("up") is True

        until(told, "the receiver is not told")
        [receiver] = found
        assert server.url.removeprefix("http://") in receiver["name"]
        assert time.time() - 60 < receiver["last_success"] <= time.time()
