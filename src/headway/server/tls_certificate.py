"""The certificate that the server uses for TLS: files that an authority's client renews, or one that the server makes
for itself and whose fingerprint clients pin."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from headway.errors import Refused
from headway.private_files import create_private
from headway.validation.hosts import bracketed
from headway.validation.tls_fingerprint import fingerprint_of

if TYPE_CHECKING:
    from cryptography import x509

OWN_FILE = "server-tls.pem"  # in the state folder: certificate and key, mode 600
OWN_DAYS = 3650
RENEWAL_CHECK_S = 5.0

log = structlog.get_logger("headway.server")


@dataclass
class Tls:
    """A certificate that was loaded and matches its key. Call `watch_renewal` to load renewed files."""

    cert: Path
    key: Path
    context: ssl.SSLContext
    names: tuple[str, ...]  # host names and addresses that it is valid for
    own: bool = False  # made by the server itself, so that only its fingerprint proves it
    fingerprint: str = ""
    _read: tuple[tuple[int, int, int], ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """Returns the first name that is not a wildcard, or ""."""
        return next((name for name in self.names if not name.startswith("*")), "")

    async def watch_renewal(self) -> None:
        """Loads the files again within RENEWAL_CHECK_S after they change. New connections get the new certificate."""
        while True:
            await asyncio.sleep(RENEWAL_CHECK_S)
            self.reload_if_changed()

    def reload_if_changed(self) -> bool:
        """Returns whether the files have changed and were loaded. Files that can't be used, such as a new certificate
        whose key is not written yet, are logged and tried again at the next call; the old ones stay in use."""
        try:
            if _file_marks(self.cert, self.key) == self._read:
                return False
            renewed = load_certificate(self.cert, self.key)
        except (OSError, Refused) as error:
            log.warning("the renewed certificate can't be used yet", file=str(self.cert), error=str(error))
            return False
        if set(renewed.names) != set(self.names):
            log.warning("the renewed certificate has other names; restart the server to use it", names=renewed.names)
        # The listening sockets keep the first context; each handshake goes on with the latest one.
        self.context.sni_callback = lambda connection, _name, _context: _use(connection, renewed.context)
        self._read, self.fingerprint = renewed._read, renewed.fingerprint
        log.info("the renewed certificate is in use", file=str(self.cert), fingerprint=self.fingerprint)
        return True


def load_certificate(cert: Path, key: Path, *, own: bool = False) -> Tls:
    """Returns the certificate with a context that uses it. Raises Refused for files that can't be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        marks = _file_marks(cert, key)
        context.load_cert_chain(cert, key, password=lambda: "")
        pem = cert.read_bytes()
        names = _names(pem)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else str(error)
        raise Refused(
            f"the certificate {cert} with the key {key} can't be used: {why}",
            hint="give PEM files, with the key without a password",
        ) from None
    return Tls(cert, key, context, names, own, _fingerprint(pem), marks)


def _use(connection: ssl.SSLObject | ssl.SSLSocket, context: ssl.SSLContext) -> None:
    connection.context = context


def own_certificate(state_dir: Path, host: str) -> Tls:
    """Returns the server's own certificate, which is made at its first use and kept in the state folder, so that its
    fingerprint stays the same. Raises Refused."""
    file = state_dir / OWN_FILE
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            create_private(file, _self_signed(host))
    except OSError as error:
        raise Refused(
            f"the server's certificate {file} can't be written: {error.strerror}", hint="HEADWAY_STATE"
        ) from None
    except ValueError:
        raise Refused(
            f"no certificate can be made for the host {host!r}", hint="set HEADWAY_HOST to an address"
        ) from None
    return load_certificate(file, file, own=True)


def _self_signed(host: str) -> bytes:
    """Returns a new key and a certificate for it, in PEM. It is no authority: it can sign no other certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Headway on {socket.gethostname()}"[:64])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=OWN_DAYS))
        .add_extension(x509.SubjectAlternativeName([_alternative(one) for one in _own_names(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return secret + certificate.public_bytes(pem)


def shown_host(host: str) -> str:
    """Returns the name of a server that listens on this host: the machine's if it listens on all addresses."""
    return socket.gethostname() if host in ("0.0.0.0", "::") else host


def _own_names(host: str) -> list[str]:
    """Returns the names of the server's own certificate, the first being the one that the server shows as its address."""
    return list(dict.fromkeys((shown_host(host), socket.gethostname(), "localhost", "127.0.0.1", "::1")))


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(pem: bytes) -> tuple[str, ...]:
    """Returns the host names and addresses that the first certificate of the file is valid for. Raises ValueError."""
    from cryptography import x509

    found = x509.load_pem_x509_certificates(pem)[0]
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise ValueError("it has no host name (no subjectAltName)") from None
    hosts = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return (*hosts, *(bracketed(str(address)) for address in names.get_values_for_type(x509.IPAddress)))


def _fingerprint(pem: bytes) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    return fingerprint_of(x509.load_pem_x509_certificates(pem)[0].public_bytes(serialization.Encoding.DER))


def _file_marks(*files: Path) -> tuple[tuple[int, int, int], ...]:
    """Returns what changes when a file is replaced or written, also behind a symbolic link. Raises OSError."""
    found = [file.stat() for file in files]
    return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)
