"""Which format and which coding a scraper gets, from its Accept and Accept-Encoding headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Literal

import msgspec

Encoding = Literal["identity", "gzip", "zstd"]


class Format(Enum):
    """A format of exposition; the value is its media type with the version that is sent."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Negotiated(msgspec.Struct, frozen=True):
    """The answer to an Accept header."""

    format: Format
    escaping: bool = False
    """The scraper said how to escape names outside ASCII. Ours have none: the answer only has to name a scheme."""

    @property
    def content_type(self) -> str:
        """The exact Content-Type. Prometheus 3 refuses a scrape whose Content-Type it does not know."""
        return self.format.value + ("; escaping=underscores" if self.escaping else "")


class _Element(msgspec.Struct, frozen=True):
    """One element of a header that is a list with qualities."""

    value: str
    parameters: Mapping[str, str]
    quality: float
    position: int


_VERSIONS: Final = {
    "text/plain": (Format.TEXT, ("0.0.4", "1.0.0")),
    "application/openmetrics-text": (Format.OPENMETRICS, ("1.0.0", "0.0.1")),
}
"""Versions that may be asked for: who reads text 1.0.0 or OpenMetrics 0.0.1 can read all that is sent."""

_WILDCARDS: Final = {
    "text/*": (Format.TEXT,),
    "application/*": (Format.OPENMETRICS,),
    "*/*": (Format.TEXT, Format.OPENMETRICS),
}
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
"""A quoted string, ended by the end of the text where its quote is missing, so that no header takes quadratic time."""
_PARAMETER: Final = re.compile(rf"\s*+;\s*+(?:({_TOKEN})\s*+=\s*+({_TOKEN}|{_QUOTED}))?+\s*+")
_VALUE: Final = re.compile(rf"\s*+({_TOKEN}(?:/{_TOKEN})?)\s*+")
_ELEMENT: Final = re.compile(rf'(?:[^,"]|{_QUOTED})++')
_QUALITY: Final = re.compile(r"0?\.[0-9]+|0\.?|1(?:\.0*)?")


def negotiate(accept: str | None) -> Negotiated:
    """Choose the format.

    Each format has the quality of the most specific media range that names it; the highest quality wins. At equal
    quality the more specific range wins, then the one that stands first, then text. What is malformed is passed over,
    and text is the answer to a header that names neither format: who cannot read it can read nothing of ours.
    """
    elements = list(_elements(accept or ""))
    offers = [offer for format_ in Format if (offer := _best_range(format_, elements)) is not None]
    if not offers:
        return Negotiated(Format.TEXT)
    return min(offers, key=lambda offer: offer[0])[1]


def _best_range(format_: Format, elements: Sequence[_Element]) -> tuple[tuple[float, int, int], Negotiated] | None:
    """The rank of a format (the lowest is best), or None where the header does not name it or refuses it."""
    ranges = [
        (specificity, element) for element in elements if (specificity := _specificity(format_, element)) is not None
    ]
    if not ranges:
        return None
    specificity = max(found for found, _ in ranges)
    element = max((e for found, e in ranges if found == specificity), key=lambda e: (e.quality, -e.position))
    if not element.quality:
        return None
    rank = (-element.quality, -specificity, element.position)
    return rank, Negotiated(format_, escaping="escaping" in element.parameters)


def _specificity(format_: Format, element: _Element) -> int | None:
    """3: the type and a version, 2: the type, 1: a wildcard subtype, 0: anything. None: another type or version."""
    if element.value in _VERSIONS:
        found, versions = _VERSIONS[element.value]
        version = element.parameters.get("version")
        if found is not format_ or (version is not None and version not in versions):
            return None
        return 2 if version is None else 3
    if format_ in _WILDCARDS.get(element.value, ()):
        return 0 if element.value == "*/*" else 1
    return None


def encoding(accept_encoding: str | None, offers: Sequence[Encoding] = ("gzip",)) -> Encoding:
    """Choose the content coding among ``offers`` and identity.

    The highest quality wins; at equal quality the coding that stands first, and any coding before identity. ``*`` asks
    for gzip, never for zstd, which a scraper must name. Without the header, or if nothing asked for can be made:
    identity.
    """
    asked: dict[str, _Element] = {}
    for element in _elements(accept_encoding or ""):
        asked.setdefault("gzip" if element.value == "x-gzip" else element.value, element)
    if "*" in asked:
        asked.setdefault("gzip", asked["*"])
    wanted = [(-asked[coding].quality, asked[coding].position, coding) for coding in offers if coding in asked]
    if not wanted:
        return "identity"
    best, _, coding = min(wanted)
    plain = -asked["identity"].quality if "identity" in asked else 0.0
    return coding if best and best <= plain else "identity"


def _elements(header: str) -> Iterator[_Element]:
    """The well-formed elements of a header, in order, with types, codings and parameter names in lower case."""
    for position, match in enumerate(_ELEMENT.finditer(header)):
        element = _element(match.group(), position)
        if element is not None:
            yield element


def _element(text: str, position: int) -> _Element | None:
    value = _VALUE.match(text)
    if value is None:
        return None
    parameters: dict[str, str] = {}
    end = value.end()
    while end < len(text):
        parameter = _PARAMETER.match(text, end)
        if parameter is None:
            return None
        end = parameter.end()
        if parameter[1] is not None:
            parameters.setdefault(parameter[1].lower(), _unquoted(parameter[2]))
    quality = parameters.pop("q", "1")
    if _QUALITY.fullmatch(quality) is None:
        return None
    return _Element(value[1].lower(), parameters, float(quality), position)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:].removesuffix('"')) if text.startswith('"') else text
