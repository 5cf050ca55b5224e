"""The HTTP server: routes (server.py), limits in front of them, listening sockets, the release route, and what other
packages serve through it (resources.py)."""

from exporter.http.server import Served, Server, serve

__all__ = ["Served", "Server", "serve"]
