"""The least that any server on this machine needs: it sends prepared bytes. Runs as a process of its own."""

from __future__ import annotations

import argparse
import socket
import sys


def serve(listening: socket.socket, size: int) -> None:
    """Answer requests, one connection after the other, with a body of ``size`` bytes, until the process is ended."""
    body = bytes(size)
    plain = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n".encode() + b"\r\n" + body
    gzip = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {size}\r\n".encode() + b"\r\n" + body
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := connection.recv(65536):
                connection.sendall(gzip if b"gzip" in request else plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("size", type=int)
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", args.port)) as listening:
        serve(listening, args.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
