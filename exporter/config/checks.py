"""What a text in the configuration must look like. Each check says in words what it accepts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Meta

from exporter.config import regex

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
HOST_PLACEHOLDERS: Final = ("proc", "sys", "dev", "kmsg", "run", "var_lib", "etc", "opt")

SECONDS: Final[dict[str, Any]] = {"unit": "seconds"}
"""``extra`` of a setting in seconds."""

_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_PATH: Final = re.compile(r"(\{(?P<name>[^{}]*)\})?(?P<rest>/[^{}\x00]*)")
_SERIES: Final = re.compile(r"[A-Za-z0-9_:*?\[\]!-]{1,200}")
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}")
_LABEL_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+/ -]{0,99}")


@dataclass(frozen=True, slots=True)
class Check:
    """``expected`` completes "expected …"."""

    expected: str
    accepts: Callable[[str], bool]


def checked(check: Check) -> Meta:
    """For ``Annotated``: the text must pass ``check``."""
    extra: dict[str, Any] = {"check": check}
    return Meta(extra=extra)


def keys_are_collectors(description: str) -> Meta:
    """For ``Annotated``: the keys are names of collectors."""
    extra: dict[str, Any] = {"keys": "collectors"}
    return Meta(description=description, extra=extra)


def is_address(text: str) -> bool:
    """HOST:PORT, where an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        return False
    if host.startswith("[") and host.endswith("]"):
        return _is_ip(host[1:-1], 6)
    return _is_ip(host, 4) or _is_host_name(host)


def _is_ip(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False


def _is_host_name(host: str) -> bool:
    # 10.0.0.300 is a mistyped address and no name: the last part of a name is never a number.
    return len(host) <= 253 and _HOST_NAME.fullmatch(host) is not None and not host.rpartition(".")[2].isdigit()


def is_listening_place(text: str) -> bool:
    """HOST:PORT, or ``unix:`` and the path of a socket, which the kernel lets have 107 bytes."""
    path = text.removeprefix("unix:")
    if path == text:
        return is_address(text)
    named = path.rpartition("/")[2] not in ("", ".")
    return named and is_path(path, ()) and len(path.encode("utf-8", "surrogateescape")) <= 107


def is_url(text: str) -> bool:
    """An http or https URL with a host."""
    if re.search(r"\s", text):
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def is_otlp_endpoint(text: str) -> bool:
    """A URL, or what else a gRPC library takes as an address."""
    return is_url(text) or is_address(text) or re.fullmatch(r"unix:/\S+", text) is not None


def is_path(text: str, placeholders: tuple[str, ...]) -> bool:
    """An absolute path, or one that begins with one of the placeholders and a slash."""
    match = _PATH.fullmatch(text)
    if match is None or ".." in match["rest"].split("/"):
        return False
    return match["name"] is None or match["name"] in placeholders


def _path_check(*placeholders: str) -> Check:
    known = ", ".join(f"{{{name}}}" for name in placeholders)
    words = f"an absolute path, which may begin with {known}" if placeholders else "an absolute path"
    return Check(words, lambda text: is_path(text, placeholders))


def _or_empty(check: Check) -> Check:
    return Check(f"{check.expected}, or nothing", lambda text: not text or check.accepts(text))


LISTEN: Final = Check(
    "HOST:PORT, such as 127.0.0.1:9859 or [::]:9859, or unix:/PATH (at most 107 bytes)", is_listening_place
)
SOCKET_MODE: Final = Check(
    'permissions in octal, as text, such as "0660"', lambda text: re.fullmatch(r"0?[0-7]{3}", text) is not None
)
URL: Final = _or_empty(Check("a URL that begins with http:// or https://", is_url))
OTLP_ENDPOINT: Final = _or_empty(
    Check("a URL that begins with http:// or https://, HOST:PORT or unix:PATH", is_otlp_endpoint)
)
REGEX: Final = Check(regex.EXPECTED, regex.is_quick)
NAME: Final = Check("a name", lambda text: _WORD.fullmatch(text) is not None)
NAME_OR_EMPTY: Final = _or_empty(NAME)
LABEL_KEY: Final = Check(
    "the key of a Kubernetes label, such as team or example.com/team; patterns are not taken",
    lambda text: _LABEL_KEY.fullmatch(text) is not None,
)
NODE_NAME: Final = _or_empty(Check("a host's name", lambda text: _NODE.fullmatch(text) is not None))
SERIES: Final = Check(
    "the name of a raw series, or a pattern with * and ?", lambda text: _SERIES.fullmatch(text) is not None
)
METRIC: Final = Check("a metric's name, or a pattern with * and ?", SERIES.accepts)
PATH: Final = _path_check()
PATH_OR_EMPTY: Final = _or_empty(PATH)
ROOTED_PATH: Final = _path_check("root")
DEVICE_PATH: Final = _path_check("root", "dev")
HOST_PATH: Final = _path_check("root", *(name for name in HOST_PLACEHOLDERS if name != "kmsg"))
SEARCH_PATH: Final = Check(
    "one or more absolute directories with colons between them",
    lambda text: all(HOST_PATH.accepts(part) for part in text.split(":")),
)
