"""The web configuration file: what it may say, and how an error in it is told."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives import serialization

from exporter.config import ConfigError
from exporter.config.load import load as load_config
from exporter.web import tls
from exporter.web.settings import CIPHERS, HEADERS, MAX_COST, TLS13_CIPHERS, WebSettings, read, seconds, warnings
from tests.secured import Authority, Site, chain, hashed, key

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
"""The one that the toolkit's own page shows."""
PLANTED = "hunter2-planted"


def problems(folder: Path, text: str) -> list[str]:
    path = folder / "web.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        tls.load(read(path))
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


EVERYTHING = f"""
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: clients.pem
  client_allowed_sans: [prometheus.example]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
  curve_preferences: [X25519]
http_server_config:
  http2: false
  headers:
    Content-Security-Policy: default-src 'self'
    Strict-Transport-Security: max-age=31536000
    X-Content-Type-Options: nosniff
    X-Frame-Options: deny
    X-XSS-Protection: ""
basic_auth_users:
  prometheus: {HASH}
rate_limit:
  interval: 100ms
  burst: 20
"""


def test_every_key_of_the_toolkit_is_known(tmp_path: Path) -> None:
    Site(tmp_path)
    (tmp_path / "web.yaml").write_text(EVERYTHING)
    found = read(tmp_path / "web.yaml")
    given = yaml.safe_load(EVERYTHING)
    shown = {
        name: getattr(found.settings.tls_server_config, name)
        for name in given["tls_server_config"]
        if not isinstance(given["tls_server_config"][name], list)
    }
    assert shown == {name: value for name, value in given["tls_server_config"].items() if not isinstance(value, list)}
    assert found.settings.basic_auth_users == {"prometheus": HASH}
    # A blank header is one that is not set.
    assert set(found.settings.http_server_config.headers) == set(HEADERS) - {"X-XSS-Protection"}
    assert seconds(found.settings.rate_limit.interval) == 0.1
    assert tls.load(found) is not None
    assert warnings(found) == ()


@pytest.mark.parametrize("text", ["", "tls_server_config:\n", "basic_auth_users: {}\n", "rate_limit: {interval: 0}\n"])
def test_an_empty_file_asks_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "web.yaml").write_text(text)
    found = read(tmp_path / "web.yaml")
    assert found.settings == WebSettings()
    assert tls.load(found) is None


