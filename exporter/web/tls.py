"""The TLS context that a web configuration file asks for, made of certificates as they are now.

Files are read here, once and whole, and OpenSSL is given their text: what was checked is what is used, also while a
Secret's files are being exchanged.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from exporter.config.problems import ConfigError
from exporter.config.text import read_text
from exporter.web.certificate import Validity, validity
from exporter.web.settings import CIPHERS, CURVES, VERIFYING, Found, TlsServer

SECURE: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Suites of TLS 1.2 where none are named: with forward secrecy, and authenticated."""
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_SECTION: Final = "tls_server_config"
_NAMES: Final = frozenset(("DNS", "email", "IP Address", "URI"))
"""Kinds of alternative names, as Python calls them."""

_Setter = Callable[[ssl.SSLContext, str], None]


class Pems(msgspec.Struct, frozen=True, kw_only=True):
    """What the files held, or the configuration itself. It has no readable form: the key is in it."""

    cert: str
    key: str
    client_ca: str

    def __repr__(self) -> str:
        return "Pems(…)"


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """What connections are encrypted with."""

    settings: TlsServer
    pems: Pems
    validity: Validity
    """Of the server's certificate."""

    def context(self) -> ssl.SSLContext:
        """A context of its own, which works: one was made before."""
        return _context(self.settings, self.pems)

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client is among those that are named. ``certificate``: as ``SSLObject.getpeercert`` tells it."""
        allowed = self.settings.client_allowed_sans
        return allowed is None or not names(certificate).isdisjoint(allowed)


def files(found: Found) -> tuple[Path, ...]:
    """All files whose change may change what is served."""
    tls = found.settings.tls_server_config
    named = (tls.cert_file, tls.key_file, tls.client_ca_file)
    return (found.path, *(found.resolve(name) for name in named if name))


def load(found: Found) -> Tls | None:
    """Read the certificates and try them; None: no TLS is asked for. Raises ConfigError."""
    settings = found.settings.tls_server_config
    if not settings.enabled:
        return None
    pems = Pems(**{name: _text(found, name) for name in ("cert", "key", "client_ca")})
    return Tls(settings=settings, pems=pems, validity=_try(found, settings, pems))


def _text(found: Found, name: str) -> str:
    inline, file = getattr(found.settings.tls_server_config, name), f"{name}_file"
    if inline:
        return str(inline)
    named = getattr(found.settings.tls_server_config, file)
    if not named:
        return ""
    key = (_SECTION, file)
    try:
        text = read_text(found.resolve(named), f"{_SECTION}.{file}")
    except ConfigError as error:
        (problem,) = error.problems
        raise ConfigError([found.problem(key, f"{problem.source}: {problem.found}", problem.expected)]) from error
    if "-----BEGIN " not in text:
        raise ConfigError([found.problem(key, f"{found.resolve(named)}: no PEM is in it", "PEM, from BEGIN to END")])
    return text


def _try(found: Found, settings: TlsServer, pems: Pems) -> Validity:
    """Make a context, and tell when its certificate is valid. Raises ConfigError."""

    def problem(name: str, what: str, expected: str) -> ConfigError:
        key = (_SECTION, name if getattr(settings, name) else f"{name}_file")
        return ConfigError([found.problem(key, what, expected)])

    try:
        valid = validity(pems.cert)
    except ValueError as error:
        raise problem("cert", "no certificate in it can be read", "a certificate as PEM") from error
    try:
        _context(settings, pems)
    except _Encrypted as error:
        raise problem("key", "the key is encrypted", "a key without a passphrase") from error
    except _Unusable as error:
        raise problem(error.name, error.found, error.expected) from error
    return valid


class _Encrypted(Exception):
    """The key needs a passphrase."""


class _Unusable(Exception):
    """OpenSSL does not take a part."""

    def __init__(self, name: str, found: str, expected: str) -> None:
        super().__init__(name)
        self.name, self.found, self.expected = name, found, expected


def _context(settings: TlsServer, pems: Pems) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    suites = [CIPHERS[name] for name in settings.cipher_suites if name in CIPHERS]
    # Only suites of TLS 1.3 are named: then there is no other version.
    only13 = bool(settings.cipher_suites) and not suites
    context.minimum_version = _VERSIONS["TLS13" if only13 else settings.min_version]
    context.maximum_version = _VERSIONS[settings.max_version]
    context.set_ciphers(":".join(suites) or SECURE)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    # A session that is taken up again is one that was not checked again. Scrapers keep their connections.
    context.num_tickets = 0
    if settings.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    _set_curves(context, settings)
    _set_certificate(context, pems)
    if settings.client_auth_type in VERIFYING:
        required = settings.client_auth_type == "RequireAndVerifyClientCert"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        # A CA that another one has signed is one to trust, too, as it is in Go.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=_ascii(pems.client_ca))
        except (ssl.SSLError, ValueError) as error:
            raise _Unusable("client_ca", "no certificate in it can be read", "certificates of CAs, as PEM") from error
    return context


def _ascii(pem: str) -> str:
    """Python takes nothing else, while bundles of CAs have names of all languages in their comments."""
    return pem.encode("ascii", "replace").decode("ascii")


def _set_curves(context: ssl.SSLContext, settings: TlsServer) -> None:
    curves = [CURVES[name] for name in settings.curve_preferences]
    # Python 3.15 and later.
    setter: _Setter | None = getattr(ssl.SSLContext, "set_groups", None)
    if setter is not None and curves:
        setter(context, ":".join(curves))
    elif len(curves) > 1:
        names = ", ".join(settings.curve_preferences)
        raise _Unusable(
            "curve_preferences",
            f"got {names}",
            "one curve, or none for OpenSSL's own order (this Python takes one alone)",
        )
    elif curves:
        context.set_ecdh_curve(curves[0])


def _set_certificate(context: ssl.SSLContext, pems: Pems) -> None:
    def no_passphrase() -> str:
        raise _Encrypted

    with ExitStack() as stack:
        places = []
        for text in (pems.cert, pems.key):
            file = stack.enter_context(os.fdopen(os.memfd_create("pem"), "wb"))
            file.write(text.encode())
            file.flush()
            places.append(f"/proc/self/fd/{file.fileno()}")
        try:
            context.load_cert_chain(places[0], places[1], no_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise _Unusable(
                    "key", "the key does not belong to the certificate", "the certificate's own key"
                ) from error
            raise _which(pems.cert, error) from error


def _which(cert: str, error: ssl.SSLError) -> _Unusable:
    """OpenSSL does not say which of the two files it did not take."""
    reason = (error.reason or "it cannot be read").lower().replace("_", " ")
    try:
        blocks = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", cert, flags=re.DOTALL)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=_ascii("\n".join(blocks)))
    except (ssl.SSLError, ValueError):
        return _Unusable(
            "cert", f"OpenSSL does not take it ({reason})", "a certificate and those that it needs, as PEM"
        )
    if "small" in reason or "weak" in reason:
        return _Unusable("cert", f"OpenSSL does not take it ({reason})", "a certificate of usual strength")
    return _Unusable("key", f"OpenSSL does not take it ({reason})", "the certificate's own key, as PEM")


def names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """All of a certificate's alternative names."""
    return frozenset(
        _canonical(value) if kind == "IP Address" else value
        for kind, value in (certificate or {}).get("subjectAltName", ())
        if kind in _NAMES
    )


def _canonical(address: str) -> str:
    """OpenSSL writes an IPv6 address in full and in capitals."""
    try:
        return str(ipaddress.ip_address(address.strip()))
    except ValueError:
        return address
