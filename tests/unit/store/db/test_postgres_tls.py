"""TLS to PostgreSQL by the database's URL."""

from __future__ import annotations

import ssl

import pytest
from sqlalchemy import make_url

from headway.errors import Refused
from headway.store.db.postgres_tls import is_unverified, tls_argument, tls_mode, without_tls_options


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("db.example.org/headway", "verify-full"),
        ("192.0.2.1:5432/headway", "verify-full"),
        ("db.example.org/headway?sslmode=require", "require"),
        ("/headway?host=db1:5432&host=127.0.0.1:5432", "verify-full"),
        ("/headway?host=/run/postgresql", ""),
        ("/headway", ""),
        ("localhost/headway", ""),
        ("[::1]:5432/headway", ""),
        ("127.0.0.1/headway?sslmode=verify-full", "verify-full"),
        ("localhost.example.org/headway", "verify-full"),
    ],
)
def test_certificate_of_another_machine_is_verified_unless_the_url_says_otherwise(address: str, mode: str) -> None:
    url = f"postgresql+asyncpg://headway@{address}"
    assert tls_mode(make_url(url)) == mode
    assert is_unverified(url) == (mode == "require")


def test_driver_gets_a_context_that_verifies_certificate_and_name() -> None:
    url = make_url("postgresql+asyncpg://h@db/x?sslmode=verify-full&application_name=headway")
    context = tls_argument(url)["ssl"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert dict(without_tls_options(url).query) == {"application_name": "headway"}
    assert tls_argument(make_url("postgresql+asyncpg://h@db/x?sslmode=disable")) == {"ssl": "disable"}
    assert tls_argument(make_url("postgresql+asyncpg://h@localhost/x")) == {}


@pytest.mark.parametrize("option", ["sslmode=full", "sslrootcert=/nowhere/root.pem"])
def test_refuses_options_that_can_not_be_used(option: str) -> None:
    with pytest.raises(Refused, match=f"{option.partition('=')[0]} of HEADWAY_DATABASE_URL") as caught:
        tls_argument(make_url(f"postgresql+asyncpg://h@db/x?{option}"))
    assert caught.value.hint


def test_sqlite_has_no_connection_to_verify() -> None:
    assert not is_unverified("")
    assert not is_unverified("sqlite:///x.db")
