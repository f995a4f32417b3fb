"""Certificates for tests, from authorities that live as long as the test."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HERE = "127.0.0.1"


class Authority:
    """An authority, and what it signs."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.certificate = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.certificate)

    def issue(self, name: str, identity: str = HERE) -> tuple[Path, Path]:
        """Write a certificate for ``identity`` and its key under ``name``; return their paths."""
        issued = self._ca.issue_cert(identity)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return certificate, key

    def issue_uri(self, name: str, uri: str) -> tuple[Path, Path]:
        """Write a client's certificate for ``uri``, as SPIFFE has it, and its key; return their paths."""
        signer = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        authority = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        issued = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
            .sign(signer, hashes.SHA256())
        )
        plain = (serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(issued.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
        return paths

    def issue_until(self, name: str, begins: datetime, ends: datetime, identity: str = HERE) -> tuple[Path, Path]:
        """Write a certificate with this validity, and its key; return their paths."""
        issued = self._ca.issue_cert(identity, not_before=begins, not_after=ends)
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(paths[1])
        return paths

    def issue_expired(self, identity: str) -> tuple[bytes, bytes]:
        """Return a key, and a certificate for ``identity`` that is over."""
        yesterday = datetime.now(UTC) - timedelta(days=1)
        issued = self._ca.issue_cert(identity, not_before=yesterday - timedelta(days=1), not_after=yesterday)
        return issued.private_key_pem.bytes(), b"".join(part.bytes() for part in issued.cert_chain_pems)


def tls(server: Authority, client: Authority, identity: str = HERE) -> dict[str, Any]:
    """Return ``control.tls`` with certificates made by ``server`` for Tidegate and by ``client`` for Envoy."""
    certificate, key = server.issue("tidegate", identity)
    envoys, envoys_key = client.issue("envoy")
    return {
        "certificate": str(certificate),
        "key": str(key),
        "client_ca": str(client.certificate),
        "envoy": {"certificate": str(envoys), "key": str(envoys_key), "ca": str(server.certificate)},
    }
