"""Self-signed certificates."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path


def certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """Writes a self-signed certificate and returns (certificate, key)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "headway test")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    if names:
        alternatives = [x509.DNSName(one) if not one[0].isdigit() else x509.IPAddress(ipaddress.ip_address(one))
                        for one in names]  # fmt: skip
        made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    signed = made.sign(key, hashes.SHA256())
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form, kind = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    files[1].write_bytes(key.private_bytes(kind, form, serialization.NoEncryption()))
    return files
