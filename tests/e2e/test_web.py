"""The whole agent behind TLS and passwords: what Prometheus needs to get in, and what nobody gets to see."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import Agent, until
from tests.e2e.host import make_host
from tests.prometheus import prometheus
from tests.secured import Authority, Site, basic, chain, hashed, key

SIMULATED: Mapping[str, Any] = {"node": "node-a", "simulate": {"devices": {"nvidia": 1}}}
GOOD = {"Authorization": basic("prometheus", "right").partition(": ")[2]}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    folder = tmp_path / "web"
    folder.mkdir()
    site = Site(folder)
    site.configure(
        tls={
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": "clients.pem",
            "client_allowed_sans": ["prometheus.example"],
        },
        basic_auth_users={"prometheus": hashed("right", 10)},
    )
    return site


def client_files(site: Site, authority: Authority, name: str) -> dict[str, str]:
    issued = authority.issue("prometheus.example")
    return {
        "cert_file": str(site.put(f"{name}.pem", chain(issued))),
        "key_file": str(site.put(f"{name}.key", key(issued))),
    }


def agent_of(site: Site, folder: Path, config: Mapping[str, Any] = SIMULATED) -> Any:
    web = str(site.folder / "web.yaml")
    return Agent.start(folder, dict(os.environ), config, "--web.config.file", web, ready=False)


def ask(agent: Agent, context: ssl.SSLContext, target: str, headers: Mapping[str, str] = GOOD) -> tuple[int, bytes]:
    host, _, port = agent.address.rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=20, context=context)
    try:
        connection.request("GET", target, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.prometheus
@pytest.mark.timeout(180)
def test_a_real_prometheus_scrapes_with_its_certificate_and_password(site: Site, tmp_path: Path) -> None:
    site.put("ca.pem", site.authority.pem)
    trusted = {"ca_file": str(site.folder / "ca.pem"), "server_name": "localhost"}
    mine = client_files(site, site.authority, "mine")
    users = {"username": "prometheus", "password": "right"}
    wrong = {"username": "prometheus", "password": "wrong"}
    foreign = client_files(site, Authority(), "foreign")
    site.put("other-ca.pem", Authority().pem)
    with agent_of(site, tmp_path) as agent:

        def job(name: str, **more: Any) -> dict[str, Any]:
            targets = [{"targets": [agent.address]}]
            return {"job_name": name, "scheme": "https", "static_configs": targets, **more}

        jobs = [
            job("good", tls_config={**trusted, **mine}, basic_auth=users),
            job("http1", tls_config={**trusted, **mine}, basic_auth=users, enable_http2=False),
            job("no password", tls_config={**trusted, **mine}),
            job("wrong password", tls_config={**trusted, **mine}, basic_auth=wrong),
            job("no certificate", tls_config=trusted, basic_auth=users),
            job("foreign certificate", tls_config={**trusted, **foreign}, basic_auth=users),
            job(
                "wrong ca",
                tls_config={**trusted, **mine, "ca_file": str(site.folder / "other-ca.pem")},
                basic_auth=users,
            ),
            job("plain", scheme="http"),
        ]
        with prometheus(tmp_path, jobs) as server:
            server.wait_for("count(up == 1) == 2")
            server.wait_for("count(up == 0) == 6")
            assert {found.labels["job"] for found in server.query("up == 1")} == {"good", "http1"}
            assert server.query('accel_power_watts{job="good"}')
            expiry = server.query('accel_exporter_web_certificate_not_after_timestamp_seconds{job="good"}')
            assert expiry[0].value > time.time()
            errors = {target["labels"]["job"]: target["lastError"] for target in server.targets()}
            assert "401" in errors["no password"]
            assert "401" in errors["wrong password"]
            assert "400" in errors["plain"]
            assert "certificate" in errors["wrong ca"]
            # A wrong password that is shown every second is no guessing, and locks nobody out.
            time.sleep(2)
            assert len(server.query("up == 1")) == 2


def test_sighup_takes_over_certificates_and_users_at_once(site: Site, tmp_path: Path) -> None:
    context = site.authority.client(site.authority.issue("prometheus.example"))
    with agent_of(site, tmp_path) as agent:
        assert ask(agent, context, "/healthz")[0] == 200
        site.configure(basic_auth_users={"new": hashed("new")})
        agent.signal(signal.SIGHUP)
        new = {"Authorization": basic("new", "new").partition(": ")[2]}
        anonymous = site.authority.client()
        until(lambda: "web configuration reloaded" in agent.log_text, "no reload", patience=5)
        assert ask(agent, anonymous, "/healthz", new)[0] == 200
        assert ask(agent, anonymous, "/healthz")[0] == 401


def test_a_wrong_file_ends_the_start_and_shows_no_secret(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text("basic_auth_users:\n  alice: hunter2\ntls_server_confg: {}\n")
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "--web.config.file", str(web), "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert f"{web}:2: basic_auth_users.alice: got (hidden)" in done.stderr
    assert f"{web}:3: tls_server_confg: unknown key" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_socket_goes_with_the_agent_and_one_of_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    place, output, config = tmp_path / "web.sock", tmp_path / "out", tmp_path / "config.json"
    config.write_text(json.dumps({**SIMULATED, "http": {"socket_mode": "0600"}}))
    command = [sys.executable, "-m", "exporter", "--config", str(config), "--listen", f"unix:{place}"]
    health = ["curl", "--silent", "--unix-socket", str(place), "http://localhost/healthz"]
    for end in (signal.SIGKILL, signal.SIGTERM):
        with output.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            until(lambda: f"unix:{place}  (http)" in output.read_text(), "does not serve")
            assert subprocess.run(health, capture_output=True, timeout=20, check=True).stdout == b"ok\n"
            assert place.stat().st_mode & 0o777 == 0o600
        finally:
            process.send_signal(end)
            process.wait(20)
        assert place.exists() is (end == signal.SIGKILL)


# What nobody gets to see

SECRET = "planted-secret-4711"
FOLDER = "planted-folder-4711"
PART = "planted-part-4711"
"""Of a URL's path. The log names receivers by their whole address, but for user and password."""


