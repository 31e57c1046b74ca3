"""Addresses, TLS and reverse proxies are read from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import Refused
from headway.server.listen_settings import ListenSettings, read_listen_settings, read_origin
from headway.server.notebook_proxy import origin_of
from headway.server.tls_certificate import load_certificate
from tests.support.servers.tls import certificate


def test_listen_settings_are_read_from_environment(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "hw.example.org", "10.0.0.9")
    found = read_listen_settings({
        "HEADWAY_PUBLIC_URL": "https://Headway.example.org:8443/",
        "HEADWAY_TLS_CERT": str(cert), "HEADWAY_TLS_KEY": str(key),
        "HEADWAY_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/24",
    }, tmp_path)  # fmt: skip
    assert found.url == "https://headway.example.org:8443"
    assert found.hosts("0.0.0.0") == (
        "10.0.0.9", "127.0.0.1", "[::1]", "headway.example.org", "hw.example.org", "localhost"
    )  # fmt: skip
    assert found.proxies == ("127.0.0.1", "10.0.0.0/24")
    assert read_listen_settings({}, tmp_path) == ListenSettings()
    assert read_listen_settings({}, tmp_path).hosts("127.0.0.1") == ("127.0.0.1", "[::1]", "localhost")
    assert read_listen_settings({}, tmp_path).hosts("0.0.0.0") == ()


def test_notebook_origin_follows_the_servers_address() -> None:
    assert origin_of("127.0.0.1", 7879, "https://hw.example.org:7878") == "https://hw.example.org:7879"
    assert origin_of("127.0.0.1", 7879, "http://127.0.0.1:7878") == "http://*.notebooks.localhost:7879"
    assert origin_of("10.0.0.9", 7879, "http://10.0.0.9:7878") == "http://10.0.0.9:7879"
    name = "HEADWAY_NOTEBOOK_URL"
    assert read_origin({name: "https://*.Books.example.org/"}, name) == "https://*.books.example.org"
    for text in ("https://*", "https://a*.example.org", "https://a.*.example.org", "https://*.*.example.org"):
        with pytest.raises(Refused, match="not an origin"):
            read_origin({name: text}, name)


def test_refuses_invalid_listen_settings(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    files = {"HEADWAY_TLS_CERT": str(cert), "HEADWAY_TLS_KEY": str(key)}
    (tmp_path / "named").mkdir()
    good = certificate(tmp_path / "named", "hw.example.org")
    named = {"HEADWAY_TLS_CERT": str(good[0]), "HEADWAY_TLS_KEY": str(good[1])}
    for env, words in (
        (files, "has no host name"),
        ({"HEADWAY_TLS_CERT": str(cert)}, "without its key"),
        ({**files, "HEADWAY_TLS_KEY": str(cert)}, "can't be used"),
        ({**files, "HEADWAY_TLS_CERT": "/nowhere"}, "No such file"),
        ({"HEADWAY_PUBLIC_URL": "headway.example.org"}, "not an origin"),
        ({"HEADWAY_PUBLIC_URL": "https://ann@headway.example.org"}, "not an origin"),
        ({"HEADWAY_PUBLIC_URL": "https://*.example.org"}, "not an origin"),
        ({"HEADWAY_TRUSTED_PROXIES": "*"}, "has an invalid address"),
        ({"HEADWAY_INSECURE": "yes"}, "neither 1 nor 0"),
        ({**named, "HEADWAY_INSECURE": "1"}, "the server uses TLS"),
        ({**named, "HEADWAY_TLS_SELF_SIGNED": "1"}, "both a certificate and"),
        ({"HEADWAY_HOST": "0.0.0.0"}, r"listen on 0\.0\.0\.0 \(HEADWAY_HOST\) without TLS"),
        ({"HEADWAY_HOST": "::"}, "without TLS"),
        ({"HEADWAY_HOST": "10.0.0.9", "HEADWAY_PUBLIC_URL": "https://hw.example.org"}, "without TLS"),
    ):
        with pytest.raises(Refused, match=words):
            read_listen_settings(env, tmp_path)


def test_other_machines_reach_the_server_by_tls_or_by_explicit_choice(tmp_path: Path) -> None:
    own = {"HEADWAY_HOST": "0.0.0.0", "HEADWAY_TLS_SELF_SIGNED": "1"}
    found = read_listen_settings(own, tmp_path)
    assert found.tls is not None
    assert found.tls.own
    assert found.hosts("0.0.0.0") == (), "under any name of the machine: clients know it by its fingerprint"
    assert found.tls.cert.stat().st_mode & 0o777 == 0o600
    again = read_listen_settings(own, tmp_path).tls
    assert again is not None
    assert again.fingerprint == found.tls.fingerprint
    assert read_listen_settings({"HEADWAY_HOST": "0.0.0.0", "HEADWAY_INSECURE": "1"}, tmp_path).insecure
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        assert read_listen_settings({"HEADWAY_HOST": host}, tmp_path).tls is None


def test_renewed_certificate_is_loaded_and_a_faulty_one_is_not(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    cert, key = certificate(tmp_path / "old", "hw.example.org")
    tls = load_certificate(cert, key)
    before = tls.fingerprint
    assert not tls.reload_if_changed()
    new_cert, new_key = certificate(tmp_path / "new", "hw.example.org")
    new_cert.replace(cert)
    assert not tls.reload_if_changed(), "its key is not there yet"
    assert tls.fingerprint == before
    new_key.replace(key)
    assert tls.reload_if_changed()
    assert tls.fingerprint == load_certificate(cert, key).fingerprint != before
    cert.unlink()
    assert not tls.reload_if_changed()


def test_server_on_another_loopback_address_answers_to_it(tmp_path: Path) -> None:
    assert "127.0.0.2" in ListenSettings().hosts("127.0.0.2")
