"""When a certificate is valid: the one fact about our own that Python's ssl does not tell."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final

import msgspec

_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_FORMATS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


class Validity(msgspec.Struct, frozen=True):
    """Unix times between which a certificate is good."""

    not_before: float
    not_after: float


def validity(pem: str) -> Validity:
    """That of the first certificate of a PEM text (RFC 5280, 4.1). Raises ValueError."""
    found = _BLOCK.search(pem)
    if found is None:
        raise ValueError("there is no certificate in the text")
    whole = ssl.PEM_cert_to_DER_cert(found.group())
    try:
        signed = _inside(_inside(whole, 0)[1], 0)[1]
        at = 0
        if signed[0] == _VERSION:
            at = _inside(signed, at)[2]
        # Serial number, algorithm and issuer stand before the validity.
        for _ in range(3):
            at = _inside(signed, at)[2]
        times = _inside(signed, at)[1]
        first, first_text, end = _inside(times, 0)
        last, last_text, _ = _inside(times, end)
        return Validity(_time(first, first_text.decode("ascii")), _time(last, last_text.decode("ascii")))
    except (IndexError, KeyError) as error:
        raise ValueError("this is no certificate") from error


def _inside(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag, content and end of the DER element that begins ``at``."""
    tag, length = data[at], data[at + 1]
    begin = at + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(data[at + 2 : begin], "big")
    end = begin + length
    if end > len(data):
        raise IndexError
    return tag, data[begin:end], end


def _time(kind: int, text: str) -> float:
    found = datetime.strptime(text, _FORMATS[kind]).replace(tzinfo=UTC)
    # Two digits mean 1950 to 2049; strptime ends at 1968.
    if kind == _UTC_TIME and found.year >= 2050:
        found = found.replace(year=found.year - 100)
    return found.timestamp()
