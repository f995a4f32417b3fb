"""The part of the configuration that says how the connections between Envoy and the control plane are secured."""

from typing import Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from tidegate import certificates
from tidegate.config_values import CHECKED, AbsolutePath, Section, ServerName
from tidegate.faults import fault


class EnvoyTls(Section):
    """What Envoy presents and accepts; PEM files on Envoy's machine, which Tidegate does not look at."""

    certificate: AbsolutePath = Field(description="Absolute path of Envoy's certificate, with its chain.")
    key: AbsolutePath = Field(description="Absolute path of its key.")
    ca: AbsolutePath = Field(description="Absolute path of the authorities that may have signed Tidegate's.")
    server_name: ServerName | None = Field(
        None,
        description="DNS name or IP address that Tidegate's certificate must bear as a subject alternative name; by "
        "default the address that Envoy connects to.",
    )


class ListenerTls(Section):
    """TLS for clients. The files are on Envoy's machine, and Tidegate does not look at them."""

    certificate: AbsolutePath = Field(description="Absolute path of the certificate (PEM), with its chain.")
    key: AbsolutePath = Field(description="Absolute path of its key.")
    client_ca: AbsolutePath | None = Field(
        None,
        description="Absolute path of the authorities (PEM) that may have signed clients' certificates. By default "
        "clients are asked for none.",
    )
    client_certificate: Literal["required", "optional"] = Field(
        "required", description="Whether a client must show one, where there is `client_ca`."
    )


class ServerTls(Section):
    """TLS with certificates on both sides. Tidegate reads its files again before a handshake when they have changed."""

    certificate: AbsolutePath = Field(description="Absolute path of Tidegate's certificate (PEM), with its chain.")
    key: AbsolutePath = Field(description="Absolute path of its key (PEM, without a passphrase).")
    client_ca: AbsolutePath = Field(
        description="Absolute path of the authorities (PEM) that may have signed a peer's certificate; a peer without "
        "one is refused."
    )

    @model_validator(mode="after")
    def _usable(self, info: ValidationInfo) -> Self:
        if info.context != CHECKED:
            try:
                certificates.server_context(self.files)
            except certificates.CertificateError as error:
                raise fault(f"expected certificates that can be used: {error}") from None
        return self

    @property
    def files(self) -> certificates.Files:
        """Tidegate's own files."""
        return certificates.Files(self.certificate, self.key, self.client_ca)


class Tls(ServerTls):
    """TLS with certificates on both sides, for decisions, discovery and the access log. Without it, none.

    Tidegate reads its own files again before a handshake when they have changed.
    """

    client_ca: AbsolutePath = Field(
        description="Absolute path of the authorities (PEM) that may have signed Envoy's certificate; a peer without "
        "one is refused."
    )
    envoy: EnvoyTls = Field(description="What Envoy presents and accepts; files on Envoy's machine.")
