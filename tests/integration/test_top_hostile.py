"""``accel-exporter top`` beside servers that mean it no good, and fingers that are fast."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.test_top import once_beside, window


def test_an_answer_that_is_nested_without_end_is_told() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"what":' * 100_000
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            done = await once_beside("--url", f"http://127.0.0.1:{port}")
        assert done.returncode == 1
        assert "answers with something else than an accel-exporter's JSON" in done.stderr
        assert "Traceback" not in done.stderr

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX-Without-End: ", b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_it_quits_at_once_while_an_answer_comes_byte_by_byte(head: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        writer.write(head)
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.1)
        except ConnectionError:
            return
        finally:
            writer.transport.abort()

    asked = asyncio.Event()

    async def story() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with window("--url", f"http://127.0.0.1:{port}") as opened:
                await asyncio.to_thread(opened.until, "Waiting for the first answer")
                await asked.wait()
                opened.press(b"q")
                # Were the thread waited for, this would end with the test's patience alone.
                assert await asyncio.to_thread(opened.end) == 0

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("keys", [b"qq", b"xq", b"Q"])
def test_q_counts_also_where_it_arrives_with_other_keys(keys: bytes) -> None:
    with window("--simulate", "nvidia=1", "--every", "0.3") as opened:
        opened.until("q quits")
        opened.press(keys)
        assert opened.end() == 0
