"""A real Prometheus server on the loopback, for tests that want to know what a scraper makes of us.

@pytest.mark.prometheus
def test_something(tmp_path):
    with prometheus(tmp_path, [{"job_name": "agent", "static_configs": [{"targets": [address]}]}]) as server:
        server.wait_for("up == 1")
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

START_DEADLINE = 60.0
ANSWER_DEADLINE = 30.0
ATTEMPTS = 3
"""Another program can take the port between our choice and Prometheus' start."""


class Sample(NamedTuple):
    labels: Mapping[str, str]
    """Without ``__name__`` where the expression drops it."""
    value: float


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def api(self, path: str, **parameters: str) -> Any:
        """The data of an API's answer. Raises AssertionError with Prometheus' words for a refused query."""
        target = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(target, timeout=ANSWER_DEADLINE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{target}: {error.read().decode(errors='replace')}") from error

    def query(self, expression: str) -> list[Sample]:
        """The value of an instant expression, now: a vector, or a scalar as one sample without labels."""
        data = self.api("query", query=expression)
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(found["metric"], float(found["value"][1])) for found in data["result"]]

    def wait_for(self, expression: str, deadline: float = ANSWER_DEADLINE) -> list[Sample]:
        """Query until there is a result. Raises AssertionError that tells the state of the targets."""
        end = time.monotonic() + deadline
        while not (found := self.query(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"{expression} stays empty; targets: {self.targets()}")
            time.sleep(0.1)
        return found

    def targets(self) -> list[dict[str, Any]]:
        """The active targets with their health and last error."""
        return [
            {key: target.get(key) for key in ("scrapeUrl", "health", "lastError", "labels")}
            for target in self.api("targets", state="active")["activeTargets"]
        ]


@contextmanager
def prometheus(
    folder: Path,
    scrape_configs: Sequence[Mapping[str, Any]],
    *,
    rules: Sequence[Path] = (),
    interval: str = "1s",
) -> Iterator[Prometheus]:
    """A server that scrapes and evaluates every ``interval``, with its storage and its log in ``folder``."""
    configuration = folder / "prometheus.yml"
    # JSON is YAML.
    configuration.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
                "rule_files": [str(path) for path in rules],
                "scrape_configs": list(scrape_configs),
            }
        )
    )
    process, server = _start(folder, configuration)
    try:
        yield server
    finally:
        process.terminate()
        try:
            process.wait(ANSWER_DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(folder: Path, configuration: Path) -> tuple[subprocess.Popen[bytes], Prometheus]:
    output = folder / "prometheus.log"
    for attempt in range(ATTEMPTS):
        port = _free_port()
        with output.open("wb") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={configuration}",
                    f"--storage.tsdb.path={folder / f'storage-{attempt}'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        url = f"http://127.0.0.1:{port}"
        try:
            if _comes_up(process, url):
                return process, Prometheus(url)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.poll() is None:
            process.kill()
        process.wait()
    raise AssertionError(f"prometheus does not start: {output.read_text(errors='replace')[-3000:]}")


def _comes_up(process: subprocess.Popen[bytes], url: str) -> bool:
    end = time.monotonic() + START_DEADLINE
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=ANSWER_DEADLINE):
                # Another server on the same port would answer, too, while ours ends.
                return process.poll() is None
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
