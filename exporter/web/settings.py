"""The web configuration file, in the format that Prometheus' exporter-toolkit has made the usual one.

Names and meanings are the toolkit's. What this agent does differently stands in docs/web-config.md; it always refuses
rather than do less than the file asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from msgspec import inspect as kinds

from exporter.config import yaml as config_yaml
from exporter.config.build import Context, build, is_text
from exporter.config.checks import Check, checked
from exporter.config.problems import ConfigError, Hidden, KeyPath, Problem, one_of, show_key, unknown, wrong
from exporter.config.yaml import Node, locate, source_of

MAX_COST: Final = 14
"""Of a password's hash: one step more, and each wrong guess costs seconds of a core."""
MAX_USERS: Final = 1000

CIPHERS: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""Names of suites of TLS 1.2 → OpenSSL's: those that Go's crypto/tls counts as secure."""
TLS13_CIPHERS: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""TLS 1.3 always has all of them, here as in Go."""
CURVES: Final[Mapping[str, str]] = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}
HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""Headers that can be added to answers → the values that they can have, where not any."""

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?)(ns|us|µs|μs|ms|s|m|h)")
_HASH: Final = re.compile(r"\$2[abxy]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")


def seconds(text: str) -> float:
    """A duration as Go writes it, such as ``1m30s``. Raises ValueError."""
    if text != "0" and not re.fullmatch(f"(?:{_SPAN.pattern})+", text):
        raise ValueError("expected a duration such as 500ms, 1s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in _SPAN.findall(text))


def _is_duration(text: str) -> bool:
    try:
        return seconds(text) <= 3600
    except ValueError:
        return False


def _is_hash(text: str) -> bool:
    found = _HASH.fullmatch(text)
    return found is not None and 4 <= int(found[1]) <= MAX_COST


def _one_of(names: tuple[str, ...]) -> Check:
    return Check(f"one of {', '.join(names)}", names.__contains__)


_FILE: Final = Check("the path of a file", lambda text: bool(text))
_PEM: Final = Check("PEM, from BEGIN to END", lambda text: "-----BEGIN " in text and "-----END " in text)
_CIPHER: Final = _one_of((*CIPHERS, *TLS13_CIPHERS))
_CURVE: Final = _one_of(tuple(CURVES))
_DURATION: Final = Check("a duration of at most 1h, such as 500ms, 1s or 1m30s", _is_duration)
_BCRYPT: Final = Check(
    f"a hash by bcrypt with a cost from 4 to {MAX_COST}, as `htpasswd -nBC 10 ''` makes it", _is_hash
)

_LINES: Final[dict[str, Any]] = {"lines": True}
Pem = Annotated[str, checked(_PEM), Meta(max_length=1 << 18, extra=_LINES)]
File = Annotated[str, checked(_FILE)]
VERIFYING: Final = ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_CLIENT_AUTH: Final = ("NoClientCert", "RequestClientCert", *VERIFYING)
ClientAuth = Annotated[
    str,
    checked(
        Check(
            f"one of {', '.join(_CLIENT_AUTH)} (RequireAnyClientCert proves nothing: everyone can make a certificate)",
            _CLIENT_AUTH.__contains__,
        )
    ),
]
Version = Annotated[str, checked(Check("TLS12 or TLS13 (older ones are broken)", ("TLS12", "TLS13").__contains__))]


class TlsServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How connections are encrypted and which certificates clients show. Without any key: not encrypted."""

    cert: Pem | None = None
    key: Pem | None = None
    client_ca: Pem | None = None
    cert_file: File | None = None
    key_file: File | None = None
    client_auth_type: ClientAuth = "NoClientCert"
    client_ca_file: File | None = None
    client_allowed_sans: Annotated[tuple[File, ...], Meta(min_length=1, max_length=1000)] | None = None
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: Annotated[tuple[Annotated[str, checked(_CIPHER)], ...], Meta(max_length=100)] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: Annotated[tuple[Annotated[str, checked(_CURVE)], ...], Meta(max_length=10)] = ()

    @property
    def enabled(self) -> bool:
        return self != TlsServer()


class HttpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What answers look like."""

    http2: bool = True
    headers: Mapping[str, str] = {}


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests of all clients together: one each ``interval``, and ``burst`` of them at once. 0: as many as come."""

    interval: Annotated[str, checked(_DURATION)] = "0"
    burst: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Paths in it are relative to the file's own directory."""

    tls_server_config: TlsServer = TlsServer()
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: Mapping[str, Annotated[str, checked(_BCRYPT)]] = {}
    rate_limit: RateLimit = RateLimit()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, and where in the file they stand."""

    path: Path
    settings: WebSettings
    tree: Node

    def problem(self, key: KeyPath, found: str, expected: str) -> Problem:
        return Problem(source_of(self.tree, key), show_key(key), found, expected)

    def resolve(self, name: str) -> Path:
        return self.path.parent / name


def read(path: Path) -> Found:
    """Raises ConfigError with everything that is wrong in the file itself; certificates are not looked at."""
    raw, problems = config_yaml.read(path)
    tree = _prepared(raw, ())
    kind = kinds.type_info(WebSettings)
    settings = build(kind, tree, (), Context({}, problems))
    if isinstance(settings, WebSettings) and not problems:
        problems += _contradictions(settings, tree)
    if problems or not isinstance(settings, WebSettings):
        raise ConfigError(problems)
    kept = {name: value for name, value in settings.http_server_config.headers.items() if value}
    http = msgspec.structs.replace(settings.http_server_config, headers=kept)
    return Found(path=path, settings=msgspec.structs.replace(settings, http_server_config=http), tree=tree)


def warnings(found: Found) -> tuple[str, ...]:
    """What of the file has not the effect that one may expect."""
    lines = []
    explicit = locate(found.tree, ("http_server_config", "http2"))
    if explicit is not None and explicit.value is True:
        lines.append("http2 has no effect: answers come over HTTP/1.1, which every client of HTTP/2 speaks, too")
    if found.settings.tls_server_config.client_auth_type == "RequestClientCert":
        lines.append("RequestClientCert lets in everyone, with or without a certificate: none is asked for")
    return tuple(f"{found.path}: {line}" for line in lines)


_SHOWN: Final = frozenset(
    {("tls_server_config", name) for name in TlsServer.__struct_fields__ if name not in ("cert", "key", "client_ca")}
    | {("http_server_config", name) for name in HttpServer.__struct_fields__}
    | {("rate_limit", name) for name in RateLimit.__struct_fields__}
)
"""Whatever else stands in this file may be a password, if only by a wrong indentation."""


def _prepared(node: Node, path: KeyPath) -> Node:
    value = node.value
    if isinstance(value, dict):
        return Node({name: _prepared(below, (*path, name)) for name, below in value.items()}, node.source)
    if isinstance(value, tuple):
        return Node(tuple(_prepared(below, (*path, place)) for place, below in enumerate(value)), node.source)
    if path == ("rate_limit", "interval") and value == 0:
        return Node("0", node.source)
    if value is None or path[:2] in _SHOWN:
        return node
    return Node(Hidden(value), node.source)


def _contradictions(settings: WebSettings, tree: Node) -> Iterator[Problem]:
    yield from _tls(settings.tls_server_config, tree)
    for name, value in settings.http_server_config.headers.items():
        path = ("http_server_config", "headers", name)
        allowed = HEADERS.get(name)
        if allowed is None:
            yield unknown(source_of(tree, path), path, value, list(HEADERS))
        elif value and allowed and value not in allowed:
            yield wrong(source_of(tree, path), path, value, one_of(value, allowed))
        elif not value.isascii() or not is_text(value):
            yield wrong(source_of(tree, path), path, value, "printable ASCII")
    for name in settings.basic_auth_users:
        if not name or ":" in name or not is_text(name, 255):
            user = ("basic_auth_users", name)
            expected = "1 to 255 printable characters without a colon, which ends the name where it is sent"
            yield Problem(source_of(tree, user), show_key(user), "this is no user's name", expected)
    if len(settings.basic_auth_users) > MAX_USERS:
        users = ("basic_auth_users",)
        yield Problem(source_of(tree, users), show_key(users), "too many users", f"at most {MAX_USERS}")
    limit = settings.rate_limit
    if seconds(limit.interval) and not limit.burst:
        burst = ("rate_limit", "burst")
        yield wrong(source_of(tree, burst), burst, limit.burst, "at least 1, since 0 would let nobody in")


def _tls(tls: TlsServer, tree: Node) -> Iterator[Problem]:
    def problem(name: str, found: str, expected: str) -> Problem:
        path = ("tls_server_config", name)
        return Problem(source_of(tree, path), show_key(path), found, expected)

    if not tls.enabled:
        return
    for name in ("cert", "key", "client_ca"):
        inline, file = getattr(tls, name), getattr(tls, f"{name}_file")
        if inline and file:
            yield problem(name, f"stands there beside {name}_file", "one of the two")
        if not inline and not file and name != "client_ca":
            yield problem(f"{name}_file", "the key is missing", f"it or {name}, wherever tls_server_config has any key")
    verified = tls.client_auth_type in VERIFYING
    ca = "client_ca_file" if tls.client_ca_file else "client_ca" if tls.client_ca else ""
    both = " or ".join(VERIFYING)
    if ca and not verified:
        yield problem(ca, f"has no effect with client_auth_type {tls.client_auth_type}", f"there {both}")
    if not ca and verified:
        yield problem(
            "client_ca_file", "the key is missing", f"it or client_ca, with client_auth_type {tls.client_auth_type}"
        )
    if tls.client_allowed_sans is not None and not verified:
        found = f"proves nothing with client_auth_type {tls.client_auth_type}"
        yield problem("client_allowed_sans", found, f"there {both}")
    if tls.min_version > tls.max_version:
        yield problem("min_version", f'got "{tls.min_version}"', f"at most max_version, which is {tls.max_version}")
    if tls.cipher_suites and tls.max_version == "TLS12" and not any(name in CIPHERS for name in tls.cipher_suites):
        yield problem("cipher_suites", "has only suites of TLS 1.3", "others, too, since max_version is TLS12")
