"""Certificates for tests, from authorities that live as long as the test."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme

HERE = "127.0.0.1"


class Authority:
    """An authority, and what it signs."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
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