def test_files_are_found_beside_the_web_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Site(tmp_path).configure()
    monkeypatch.chdir(elsewhere)
    found = read(tmp_path / "web.yaml")
    assert tls.load(found) is not None
    assert tls.files(found) == (tmp_path / "web.yaml", tmp_path / "server.pem", tmp_path / "server.key")


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("1s", 1), ("1m30s", 90), ("250ms", 0.25), ("1.5h", 5400), ("2us", 2e-6)]
)
def test_durations_are_gos(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "-1s", "1d", "1s ", "1e3s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError):
        seconds(text)


PAIR = "cert_file: server.pem, key_file: server.key"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "tls: {}",
            "web.yaml:1: tls: unknown key (its value: a mapping), expected one of tls_server_config, http_server_con",
        ),
        (
            "tls_server_config: {certfile: a}",
            "web.yaml:1: tls_server_config.certfile: unknown key (its value: (hidden)), expected cert_file",
        ),
        ("tls_server_config: {min_version: TLS13}", "web.yaml:1: tls_server_config.cert_file: the key is missing"),
        (
            "tls_server_config: {cert_file: server.pem}",
            "tls_server_config.key_file: the key is missing, expected it or key",
        ),
        (
            f"tls_server_config: {{{PAIR}, client_auth_type: RequireAndVerifyClientCert}}",
            "tls_server_config.client_ca_file: the key is missing",
        ),
        (
            f"tls_server_config: {{{PAIR}, client_ca_file: clients.pem}}",
            "tls_server_config.client_ca_file: has no effect with client_auth_type NoClientCert",
        ),
        (
            f"tls_server_config: {{{PAIR}, client_auth_type: RequestClientCert, client_ca_file: clients.pem}}",
            "client_ca_file: has no effect with client_auth_type RequestClientCert",
        ),
        (
            f"tls_server_config: {{{PAIR}, client_allowed_sans: [a]}}",
            "client_allowed_sans: proves nothing with client_auth_type NoClientCert",
        ),
        (
            f"tls_server_config: {{{PAIR}, client_allowed_sans: []}}",
            "client_allowed_sans: got a list, expected a list (at least 1",
        ),
        (
            f"tls_server_config: {{{PAIR}, client_auth_type: RequireAnyClientCert}}",
            'client_auth_type: got "RequireAnyClientCert", expected one of NoClientCert, RequestClientCert, Veri',
        ),
        (
            f"tls_server_config: {{{PAIR}, client_auth_type: RequireAnyClientCert}}",
            "(RequireAnyClientCert proves nothing: everyone can make a certificate)",
        ),
        (
            f"tls_server_config: {{{PAIR}, min_version: TLS10}}",
            'min_version: got "TLS10", expected TLS12 or TLS13 (older ones are broken)',
        ),
        (
            f"tls_server_config: {{{PAIR}, min_version: TLS13, max_version: TLS12}}",
            'min_version: got "TLS13", expected at most max_version, which is TLS12',
        ),
        (
            f"tls_server_config: {{{PAIR}, cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]}}",
            'cipher_suites[0]: got "TLS_RSA_WITH_AES_128_CBC_SHA", expected one of TLS_ECDHE_ECDSA_WITH_AES_128_',
        ),
        (
            f"tls_server_config: {{{PAIR}, cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12}}",
            "cipher_suites: has only suites of TLS 1.3",
        ),
        (
            f"tls_server_config: {{{PAIR}, curve_preferences: [X448]}}",
            'curve_preferences[0]: got "X448", expected one of X25519, CurveP256, CurveP384, CurveP521',
        ),
        (
            f"tls_server_config: {{{PAIR}, prefer_server_cipher_suites: maybe}}",
            'prefer_server_cipher_suites: got "maybe", expected true or false',
        ),
        (
            "tls_server_config: {cert_file: none.pem, key_file: server.key}",
            "web.yaml:1: tls_server_config.cert_file: none.pem: there is no such file",
        ),
        (
            "tls_server_config: {cert_file: ., key_file: server.key}",
            ": this is a directory, expected a text file that can be read",
        ),
        (
            "tls_server_config: {cert_file: empty, key_file: server.key}",
            "tls_server_config.cert_file: empty: no PEM is in it",
        ),
        (
            "tls_server_config: {cert_file: server.key, key_file: server.key}",
            "tls_server_config.cert_file: no certificate in it can be read",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.pem}",
            "tls_server_config.key_file: OpenSSL does not take it",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: other.key}",
            "tls_server_config.key_file: the key does not belong to the certificate",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: encrypted.key}",
            "tls_server_config.key_file: the key is encrypted, expected a key without a passphrase",
        ),
        (
            f"tls_server_config: {{{PAIR}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: server.key}}",
            "tls_server_config.client_ca_file: no certificate in it can be read",
        ),
        (f"tls_server_config: {{{PAIR}, cert: x}}", "tls_server_config.cert: got (hidden), expected PEM"),
        ("http_server_config: {http2: 1}", "http_server_config.http2: got 1, expected true or false"),
        (
            "http_server_config: {headers: {X-Powered-By: us}}",
            "http_server_config.headers.X-Powered-By: unknown key (its value: (hidden)), expected one of Con",
        ),
        (
            "http_server_config: {headers: {X-Frame-Options: DENY}}",
            "http_server_config.headers.X-Frame-Options: got (hidden), expected deny (one of deny, sameorigin)",
        ),
        ("http_server_config: {headers: {X-Content-Type-Options: sniff}}", "X-Content-Type-Options"),
        (
            'http_server_config: {headers: {X-XSS-Protection: "a\\r\\nSet-Cookie: b"}}',
            "http_server_config.headers.X-XSS-Protection",
        ),
        (
            "basic_auth_users: {alice: hunter2-planted}",
            f"basic_auth_users.alice: got (hidden), expected a hash by bcrypt with a cost from 4 to {MAX_COST}",
        ),
        ("basic_auth_users: {alice: 12345}", "basic_auth_users.alice: got (hidden), expected a hash by bcrypt"),
        (f"basic_auth_users: {{alice: {HASH.replace('$10$', '$15$')}}}", "basic_auth_users.alice: got (hidden)"),
        (f"basic_auth_users: {{alice: {HASH.replace('$10$', '$03$')}}}", "basic_auth_users.alice: got (hidden)"),
        (f"basic_auth_users: {{alice: {HASH[:-1]}}}", "basic_auth_users.alice: got (hidden)"),
        (f"basic_auth_users: {{'al:ice': {HASH}}}", 'basic_auth_users."al:ice": this is no user\'s name'),
        (f"basic_auth_users: {{'': {HASH}}}", 'basic_auth_users."": this is no user\'s name'),
        ("basic_auth_users: [alice]", "basic_auth_users: got a list"),
        (f"basic_auth_users:\nalice: {HASH}", "web.yaml:2: alice: unknown key (its value: (hidden))"),
        ("rate_limit: {interval: 1s}", "rate_limit.burst: got 0, expected at least 1"),
        ("rate_limit: {interval: 5, burst: 1}", "rate_limit.interval: got 5, expected a duration"),
        (
            "rate_limit: {interval: fast, burst: 1}",
            'rate_limit.interval: got "fast", expected a duration of at most 1h, such as',
        ),
    ],
)
def test_an_error_names_file_line_key_value_and_expectation(tmp_path: Path, text: str, told: str) -> None:
    site = Site(tmp_path)
    other = site.authority.issue("localhost")
    site.put("other.key", key(other))
    site.put("empty", "")
    site.put("encrypted.key", encrypted(other))
    found = problems(tmp_path, text)
    assert any(told in problem for problem in found), found


