"""Drives a real Chromium over its DevTools protocol: no driver and no browser library is needed, only the program."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

PATIENCE: Final = 30.0
"""Seconds after which a test that waits gives up."""
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-breakpad",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
    "--remote-debugging-address=127.0.0.1",
)


class NoBrowser(Exception):
    """Chromium is there and does not start; the message holds what it said."""


class Page:
    """One tab, and everything that went wrong or over the network in it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        """URLs of all requests."""
        self.complaints: list[str] = []
        """Errors and warnings of the console, exceptions, violations of the policy."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol. Raises RuntimeError with Chromium's words."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": number, "method": method, "params": parameters}))
        async with asyncio.timeout(PATIENCE):
            found = await answer
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        result: dict[str, Any] = found["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to a page; returns when its modules have run once."""
        await self.command("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def script(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        found = await self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {json.dumps(found['exceptionDetails'])[:1000]}")
        return found["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait for an expression to be true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.script(condition):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.script("document.body ? document.body.innerText : ''")
            raise AssertionError(f"never true: {condition}\nthe page shows:\n{shown}\n{self.complaints}") from None

    async def text(self, selector: str) -> str:
        """The visible text of the first element; empty where there is none."""
        found = await self.script(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    async def texts(self, selector: str) -> list[str]:
        """The visible text of each element."""
        found = await self.script(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)")
        return [str(each) for each in found]

    async def press(self, key: str) -> None:
        """A key, as a person presses it."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        known = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.command("Input.dispatchKeyEvent", type="keyDown", **known, **text)
        await self.command("Input.dispatchKeyEvent", type="keyUp", **known)

    async def size(self, width: int, height: int, scale: float = 1.0) -> None:
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def prefer(self, **features: str) -> None:
        """Media features, with underscores for hyphens: ``prefers_color_scheme="dark"``."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.command("Emulation.setEmulatedMedia", features=named)

    async def screenshot(self, file: Path) -> None:
        """The window, as PNG."""
        found = await self.command("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        file.write_bytes(base64.b64decode(found["data"]))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            found = json.loads(message.data)
            if "id" in found:
                waiting = self._waiting.pop(found["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(found)
            else:
                self._note(found["method"], found["params"])

    def _note(self, method: str, params: Mapping[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(f"console: {params['args']}")
            case "Runtime.exceptionThrown":
                self.complaints.append(f"exception: {params['exceptionDetails']}")
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"log: {params['entry']['text']} {params['entry'].get('url', '')}")
            case "Audits.issueAdded":
                self.complaints.append(f"issue: {params['issue']}")


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A Chromium of its own with an empty profile, and its first tab. Raises NoBrowser."""
    program = shutil.which("chromium")
    if program is None:
        raise NoBrowser("there is no program chromium")
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        profile = Path(folder)
        environ = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
        process = _start(
            [program, *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"], environ, profile / "said"
        )
        try:
            port = await _port(process, profile)
            async with aiohttp.ClientSession(trust_env=False) as session:
                yield_to = await _tab(session, port)
                async with session.ws_connect(yield_to, max_msg_size=0) as socket:
                    page = Page(socket)
                    try:
                        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
                            await page.command(f"{domain}.enable")
                        yield page
                    finally:
                        await page.close()
        finally:
            await asyncio.to_thread(_end, process)


def _start(command: list[str], environ: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as said:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=dict(environ), start_new_session=True
        )


async def _port(process: subprocess.Popen[bytes], folder: Path) -> str:
    """The port that Chromium chose."""
    file = folder / "profile" / "DevToolsActivePort"
    try:
        async with asyncio.timeout(PATIENCE):
            while not (file.exists() and (lines := file.read_text().splitlines())):
                if process.poll() is not None:
                    break
                await asyncio.sleep(0.05)
            else:
                return lines[0]
    except TimeoutError:
        pass
    said = (folder / "said").read_text(errors="replace")[-2000:]
    raise NoBrowser(f"chromium does not start here (exit code {process.poll()}); it says:\n{said}")


async def _tab(session: aiohttp.ClientSession, port: str) -> str:
    """Where the protocol of the first tab is spoken."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [tab for tab in await answer.json(content_type=None) if tab["type"] == "page"]
            if tabs:
                return str(tabs[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End Chromium with its children: it leads a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    process.wait(5)


def cannot(error: NoBrowser) -> None:
    """Leave a test out, with the reason: some sandboxes let no browser start, and that says nothing about the page."""
    pytest.skip(str(error))
