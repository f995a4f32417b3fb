"""Our side of TLS for the two transports, from the newest certificates at each handshake."""

import ssl

import grpc

from tidegate.certificates import Newest, Pem
from tidegate.config_tls import ServerTls


def for_asyncio(tls: ServerTls) -> ssl.SSLContext:
    """Return a context for asyncio's servers.

    Raises:
        CertificateError: the files cannot be used.
    """
    newest = Newest(tls.files)
    first = newest.context

    def renew(handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        newest.look()
        # Takes the certificate, the key and the authorities from there.
        handshake.context = newest.context

    first.sni_callback = renew  # called whether or not the peer names a server
    return first


def for_grpc(tls: ServerTls) -> grpc.ServerCredentials:
    """Return the same for gRPC's servers.

    Raises:
        CertificateError: the files cannot be used.
    """
    newest = Newest(tls.files)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        return _configuration(newest.pem) if newest.look() else None

    # The stubs do not know that "nothing new" is said with None.
    return grpc.dynamic_ssl_server_credentials(
        _configuration(newest.pem),
        renewed,  # type: ignore[arg-type]
        require_client_authentication=True,
    )


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.client_ca)
