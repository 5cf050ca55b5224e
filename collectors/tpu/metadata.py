"""The virtual machine's id, by which the plugin names chips, from Compute Engine's metadata server."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Final

from collectors.dial import Address, dial

_HOST: Final = "169.254.169.254"
"""metadata.google.internal, without asking a name server that may not be there."""
_REQUEST: Final = (
    b"GET /computeMetadata/v1/instance/id HTTP/1.0\r\nHost: metadata.google.internal\r\nMetadata-Flavor: Google\r\n\r\n"
)
_ANSWER: Final = re.compile(rb"HTTP/1\.[01] 200 .*?\r\n\r\n\s*([0-9]{1,20})\s*\Z", re.DOTALL)
_OURS: Final = re.compile(rb"^Metadata-Flavor: Google\r?$", re.IGNORECASE | re.MULTILINE)
_MAX_ANSWER: Final = 16 * 1024


def instance_id(timeout: float, environ: Mapping[str, str] = os.environ) -> str:
    """The id, in digits; empty if nobody tells it. GCE_METADATA_HOST names another server, as with Google's libraries.

    A name in it is resolved without a limit of time: better give an address.
    """
    host, _, port = environ.get("GCE_METADATA_HOST", _HOST).partition(":")
    address = Address(host=host or _HOST, port=int(port) if port.isdecimal() else 80)
    deadline = time.monotonic() + timeout
    answer = b""
    try:
        with dial(address, deadline) as sock:
            sock.sendall(_REQUEST)
            while len(answer) < _MAX_ANSWER:
                sock.settimeout(max(0.001, deadline - time.monotonic()))
                piece = sock.recv(4096)
                if not piece:
                    break
                answer += piece
    except OSError:
        return ""
    found = _ANSWER.match(answer)
    return found[1].decode() if found is not None and _OURS.search(answer) else ""