def planted(folder: Path) -> dict[str, Any]:
    """A configuration with a secret or a path in every key that can have one."""
    root = make_host(folder, 1).root
    (folder / "counters.csv").write_text("accel_nothing, gauge, Nothing.\n")

    def bridged(source: str) -> dict[str, Any]:
        return {
            "source": source,
            "url": f"http://{SECRET}:{SECRET}@127.0.0.1:9/{PART}/metrics?token={SECRET}",
            "bridge": {"bearer_token_file": f"{folder}/token", "ca_file": f"{folder}/ca.pem"},
        }

    return {
        "node": "node-a",
        "paths": {"root": str(root), "libraries": {"nvidia": f"{folder}/libraries"}},
        "intervals": {"normal": 0.3},
        "collectors": {"nvidia": bridged("both"), "amd": bridged("bridge")},
        "schema": {"raw_counters": f"{folder}/counters.csv"},
        "attribution": {
            "kubernetes": {
                "enabled": True,
                "pods_from": "apiserver",
                "api_url": f"https://{SECRET}:{SECRET}@127.0.0.1:9",
                "token_file": f"{folder}/token",
                "ca_file": f"{folder}/ca.pem",
                "kubelet_ca_file": f"{folder}/ca.pem",
                "pod_resources_socket": f"{folder}/kubelet.sock",
            },
            "slurm": {"enabled": True, "job_directories": [f"{folder}/jobs"], "json_directories": [f"{folder}/json"]},
        },
        "otlp": {
            "endpoint": f"http://{SECRET}:{SECRET}@127.0.0.1:9/{PART}",
            "headers": {"authorization": f"Bearer {SECRET}", "x-plain": SECRET},
            "headers_file": f"{folder}/headers",
            "resource_attributes": {"service.namespace": "open"},
            "endpoints": [{"endpoint": "http://127.0.0.1:9", "headers": {"api-key": SECRET}}],
        },
        "web_config_file": f"{folder}/web.yaml",
    }


def test_no_page_shows_a_secret_or_a_path_of_the_configuration(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    site = Site(folder)
    kept = hashed(SECRET)
    site.configure(tls=False, basic_auth_users={SECRET: kept})
    for name in ("token", "headers"):
        (folder / name).write_text(f"x-file: {SECRET}\n")
    (folder / "ca.pem").write_text(site.authority.pem)
    socket_place = folder / "web.sock"
    environ = {**os.environ, "PLANTED": SECRET}
    flags = ("--listen", f"unix:{socket_place}")
    with Agent.start(tmp_path, environ, planted(folder), *flags, ready=False) as agent:
        shown = {"Authorization": basic(SECRET, SECRET).partition(": ")[2]}

        def fetch(method: str, target: str, headers: Mapping[str, str]) -> str:
            host, _, port = agent.address.rpartition(":")
            connection = http.client.HTTPConnection(host, int(port), timeout=20)
            try:
                connection.request(method, target, headers=dict(headers))
                answer = connection.getresponse()
                return f"{answer.status}\n{answer.headers}\n{answer.read().decode()}"
            finally:
                connection.close()

        # Until the sources have failed and say so.
        until(lambda: "accel_exporter_attribution_up" in fetch("GET", "/metrics", shown), "no attribution")
        until(lambda: fetch("GET", "/readyz", shown).startswith("200"), "not ready")
        document = json.loads(fetch("GET", "/api/v1/openapi.json", shown).partition("\n\n")[2])
        pages = ["/", "/metrics", "/healthz", "/readyz", "/-/release", "/nothing", "/web.yaml", *document["paths"]]
        pages += [f"/assets/{name}" for name in ("app.js", "style.css", "../web.yaml", "%2e%2e/web.yaml")]
        pages += ["/metrics?schema=x", "/metrics?name[]=%20", "/api/v1/mapping?collector=x", "/api/v1/history?since=x"]
        answers = {
            (method, page, bool(headers)): fetch(method, page, headers)
            for page in pages
            for method in ("GET", "POST", "TRACE")
            for headers in (shown, {})
        }
        secrets = (SECRET, PART, FOLDER, kept, str(tmp_path), "web.yaml", "BEGIN")
        leaks = {
            (place, secret)
            for place, text in answers.items()
            for secret in secrets
            if secret in text and not (secret == "web.yaml" and "web.yaml" in place[1])
        }
        assert leaks == set()
        assert answers["GET", "/api/v1/config", True].startswith("200")
        assert '"web_config_file"' in answers["GET", "/api/v1/config", True]
        assert all(text.startswith("401") for (_, _, known), text in answers.items() if not known)
        assert SECRET not in agent.log_text
        assert kept not in agent.log_text
        assert SECRET not in agent.output
