"""Runs the agent as its users do: a process of its own, a YAML file, signals, HTTP.

with Agent.start(tmp_path, environ, config) as agent:
    agent.wait_for(lambda seen: seen.has("accel_temperature_celsius", device="0"))
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from exporter.negotiation import Format
from tests.exposition_readers import read

PATIENCE: Final = 20.0
"""Seconds after which a test that waits gives up: far more than anything here takes."""
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"
TEXT: Final = "text/plain; version=0.0.4"
_ADDRESS: Final = re.compile(r"https?://(\S+)/metrics\b")


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes
    seconds: float


class Sample(NamedTuple):
    type: str
    name: str
    labels: Mapping[str, str]
    value: float


class Seen(NamedTuple):
    """One scrape, read back. No series stands in it twice."""

    samples: tuple[Sample, ...]

    def all(self, name: str, **labels: str) -> list[Sample]:
        """The samples of a name that have these labels, among others."""
        wanted = labels.items()
        return [sample for sample in self.samples if sample.name == name and wanted <= sample.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """The value of the one sample that has these labels."""
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name}{labels} is there {len(found)} times: {found}"
        return found[0].value

    def has(self, name: str, **labels: str) -> bool:
        return bool(self.all(name, **labels))

    def state(self, collector: str = "nvidia") -> str:
        """The state that a collector is in."""
        states = self.all("accel_exporter_collector_state", collector=collector)
        current = [sample.labels["state"] for sample in states if sample.value == 1]
        assert len(current) == 1, f"{collector} is in {current}"
        return current[0]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}


def parse(body: bytes, format_: Format = Format.OPENMETRICS) -> Seen:
    """Raises ValueError for what prometheus_client's parser refuses, and for a series that stands there twice."""
    return Seen(
        tuple(Sample(found.type, found.name, dict(found.labels), float(found.value)) for found in read(body, format_))
    )


@dataclass(frozen=True, slots=True)
class Agent:
    """A running agent."""

    process: subprocess.Popen[bytes]
    folder: Path
    config_file: Path

    @classmethod
    @contextmanager
    def start(
        cls,
        folder: Path,
        environ: Mapping[str, str],
        config: Mapping[str, Any],
        *flags: str,
        ready: bool = True,
    ) -> Iterator[Agent]:
        """An agent with this configuration, ended by SIGTERM: its exit code is 0 and its log shows no traceback."""
        config_file = folder / "config.yaml"
        config_file.write_text(yaml.safe_dump(dict(config)))
        command = [sys.executable, "-m", "exporter", "serve", "--config", str(config_file), "--listen", "127.0.0.1:0"]
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [*command, *flags], env=dict(environ), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        agent = cls(process, folder, config_file)
        try:
            until(lambda: agent.process.poll() is not None or _ADDRESS.search(agent.output), "no address on stdout")
            if ready:
                until(lambda: agent.get("/readyz").status == 200, "not ready")
            yield agent
            agent.stop()
        except BaseException as error:
            error.add_note(f"the agent's log:\n{agent.log_text[-5000:]}")
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def output(self) -> str:
        """What it has written to its standard output."""
        return (self.folder / "stdout").read_text()

    @property
    def log_text(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    @property
    def log(self) -> list[Mapping[str, Any]]:
        """Its log: each line is a JSON object."""
        return [json.loads(line) for line in self.log_text.splitlines()]

    @property
    def address(self) -> str:
        found = _ADDRESS.search(self.output)
        assert found is not None, f"no address in {self.output!r}: {self.log_text[-2000:]}"
        return found[1]

    def get(self, path: str, *, accept: str = TEXT, method: str = "GET") -> Answer:
        """One request over a connection of its own."""
        request = urllib.request.Request(f"http://{self.address}{path}", headers={"Accept": accept}, method=method)
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                body = answer.read()
                return Answer(answer.status, answer.headers["Content-Type"], body, time.perf_counter() - began)
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
                return Answer(error.code, error.headers["Content-Type"], body, time.perf_counter() - began)

    def scrape(self, query: str = "") -> Seen:
        """/metrics, in OpenMetrics: there each sample keeps the name that it has on the wire."""
        answer = self.get(f"/metrics{query}", accept=OPENMETRICS)
        assert answer.status == 200, answer
        return parse(answer.body)

    def wait_for(self, condition: Callable[[Seen], bool], patience: float = PATIENCE) -> Seen:
        """Scrape until the condition holds; the scrape for which it does."""
        end = time.monotonic() + patience
        while not condition(seen := self.scrape()):
            assert time.monotonic() < end, f"did not come within {patience} s; the state is {_states(seen)}"
            time.sleep(0.02)
        return seen

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def reload(self, config: Mapping[str, Any] | str) -> None:
        """Put another configuration in place and ask for it."""
        self.config_file.write_text(config if isinstance(config, str) else yaml.safe_dump(dict(config)))
        self.signal(signal.SIGHUP)

    def stop(self) -> float:
        """SIGTERM, and the seconds until it has ended. Its exit code is 0 and its log shows no traceback."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        seconds = time.monotonic() - began
        assert code == 0, f"exit code {code}"
        assert "Traceback" not in self.log_text
        return seconds


def until(condition: Callable[[], object], message: str, patience: float = PATIENCE) -> None:
    """Wait for a condition."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"{message} within {patience} s"
        time.sleep(0.02)


def children(pid: int) -> Sequence[int]:
    """The processes that a process has started and that still run."""
    found = (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()
    return [int(child) for child in found]


def _states(seen: Seen) -> list[str]:
    states = (sample for sample in seen.samples if sample.name == "accel_exporter_collector_state")
    return [f"{sample.labels['collector']} {sample.labels['state']}" for sample in states if sample.value == 1]