def encrypted(certificate: trustme.LeafCert) -> str:
    loaded = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"passphrase"),
    ).decode()


def test_several_curves_are_refused_where_python_takes_one(tmp_path: Path) -> None:
    Site(tmp_path)
    text = f"tls_server_config: {{{PAIR}, curve_preferences: [X25519, CurveP256]}}"
    if hasattr(ssl.SSLContext, "set_groups"):
        (tmp_path / "web.yaml").write_text(text)
        assert tls.load(read(tmp_path / "web.yaml")) is not None
    else:
        (problem,) = problems(tmp_path, text)
        assert "tls_server_config.curve_preferences: got X25519, CurveP256, expected one curve" in problem


def test_every_suite_of_the_file_is_one_that_openssl_has(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name, theirs in CIPHERS.items():
        site.configure(tls={"cipher_suites": [name]})
        loaded = tls.load(read(tmp_path / "web.yaml"))
        assert loaded is not None
        offered = [cipher["name"] for cipher in loaded.context().get_ciphers() if cipher["protocol"] != "TLSv1.3"]
        assert offered == [theirs]
    site.configure(tls={"cipher_suites": [*CIPHERS, *TLS13_CIPHERS]})
    assert tls.load(read(tmp_path / "web.yaml")) is not None


def test_without_a_list_every_suite_is_forward_secret_and_authenticated(tmp_path: Path) -> None:
    Site(tmp_path).configure()
    loaded = tls.load(read(tmp_path / "web.yaml"))
    assert loaded is not None
    older = [cipher for cipher in loaded.context().get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert older
    assert all(cipher["aead"] and cipher["kea"] == "kx-ecdhe" for cipher in older)


@pytest.mark.parametrize(
    "text",
    [
        f"basic_auth_users: {{alice: {PLANTED}}}",
        f"basic_auth_users:\nalice: {PLANTED}",
        f"basic_auth_user: {{alice: {PLANTED}}}",
        f"basic_auth_users: [{PLANTED}]",
        f"basic_auth_users: {PLANTED}",
        f"basic_auth_users: {{alice: {{password: {PLANTED}}}}}",
        f"tls_server_config: {{key: {PLANTED}}}",
        f'tls_server_config: {{key: "-----BEGIN PRIVATE KEY-----\\n{PLANTED}\\n-----END PRIVATE KEY-----"}}',
        f"tls_server_config: {{keyy: {PLANTED}}}",
        f"tls_server_config: {{cert: server.pem, key: [{PLANTED}]}}",
        f"password: {PLANTED}",
        f"basic_auth_users: {{alice: '{PLANTED}",
        f"basic_auth_users: {{alice: *{PLANTED}}}",
        f"basic_auth_users: {{alice: !{PLANTED} x}}",
    ],
)
def test_no_error_shows_what_may_be_a_secret(tmp_path: Path, text: str) -> None:
    assert PLANTED not in "\n".join(problems(tmp_path, text))


def test_what_is_read_has_no_readable_form(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.configure()
    loaded = tls.load(read(tmp_path / "web.yaml"))
    assert "PRIVATE" not in repr(loaded)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http_server_config: {http2: true}", "http2 has no effect"),
        (f"tls_server_config: {{{PAIR}, client_auth_type: RequestClientCert}}", "RequestClientCert lets in everyone"),
    ],
)
def test_what_has_less_effect_than_one_may_expect_is_told(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "web.yaml").write_text(text)
    (line,) = warnings(read(tmp_path / "web.yaml"))
    assert told in line


def config_problems(config: Path) -> Sequence[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(config, {}, {}, {})
    return [str(problem) for problem in caught.value.problems]


def test_the_agents_own_configuration_checks_the_file_that_it_names(tmp_path: Path) -> None:
    web, config = tmp_path / "web.yaml", tmp_path / "config.yaml"
    config.write_text(f"node: a\nweb_config_file: {web}\n")
    (problem,) = config_problems(config)
    assert f"{web}: configuration file: there is no such file (the file is named in {config}:2)" in problem
    web.write_text("basic_auth_users: {alice: bob}")
    (problem,) = config_problems(config)
    assert problem.startswith(f"{web}:1: basic_auth_users.alice: got (hidden) (the file is named in {config}:2)")
    web.write_text(yaml.safe_dump({"basic_auth_users": {"alice": hashed("x")}}))
    assert load_config(config, {}, {}, {}).web_config_file == str(web)


def test_the_toolkits_flag_names_the_file(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text("")
    assert load_config(None, {}, {"web.config.file": str(web)}, {}).web_config_file == str(web)


def test_a_chain_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    site = Site(tmp_path)
    broken = Authority().pem.replace("MI", "!!", 1)
    site.put("server.pem", chain(site.certificate) + broken)
    (problem,) = problems(tmp_path, f"tls_server_config: {{{PAIR}}}")
    assert "tls_server_config.cert_file: " in problem
