"""What is in PEM files: certificates with their keys, and authorities.

No message, and nothing that is printed of these, holds a key.
"""

import re
import warnings
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.utils import CryptographyDeprecationWarning

from tidegate import envoy_certificates, regular_file

MAX_BYTES = 1_048_576
"""Of one file; a system's bundle of authorities has a fifth of that."""

_EDGE = re.compile(rb"-----(BEGIN|END) ([^\r\n]*?)-----")
_REVOKED = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class CertificateError(Exception):
    """A file cannot be used; the message says which, and why."""


class Validity(NamedTuple):
    """From when until when (seconds since 1970)."""

    begins: float
    ends: float

    def holds(self, now: float) -> bool:
        """Return whether ``now`` is in it."""
        return self.begins <= now <= self.ends


class Identity(NamedTuple):
    """A certificate with its chain, and its key: of the files that alone, whatever else is in them.

    Attributes:
        certificate: the chain, as PEM, its own certificate first. Envoy shows it to whoever asks for its
            configuration, so nothing of a key that may be in the same file is in it.
        key: the key, as PEM.
        serial: the certificate's serial number, in hexadecimal.
        validity: of the certificate, and of whatever of its chain ends before it.
    """

    certificate: bytes
    key: bytes
    serial: str
    validity: Validity

    def __repr__(self) -> str:
        return f"Identity(serial={self.serial!r}, validity={self.validity!r})"


class Authorities(NamedTuple):
    """Certificates of those who may have signed a peer's.

    Attributes:
        pem: the certificates, and the lists of revoked ones that are in the file, both of which Envoy follows.
        validity: of the one that ends first, of those that have not ended.
    """

    pem: bytes
    validity: Validity


def read(path: str) -> bytes:
    """Return what is in the file at ``path``.

    Raises:
        CertificateError: it cannot be read, or is too large.
    """
    try:
        content = regular_file.read(path, MAX_BYTES)
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise CertificateError(f"{path} is too large; expected at most {MAX_BYTES} bytes")
    return content


def identity(certificate: str, key: str) -> Identity:
    """Return the certificate and the key in the files of these names.

    Raises:
        CertificateError: one cannot be read or understood, or they do not belong together.
    """
    return parsed_identity(read(certificate), read(key), certificate, key)


def parsed_identity(chain: bytes, private: bytes, certificate: str, key: str) -> Identity:
    """Return the same of what is in the files, ``chain`` and ``private``.

    Raises:
        CertificateError: one cannot be understood, or they do not belong together.
    """
    certificates = _certificates(chain, certificate)
    try:
        loaded = load_pem_private_key(private, None)
        plain = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except Exception:  # noqa: BLE001  the library raises many things, and what it says may quote the file
        raise CertificateError(f"{key}: there is no key without a passphrase, in PEM, in it") from None
    _all_ended(private, key)
    if reason := envoy_certificates.refused(certificates[0]):
        raise CertificateError(f"{certificate}: {reason}")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if loaded.public_key().public_bytes(*form) != certificates[0].public_key().public_bytes(*form):
        raise CertificateError(f"{certificate} and {key}: the key is not the certificate's")
    validities = _validities(certificates, certificate)
    validity = Validity(validities[0].begins, min(one.ends for one in validities))
    return Identity(_written(certificates), plain, f"{certificates[0].serial_number:x}", validity)


def authorities(path: str, now: float | None = None) -> Authorities:
    """Return the authorities in the file at ``path``; ``now`` is the time (seconds since 1970), by default that it is.

    Raises:
        CertificateError: it cannot be read or understood.
    """
    return parsed_authorities(read(path), path, now)


def parsed_authorities(content: bytes, path: str, now: float | None = None) -> Authorities:
    """Return the same of what is in the file.

    Raises:
        CertificateError: it cannot be understood.
    """
    certificates, revoked = _certificates(content, path), _revoked(content, path)
    validities = _validities(certificates, path)
    at = datetime.now(UTC).timestamp() if now is None else now
    lasting = [one for one in validities if one.ends > at]
    ending = min(lasting, key=lambda one: one.ends) if lasting else max(validities, key=lambda one: one.ends)
    return Authorities(_written([*certificates, *revoked]), ending)


def _all_ended(content: bytes, path: str) -> None:
    """Refuse what has a block without an end, after whatever else: Envoy and gRPC refuse the whole of it."""
    lines = iter(_EDGE.findall(content))
    for edge, kind in lines:
        if edge != b"BEGIN" or next(lines, None) != (b"END", kind):
            raise CertificateError(f"{path}: there is a PEM block in it without its end, or its beginning")


def _certificates(content: bytes, path: str) -> list[x509.Certificate]:
    _all_ended(content, path)
    try:
        with warnings.catch_warnings():
            # Systems' bundles hold a root whose serial number is 0.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            found = x509.load_pem_x509_certificates(content)
    except ValueError:
        found = []
    # The library passes over what has no end yet.
    if not found or len(found) != content.count(b"-----BEGIN CERTIFICATE-----"):
        raise CertificateError(f"{path}: there is no certificate, in PEM, in it, or a broken one")
    return found


def _revoked(content: bytes, path: str) -> list[x509.CertificateRevocationList]:
    try:
        return [x509.load_pem_x509_crl(block) for block in _REVOKED.findall(content)]
    except ValueError:
        raise CertificateError(f"{path}: there is a broken list of revoked certificates in it") from None


def _written(parts: Iterable[x509.Certificate | x509.CertificateRevocationList]) -> bytes:
    return b"".join(part.public_bytes(Encoding.PEM) for part in parts)


def _validities(certificates: Iterable[x509.Certificate], path: str) -> list[Validity]:
    try:
        return [
            Validity(one.not_valid_before_utc.timestamp(), one.not_valid_after_utc.timestamp()) for one in certificates
        ]
    except ValueError:
        raise CertificateError(f"{path}: there is a certificate in it without a time that can be read") from None
