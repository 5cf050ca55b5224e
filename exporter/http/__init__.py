"""The HTTP server: routes (server.py), limits in front of them, listening sockets, the release route, the page."""

from exporter.http.landing import CollectorLine, Overview
from exporter.http.server import Served, Server, serve

__all__ = ["CollectorLine", "Overview", "Served", "Server", "serve"]
