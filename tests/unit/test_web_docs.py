"""docs/web-config.md and docs/security.md say what is so, and what they show works."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from exporter.healthy import tell
from exporter.http.limits import REASONS
from exporter.status.page import ASSETS, FOLDER
from exporter.web import tls
from exporter.web.credentials import AT_ONCE, GUESSES, LONGEST, NICE, WAITING
from exporter.web.keeper import LOOK_EVERY, RENEW_AFTER
from exporter.web.settings import CURVES, HEADERS, MAX_COST, TlsServer, WebSettings, read
from tests.secured import Site, chain, key
from tests.serving import PATIENCE, run
from tests.unit.test_repository import ROOT

GUIDE = (ROOT / "docs/web-config.md").read_text()
THREATS = (ROOT / "docs/security.md").read_text()
EXAMPLE = ROOT / "docs/examples/web-config.yml"


def blocks() -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", GUIDE, flags=re.MULTILINE | re.DOTALL)


def test_every_key_is_described() -> None:
    named = set(re.findall(r"`([A-Za-z0-9_.-]+)`", GUIDE))
    settings = {name.rpartition(".")[2] for name in named}
    assert set(TlsServer.__struct_fields__) <= settings
    assert {f"tls_server_config.{name}".partition(".")[0] for name in TlsServer.__struct_fields__} <= named
    assert {"http2", "headers", "interval", "burst"} <= settings
    assert set(WebSettings.__struct_fields__) - {"http_server_config", "rate_limit"} <= named
    assert set(CURVES) | set(HEADERS) <= named


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"a cost from 4 to {MAX_COST}" in GUIDE
    assert f"more than {GUESSES} wrong passwords from one address" in GUIDE
    assert f"more than {AT_ONCE} passwords of one address, or {WAITING} of all" in GUIDE
    assert f"bcrypt sees {LONGEST} bytes" in GUIDE
    assert f"(nice {NICE})" in GUIDE
    assert f"at most {RENEW_AFTER} handshakes" in GUIDE
    assert "every ten seconds" in GUIDE
    assert LOOK_EVERY == 10


def test_every_reason_of_a_refusal_by_this_file_is_explained() -> None:
    ours = REASONS[REASONS.index("handshake") :]
    assert [reason for reason in ours if f"`{reason}`" not in GUIDE] == []


def test_the_example_is_right_but_for_the_certificates_that_it_names(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.put("tls.crt", chain(site.certificate))
    site.put("tls.key", key(site.certificate))
    site.put("ca.crt", site.authority.pem)
    found = read(site.put("web-config.yml", EXAMPLE.read_text()))
    assert tls.load(found) is not None
    assert set(found.settings.basic_auth_users) == {"prometheus"}


@pytest.mark.prometheus
def test_prometheus_takes_the_scrape_configuration(tmp_path: Path) -> None:
    (block,) = [block for block in blocks() if "scrape_configs" in block]
    (tmp_path / "prometheus.yml").write_text(block)
    command = ["promtool", "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alive", [True, False])
def test_the_probe_tells_whether_the_agent_works(alive: bool) -> None:
    (block,) = [block for block in blocks() if "livenessProbe" in block]
    program, *arguments = yaml.safe_load(block)["livenessProbe"]["exec"]["command"]
    assert program == "accel-exporter"

    async def test() -> int:
        # Of this process alone: others may run here.
        server = await tell(lambda: (alive, "it broke"), lambda: (True, ""))
        assert server is not None
        try:
            command = ("-m", "exporter", *arguments, "--pid", str(os.getpid()))
            child = await asyncio.create_subprocess_exec(sys.executable, *command)
            return await asyncio.wait_for(child.wait(), PATIENCE)
        finally:
            server.close()
            await server.wait_closed()

    assert run(test) == (0 if alive else 1)


def test_every_route_stands_in_the_threat_model() -> None:
    document = yaml.safe_load((FOLDER / "openapi.json").read_text())
    routes = [
        *document["paths"],
        *(f"/assets/{name}" for name in ASSETS),
        "/metrics",
        "/healthz",
        "/readyz",
        "/-/release",
    ]
    table = THREATS.partition("## Routes")[2].partition("## ")[0]
    named = [text.removeprefix("POST ").rstrip("…") for text in re.findall(r"`([^`]*/[^`]*)`", table)]
    assert "/" in named
    missing = [route for route in routes if not any(name != "/" and route.startswith(name) for name in named)]
    assert [route for route in missing if route != "/"] == []
