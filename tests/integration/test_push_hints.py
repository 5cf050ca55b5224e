"""What everyone may read of receivers of OTLP: no path, no password, no secret, whoever writes the words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from exporter.agent import Agent
from exporter.config.load import load
from exporter.config.otlp import Otlp
from exporter.push import Pusher
from exporter.selfmetrics import SelfMetrics
from exporter.status.model import OtlpEndpoint
from tests.otlp_servers import receiver
from tests.serving import run, until

SECRET = "s3cr3t-of-ours"


async def told(settings: dict[str, Any]) -> OtlpEndpoint:
    """What the status page tells of the one receiver as soon as it has a hint."""
    otlp = Otlp(**{"interval": 1.0, "stop_timeout": 0.0, **settings})
    config = msgspec.structs.replace(load(None, {}, {}, {}), otlp=otlp)
    metrics = SelfMetrics()
    pusher = Pusher(Agent(config, (), metrics), metrics)
    await pusher.apply(config)
    try:
        await until(lambda: any(one.hint for one in pusher.receivers()))
        [found] = pusher.receivers()
        return found
    finally:
        await pusher.stop()


def test_a_file_that_is_missing_is_told_without_its_folders(tmp_path: Path) -> None:
    file = tmp_path / SECRET / "headers"
    found = run(lambda: told({"endpoint": "http://127.0.0.1:1", "headers_file": str(file)}))
    assert found.hint == "…/headers: No such file or directory"


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (404, "Cannot POST {path}", "Cannot POST …/metrics"),
        (400, "see {url}?key={secret}, please", "see http://127.0.0.1"),
        (400, "http://[{secret} is no URL", "… is no URL"),
        (401, "unknown: {authorization}", "unknown: ***"),
    ],
)
def test_what_a_receiver_repeats_is_told_without_paths_and_secrets(status: int, body: str, shown: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        values = {"path": request.path, "url": str(request.url), "secret": SECRET}
        text = body.format(authorization=request.headers["Authorization"], **values)
        return web.Response(status=status, text=text)

    async def test() -> OtlpEndpoint:
        async with receiver(answer) as server:
            endpoint = f"{server.url}/{SECRET}/v1/metrics?key={SECRET}"
            return await told({"endpoint": endpoint, "headers": {"Authorization": f"Bearer {SECRET}"}})

    found = run(test)
    assert shown in found.hint
    assert SECRET not in f"{found}"


def test_a_redirect_is_told_without_the_path_that_it_leads_to() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=308, headers={"Location": f"https://user:{SECRET}@elsewhere.example{request.path}"})

    async def test() -> OtlpEndpoint:
        async with receiver(answer) as server:
            return await told({"endpoint": f"{server.url}/{SECRET}/v1/metrics"})

    found = run(test)
    assert "redirected to https://elsewhere.example; set that as endpoint" in found.hint
    assert SECRET not in f"{found}"


def test_a_socket_is_named_without_its_folders(tmp_path: Path) -> None:
    socket = tmp_path / SECRET / "otlp.sock"
    found = run(lambda: told({"endpoint": f"unix:{socket}", "protocol": "grpc", "insecure": True}))
    assert found.name == "unix:…/otlp.sock"
    assert SECRET not in f"{found}"
