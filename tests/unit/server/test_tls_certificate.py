"""A renewed certificate is used for new connections of sockets that listen already; half of one never is."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import warnings
from pathlib import Path

import pytest

from headway.sdk.tls_trust import tls_context
from headway.server.tls_certificate import Tls, load_certificate
from headway.validation.tls_fingerprint import fingerprint_of
from tests.support.servers.tls import certificate


def shown_to_client(tls: Tls, server_name: str | None = None) -> str:
    """Returns the fingerprint that a new connection to a socket with this certificate's first context gets."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=server_name)
    there = tls.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (here, there):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return fingerprint_of(here.getpeercert(binary_form=True) or b"")


def test_server_and_client_speak_tls_1_2_or_newer_with_forward_secrecy(tmp_path: Path) -> None:
    tls = load_certificate(*certificate(tmp_path, "localhost"))
    client = tls_context("https://localhost", [tls.fingerprint])
    assert isinstance(client, ssl.SSLContext)
    for context in (tls.context, client):
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    names = [cipher["name"] for cipher in tls.context.get_ciphers()]
    assert [name for name in names if not name.startswith(("TLS_", "ECDHE-", "DHE-"))] == []
    assert tls.context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = old.wrap_bio(to_client, to_server)
    there = tls.context.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        here.do_handshake()
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol|version"):
        there.do_handshake()


def test_new_connections_get_the_renewed_certificate(tmp_path: Path) -> None:
    tls = load_certificate(*certificate(tmp_path, "localhost"))
    first = tls.fingerprint
    assert (tls.reload_if_changed(), shown_to_client(tls)) == (False, first)
    for _ in range(2):
        certificate(tmp_path, "localhost")
        assert tls.reload_if_changed()
        assert shown_to_client(tls) == shown_to_client(tls, "localhost") == tls.fingerprint != first


def test_documented_hook_of_certbot_gives_the_server_the_renewed_certificate(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/howto/sign-in-tls.md").read_text(encoding="utf-8")
    found = re.search(r"--deploy-hook '([^']+)'", page)
    assert found is not None
    served, lineage = tmp_path / "served", tmp_path / "live"  # /etc/headway, and certbot's folder of the certificate
    for folder in (served, lineage):
        folder.mkdir()
    hook = found[1].replace("/etc/headway", str(served)).replace("-o headway", f"-o {os.geteuid()}")
    assert str(served / "fullchain.pem") in hook

    def renew() -> str:
        cert, key = certificate(lineage, "localhost")
        cert.replace(lineage / "fullchain.pem")
        key.replace(lineage / "privkey.pem")
        subprocess.run(["sh", "-ec", hook], check=True, timeout=30, env={**os.environ, "RENEWED_LINEAGE": str(lineage)})
        return load_certificate(served / "fullchain.pem", served / "key.pem").fingerprint

    first = renew()
    tls = load_certificate(served / "fullchain.pem", served / "key.pem")
    second = renew()
    assert (served / "key.pem").stat().st_mode & 0o777 == 0o600
    assert tls.reload_if_changed(), "no restart"
    assert shown_to_client(tls) == second != first


def test_certificate_whose_key_is_not_written_yet_is_not_used(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "localhost")
    tls, old_key = load_certificate(cert, key), key.read_bytes()
    certificate(tmp_path, "localhost")
    new_key = key.read_bytes()
    key.write_bytes(old_key)
    assert not tls.reload_if_changed()
    assert shown_to_client(tls) == tls.fingerprint
    key.write_bytes(new_key)
    assert tls.reload_if_changed()
    assert shown_to_client(tls) == tls.fingerprint
