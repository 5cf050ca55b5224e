"""When a certificate is valid, by OpenSSL's and cryptography's word."""

from __future__ import annotations

from datetime import UTC, datetime
from ssl import DER_cert_to_PEM_cert

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.certificate import Validity, validity
from tests.secured import Authority

AUTHORITY = Authority()
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    "expires",
    [
        datetime(1985, 6, 1, tzinfo=UTC),
        datetime(2000, 1, 1, tzinfo=UTC),
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
        # From here on another type of time is written.
        datetime(2050, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
)
def test_the_time_is_the_one_that_was_signed(expires: datetime) -> None:
    begins = datetime(1980, 1, 1, tzinfo=UTC)
    issued = AUTHORITY.issue("localhost", not_before=begins, not_after=expires)
    pem = issued.cert_chain_pems[0].bytes()
    read = x509.load_pem_x509_certificate(pem)
    assert (read.not_valid_before_utc, read.not_valid_after_utc) == (begins, expires)
    assert validity(pem.decode()) == Validity(begins.timestamp(), expires.timestamp())


def test_the_first_certificate_of_a_chain_counts() -> None:
    child = AUTHORITY.ca.create_child_ca()
    issued = child.issue_cert("localhost", not_after=datetime(2040, 1, 2, tzinfo=UTC))
    text = "# leaf\n" + "".join(blob.bytes().decode() for blob in issued.cert_chain_pems)
    assert text.count(BEGIN) == 2
    assert validity(text).not_after == datetime(2040, 1, 2, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("body", ["", "AAAA", "MIIB", "MAA=", "MAMCAQA=", "not base64 at all!"])
def test_what_is_no_certificate_is_refused(body: str) -> None:
    with pytest.raises(ValueError):
        validity(f"{BEGIN}\n{body}\n{END}\n")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_certificate_or_refused(data: bytes) -> None:
    try:
        validity(DER_cert_to_PEM_cert(data))
    except ValueError:
        return
