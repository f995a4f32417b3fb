"""Certificates on files as contexts of TLS: whether they can be used, and the newest of them for each handshake.

Files are replaced while we run, by whoever renews them. A server looks at them before each handshake, of which there
are few: Envoy keeps its connections. What cannot be used when it is looked at leaves the last good ones in force.
"""

import contextlib
import logging
import ssl
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from tidegate import pem
from tidegate.pem import CertificateError

_log = logging.getLogger(__name__)

ALPN = "h2"
"""The one protocol that is spoken with us; a peer that does not name it is not served."""


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

    def __repr__(self) -> str:
        return "Pem()"  # a key is nothing to print


def read(files: Files) -> Pem:
    """Return what is in ``files``.

    Raises:
        CertificateError: one cannot be read.
    """
    return Pem(*(pem.read(path) for path in files))


def server_context(files: Files) -> ssl.SSLContext:
    """Return a context for a server that asks its peers for a certificate, and takes none without.

    Raises:
        CertificateError: one of ``files`` cannot be used.
    """
    pem.identity(files.certificate, files.key)
    pem.authorities(files.client_ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([ALPN])
    _load(context, files.certificate, files.key, files.client_ca)
    return context


def client_context(ca: str, certificate: str | None, key: str | None, names: Iterable[str]) -> ssl.SSLContext:
    """Return a context for a client that accepts servers with a certificate of ``ca``, and shows its own if it has one.

    The server's must bear one of ``names`` (DNS names, addresses, URIs); without any, the name or the address that is
    connected to.

    Raises:
        CertificateError: one of the files cannot be used.
    """
    if certificate is not None and key is not None:
        pem.identity(certificate, key)
    pem.authorities(ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if wanted := frozenset(names):
        context.check_hostname = False
        context.sslobject_class = _that_wants(wanted)
    _load(context, certificate, key, ca)
    return context


class Outgoing:
    """TLS to servers that are known by the same names, with the newest context that can be made.

    Attributes:
        server_name: the name that is named when connecting; ``None`` for the address.
        context: for the next connection.
    """

    def __init__(
        self, ca: str, certificate: str | None, key: str | None, server_name: str | None, names: Iterable[str]
    ) -> None:
        """Read the files; while they cannot be used, no server is trusted."""
        self._settings = ca, certificate, key, tuple(names)
        self.server_name = server_name
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.renew()

    def renew(self) -> None:
        """Read the files again; what cannot be used leaves the last good ones in force."""
        with contextlib.suppress(CertificateError):  # whoever watches the files says so
            self.context = client_context(*self._settings)


def _load(context: ssl.SSLContext, certificate: str | None, key: str | None, ca: str) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if certificate is not None:
            # A key with a passphrase would be asked for at the terminal.
            context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError):
        raise CertificateError(f"{certificate} and {key}: they cannot be used for TLS") from None
    try:
        context.load_verify_locations(ca)
    except (ssl.SSLError, OSError):
        raise CertificateError(f"{ca}: it cannot be used for TLS") from None


def _that_wants(names: frozenset[str]) -> type[ssl.SSLObject]:
    """Return the kind of connection that is only made with a peer whose certificate bears one of ``names``."""

    class Wanting(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            borne = (name for kind, name in alternative_names(self.getpeercert()) if kind in _KINDS)
            if names.isdisjoint(borne):
                raise ssl.SSLCertVerificationError("the certificate bears none of the names that are accepted")

    return Wanting


def alternative_uris(certificate: Any) -> tuple[str, ...]:
    """Return the URIs among the subject alternative names of a peer's ``certificate``, in the form of ``ssl``."""
    return tuple(name for kind, name in alternative_names(certificate) if kind == "URI")


def alternative_names(certificate: Any) -> tuple[tuple[str, str], ...]:
    """Return the subject alternative names of a peer's ``certificate``, each with its kind."""
    return tuple((certificate or {}).get("subjectAltName", ()))


_KINDS = frozenset({"DNS", "URI", "IP Address"})


class Newest:
    """The newest usable version of ``files``."""

    def __init__(self, files: Files) -> None:
        """Read them.

        Raises:
            CertificateError: they cannot be used.
        """
        self._files = files
        self.pem = self._seen = read(files)
        self.context = server_context(files)

    def look(self) -> bool:
        """Read the files again; return whether there is something new in force.

        What is in them is compared, not their times: a link that is swapped, or a copy, may have any.
        """
        try:
            found = read(self._files)
        except CertificateError as error:
            found, reason = Pem(b"", b"", b""), str(error)
        else:
            reason = ""
        if found == self._seen:
            return False
        self._seen = found
        try:
            context = self._usable(found, reason)
        except CertificateError as error:
            _log.error("certificates are not taken over", extra={"fields": {"reason": str(error)}})
            return False
        self.context, self.pem = context, found
        _log.info("certificates are taken over", extra={"fields": {"certificate": self._files.certificate}})
        return True

    def _usable(self, found: Pem, reason: str) -> ssl.SSLContext:
        if reason:
            raise CertificateError(reason)
        if pem.identity(self._files.certificate, self._files.key).validity.ends < time.time():
            raise CertificateError(f"{self._files.certificate} has expired")
        context = server_context(self._files)
        if read(self._files) != found:
            raise CertificateError("the files are being replaced")
        return context
