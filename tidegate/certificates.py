"""Certificates on files: whether they can be used, and the newest of them for each handshake.

Files are replaced while we run, by whoever renews them. They are looked at before each handshake, of which there are
few: Envoy keeps its connections. What cannot be used when it is looked at leaves the last good ones in force.
"""

import logging
import ssl
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)

ALPN = "h2"
"""The one protocol that is spoken; a peer that does not name it is not served."""


class CertificateError(Exception):
    """A file cannot be used; the message says which, and why."""


class Files(NamedTuple):
    """Paths of PEM files: our certificate with its chain, its key, and the authorities whose certificates we accept."""

    certificate: str
    key: str
    client_ca: str


class Pem(NamedTuple):
    """What is in them."""

    certificate: bytes
    key: bytes
    client_ca: bytes


def read(files: Files) -> Pem:
    """Return what is in ``files``.

    Raises:
        CertificateError: one cannot be read.
    """
    return Pem(*(_content(path) for path in files))


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read ({error.strerror})") from None


def server_context(files: Files) -> ssl.SSLContext:
    """Return a context for a server that asks its peers for a certificate, and takes none without.

    Raises:
        CertificateError: one of ``files`` cannot be used.
    """
    read(files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([ALPN])
    try:
        # A key with a passphrase would be asked for at the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise CertificateError(f"{files.certificate} and {files.key}: {_reason(error)}") from None
    try:
        context.load_verify_locations(files.client_ca)
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(f"{files.client_ca}: {_reason(error)}") from None
    return context


def _reason(error: Exception) -> str:
    code = getattr(error, "reason", None)
    known = {
        "KEY_VALUES_MISMATCH": "the key is not the certificate's",
        "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in it",
    }
    return known.get(str(code), "no certificate, or no key without a passphrase, in PEM")


class Newest:
    """The newest usable version of ``files``."""

    def __init__(self, files: Files) -> None:
        """Read them.

        Raises:
            CertificateError: they cannot be used.
        """
        self._files = files
        self._seen = self._marks()
        self.pem = read(files)
        self.context = server_context(files)

    def look(self) -> bool:
        """Read the files again if they changed; return whether there is something new in force."""
        marks = self._marks()
        if marks == self._seen:
            return False
        self._seen = marks
        try:
            context, pem = server_context(self._files), read(self._files)
        except CertificateError as error:
            _log.error("certificates are not taken over", extra={"fields": {"reason": str(error)}})
            return False
        self.context, self.pem = context, pem
        _log.info("certificates are taken over", extra={"fields": {"certificate": self._files.certificate}})
        return True

    def _marks(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_mark(path) for path in self._files)


def _mark(path: str) -> tuple[int, int, int] | None:
    """Return what changes when the file does; ``None`` while there is none."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
