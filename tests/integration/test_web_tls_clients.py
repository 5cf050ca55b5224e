"""Which certificates of clients get in."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.secured import Authority, Site, get_tls
from tests.serving import run, running


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def outcome(site: Site, tls: Mapping[str, Any], certificate: trustme.LeafCert | None, version: ssl.TLSVersion) -> bool:
    """Whether such a client gets an answer. If not, the connection ends without one."""

    async def test() -> bool:
        site.configure(tls=tls)
        context = site.authority.client(certificate)
        context.maximum_version = version
        async with running(keeper=site.keeper()) as server:
            try:
                return (await get_tls(server.addresses[0], context)).status == 200
            except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
                return False

    return run(test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("kind", "none", "known", "foreign"),
    [
        ("NoClientCert", True, True, True),
        ("RequestClientCert", True, True, True),
        ("VerifyClientCertIfGiven", True, True, False),
        ("RequireAndVerifyClientCert", False, True, False),
    ],
)
def test_each_kind_of_client_authentication_lets_in_whom_it_says(
    site: Site, kind: str, none: bool, known: bool, foreign: bool, version: ssl.TLSVersion
) -> None:
    tls = {"client_auth_type": kind}
    if kind.startswith(("Verify", "RequireAnd")):
        tls["client_ca_file"] = "clients.pem"
    assert outcome(site, tls, None, version) is none
    assert outcome(site, tls, site.authority.issue("prometheus.example"), version) is known
    assert outcome(site, tls, Authority().issue("prometheus.example"), version) is foreign


def test_an_expired_certificate_of_a_client_is_none(site: Site) -> None:
    tls = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "clients.pem"}
    now = datetime.now(UTC)
    expired = site.authority.issue(
        "prometheus.example", not_before=now - timedelta(days=2), not_after=now - timedelta(days=1)
    )
    assert not outcome(site, tls, expired, ssl.TLSVersion.TLSv1_3)


def test_an_intermediate_ca_alone_is_trusted_as_go_does(site: Site) -> None:
    intermediate = site.authority.ca.create_child_ca()
    site.put("clients.pem", intermediate.cert_pem.bytes().decode())
    tls = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "clients.pem"}
    assert outcome(site, tls, intermediate.issue_cert("prometheus.example"), ssl.TLSVersion.TLSv1_3)
    assert not outcome(site, tls, site.authority.issue("prometheus.example"), ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("names", "admitted"),
    [
        (("prometheus.example",), True),
        (("other.example", "prometheus.example"), True),
        (("2001:db8::1",), True),
        (("agent@prometheus.example",), True),
        (("other.example",), False),
        (("x.prometheus.example",), False),
        (("2001:db8::2",), False),
    ],
)
def test_only_clients_with_an_allowed_name_get_in(site: Site, names: tuple[str, ...], admitted: bool) -> None:
    tls = {
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": "clients.pem",
        "client_allowed_sans": ["prometheus.example", "2001:db8::1", "agent@prometheus.example"],
    }
    assert outcome(site, tls, site.authority.issue(*names), ssl.TLSVersion.TLSv1_3) is admitted


def test_allowed_names_need_a_certificate(site: Site) -> None:
    tls = {
        "client_auth_type": "VerifyClientCertIfGiven",
        "client_ca_file": "clients.pem",
        "client_allowed_sans": ["prometheus.example"],
    }
    assert not outcome(site, tls, None, ssl.TLSVersion.TLSv1_3)
    assert outcome(site, tls, site.authority.issue("prometheus.example"), ssl.TLSVersion.TLSv1_2)
