"""What both protocols need for a connection: headers, certificates, and the receiver's name in the log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from exporter import __version__
from exporter.config.otlp import OtlpEndpoint
from exporter.otlp.answer import Outcome

USER_AGENT: Final = f"accel-exporter/{__version__} OTel-OTLP-Exporter-Python/{__version__}"
LARGEST_FILE: Final = 1 << 20
_SHORTEST_SECRET: Final = 8
"""Characters of a header's value from which on it is masked: shorter ones are names of tenants and the like."""
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Sender(Protocol):
    """Sends requests to one receiver, one at a time."""

    def pack(self, body: bytes) -> bytes:
        """The request as it will wait and be sent. Called in a thread."""

    async def send(self, data: bytes) -> Outcome:
        """Send it once. Raises nothing but for a fault of the agent."""

    async def close(self) -> None: ...


class Unusable(Exception):
    """A file of the configuration cannot be used; the text names it and says why."""


def read(path: str) -> bytes:
    """Raises Unusable."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    if len(data) > LARGEST_FILE:
        raise Unusable(f"{path}: larger than 1 MiB")
    return data


def headers(endpoint: OtlpEndpoint) -> dict[str, str]:
    """Those of the configuration and of its file, which is read each time: secrets are rotated. Raises Unusable."""
    found = dict(endpoint.headers)
    if not endpoint.headers_file:
        return found
    for number, line in enumerate(read(endpoint.headers_file).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        # The line is not shown: it may be the secret itself.
        if not colon or not _NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise Unusable(f"{endpoint.headers_file}:{number}: expected NAME: VALUE, in ASCII")
        found[name] = value
    return found


def secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What an answer must not bring into the log: the headers' values, and of those with a scheme what follows it."""
    found = {text for value in headers.values() for text in (value, value.rpartition(" ")[2])}
    return tuple(sorted((text for text in found if len(text) >= _SHORTEST_SECRET), key=len, reverse=True))


def masked(answer: bytes, hidden: Sequence[str]) -> bytes:
    """A receiver's words without our secrets, which some repeat. The length stays, so a message can still be read."""
    for text in hidden:
        answer = answer.replace(text.encode(), b"*" * len(text.encode()))
    return answer


def stamps(endpoint: OtlpEndpoint) -> tuple[object, ...]:
    """Changes when a file of certificates does."""
    found: list[object] = []
    for path in (endpoint.certificate, endpoint.client_certificate, endpoint.client_key):
        try:
            state = Path(path).stat() if path else None
        except OSError:
            state = None
        found.append((state.st_ino, state.st_mtime_ns, state.st_size) if state is not None else None)
    return tuple(found)


def shown(endpoint: OtlpEndpoint) -> str:
    """The receiver in a log: no user, no password, no query."""
    if "://" not in endpoint.endpoint:
        return endpoint.endpoint
    parts = urlsplit(endpoint.endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
