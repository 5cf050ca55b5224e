"""Simulated nodes of every vendor that there is, whose failing devices fail within seconds instead of minutes.

The agents have troubles of their own: a kubelet that hands out unknown ids, one that is away,
and a receiver of OTLP that
is away.

with fleet(tmp_path) as agents:
    ...  # ready to be scraped
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from exporter import serve
from exporter.program import Program, Source, read
from exporter.registry import catalogues
from tests.fakes.kubelet.messages import Container, Devices, Pod
from tests.fakes.kubelet.server import Kubelet, pods

NODES: Final = ("node-a", "node-b")
DEVICES: Final = 4
"""Of each vendor: one trains, one serves, one is idle, one fails."""
CYCLE: Final = 20.0
"""Seconds from sound over errors, heat, a fatal fault and lost to sound again."""
PATIENCE: Final = 60.0
ROOT: Final = Path(__file__).resolve().parents[1]
OWNERS: Final[Sequence[Mapping[str, Any]]] = (
    {"devices": ["0"], "namespace": "research", "pod": "llm-0", "job_name": "llm", "tenant": "team-a"},
    {"devices": ["1"], "namespace": "serving", "pod": "chat-0", "job_name": "chat", "tenant": "team-b"},
    {"devices": ["1"], "namespace": "serving", "pod": "search-0", "job_name": "search", "tenant": "team-c"},
    {"devices": ["2"], "namespace": "research", "pod": "notebook-0", "job_name": "notebook", "tenant": "team-a"},
    {"devices": ["3"], "namespace": "research", "pod": "llm-1", "job_name": "llm", "tenant": "team-a"},
)
"""Device 1 is shared, device 2 is held and idle, device 3 fails."""


NOWHERE: Final = "http://127.0.0.1:1"
"""Nobody listens there."""
RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu", "aws.amazon.com/neuron")


class Agent(NamedTuple):
    address: str
    pid: int


def vendors() -> list[str]:
    """The collectors of the repository."""
    return sorted(item.name for item, _ in catalogues().values() if item.module.startswith("collectors."))


def configurations(folder: Path) -> dict[str, dict[str, Any]]:
    """Node → configuration: the vendors are dealt out to the nodes. The first node's kubelet is there."""
    dealt = {node: vendors()[place :: len(NODES)] for place, node in enumerate(NODES)}
    return {node: _configuration(node, own, folder / f"{node}.sock") for node, own in dealt.items()}


def _configuration(node: str, vendors: Sequence[str], kubelet: Path) -> dict[str, Any]:
    kubernetes = {"enabled": True, "pod_resources_socket": str(kubelet), "pods_from": "none", "dra": False, "poll": 1}
    return {
        "listen": ["127.0.0.1:0"],
        "node": node,
        "intervals": {"fast": 0.5, "normal": 0.5, "slow": 0.5},
        "simulate": {"devices": dict.fromkeys(vendors, DEVICES), "parts": dict.fromkeys(vendors, 1)},
        "device_classes": [{"device_class": "large", "memory_min_gib": 64}, {"device_class": "small"}],
        "attribution": {"static": [dict(owner) for owner in OWNERS], "kubernetes": kubernetes},
        "otlp": {"endpoint": NOWHERE, "interval": 1, "give_up_after": 1},
    }


@contextlib.contextmanager
def fleet(folder: Path) -> Iterator[list[Agent]]:
    """The agents of all nodes, ended by their pids."""
    strangers = [
        Pod("ns", f"p{n}", [Container("c", [Devices(name, ["no-such-id"])])]) for n, name in enumerate(RESOURCES)
    ]
    with contextlib.ExitStack() as stack:
        kubelet = stack.enter_context(Kubelet(folder / f"{NODES[0]}.sock"))
        kubelet.script = pods(strangers)
        running = [stack.enter_context(_agent(folder, *item)) for item in configurations(folder).items()]
        yield [Agent(_address(output, process), process.pid) for output, process in running]


@contextlib.contextmanager
def _agent(folder: Path, node: str, config: Mapping[str, Any]) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    file, output = folder / f"{node}.yaml", folder / f"{node}.log"
    file.write_text(yaml.safe_dump(dict(config)))
    with output.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.simulated_fleet", str(file)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield output, process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(output: Path, process: subprocess.Popen[bytes]) -> str:
    """Where an agent serves, once it is ready."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        found = re.search(r"http://(\S+)/metrics\b", output.read_text(errors="replace"))
        with contextlib.suppress(OSError):
            if found and urllib.request.urlopen(f"http://{found[1]}/readyz", timeout=PATIENCE).status == 200:
                return found[1]
        time.sleep(0.05)
    raise AssertionError(f"the agent is not ready: {output.read_text(errors='replace')[-3000:]}")


def hastened(program: Program) -> Program:
    """The same program, with devices that fail sooner than the configuration can say."""
    members = [
        msgspec.structs.replace(
            member,
            spec=msgspec.structs.replace(member.spec, options={**member.spec.options, "cycle_seconds": CYCLE}),
        )
        for member in program.members
    ]
    return msgspec.structs.replace(program, members=tuple(members))


def main(path: str) -> int:
    source = Source(Path(path), {})
    return serve.run(source, hastened(read(source, os.environ)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
