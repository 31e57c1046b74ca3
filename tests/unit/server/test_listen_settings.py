"""Addresses, TLS and reverse proxies are read from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import Refused
from headway.server.listen_settings import ListenSettings, read_listen_settings, read_origin
from headway.server.notebook_proxy import origin_of
from tests.support.servers.tls import certificate


def test_listen_settings_are_read_from_environment(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "hw.example.org", "10.0.0.9")
    found = read_listen_settings({
        "HEADWAY_PUBLIC_URL": "https://Headway.example.org:8443/",
        "HEADWAY_TLS_CERT": str(cert), "HEADWAY_TLS_KEY": str(key),
        "HEADWAY_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/24",
    })  # fmt: skip
    assert found.url == "https://headway.example.org:8443"
    assert found.hosts("0.0.0.0") == (
        "10.0.0.9", "127.0.0.1", "[::1]", "headway.example.org", "hw.example.org", "localhost"
    )  # fmt: skip
    assert found.proxies == ("127.0.0.1", "10.0.0.0/24")
    assert read_listen_settings({}) == ListenSettings()
    assert read_listen_settings({}).hosts("127.0.0.1") == ("127.0.0.1", "[::1]", "localhost")
    assert read_listen_settings({}).hosts("0.0.0.0") == ()


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
    for env, words in (
        (files, "has no host name"),
        ({"HEADWAY_TLS_CERT": str(cert)}, "without its key"),
        ({**files, "HEADWAY_TLS_KEY": str(cert)}, "can't be used"),
        ({**files, "HEADWAY_TLS_CERT": "/nowhere"}, "No such file"),
        ({"HEADWAY_PUBLIC_URL": "headway.example.org"}, "not an origin"),
        ({"HEADWAY_PUBLIC_URL": "https://ann@headway.example.org"}, "not an origin"),
        ({"HEADWAY_PUBLIC_URL": "https://*.example.org"}, "not an origin"),
        ({"HEADWAY_TRUSTED_PROXIES": "*"}, "has an invalid address"),
    ):
        with pytest.raises(Refused, match=words):
            read_listen_settings(env)
