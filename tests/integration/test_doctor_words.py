"""What others say of their troubles, as ``accel-exporter doctor`` prints it to a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grpc
import yaml

from exporter import doctor
from exporter.doctor import Finding, VendorReport
from exporter.program import Source, read
from tests.fakes.kubelet.server import Kubelet, refusal

EVIL = "\x1b]0;owned\x07\n  ok    all is well\u202e"


def test_the_kubelets_words_neither_steer_the_terminal_nor_begin_a_line(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    with Kubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.script = refusal(grpc.StatusCode.UNKNOWN, EVIL)
        kubernetes = {"enabled": True, "pod_resources_socket": str(kubelet.socket), "pods_from": "none"}
        config.write_text(
            yaml.safe_dump({"simulate": {"devices": {"nvidia": 1}}, "attribution": {"kubernetes": kubernetes}})
        )
        command = [sys.executable, "-m", "exporter", "doctor", "--config", str(config)]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert "owned" in told
    assert all(line.isprintable() for line in told.splitlines())
    assert not [line for line in told.split("\n") if line.startswith("  ok    all is well")]


def test_nor_do_those_of_a_driver(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("simulate: {devices: {nvidia: 1}}")
    finding = Finding("problem", f"the driver says {EVIL}", f"do {EVIL}")
    report = VendorReport(collector="acme", title="Acme", state="ok", devices=0, findings=(finding,))
    told = doctor._text(read(Source(path=config, flags={})), [report], [finding], [])
    assert told.count("owned") == 4
    assert all(line.isprintable() for line in told.split("\n"))
    assert not [line for line in told.split("\n") if line.startswith("  ok    all is well")]
