"""The parts of the configuration that say how connections are secured: with clients, engines, Envoy and agents."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from tidegate import addresses, certificates, pem
from tidegate.config_values import CHECKED, FOLLOWED, AbsolutePath, Section, ServerName
from tidegate.faults import fault, shown

_TRUST_DOMAIN = r"^[a-z0-9._-]{1,255}$"
_NAME = r"^[\x21-\x7e]{1,2048}$"


def _trust_domain(name: str) -> str:
    if not re.fullmatch(_TRUST_DOMAIN, name, re.ASCII):
        raise fault(f"expected a SPIFFE trust domain, such as example.org, not {shown(name)}")
    return name


def _alternative_name(name: str) -> str:
    if not re.fullmatch(_NAME, name, re.ASCII):
        raise fault(f"expected a DNS name, an IP address or a URI, not {shown(name)}")
    return addresses.ip(name) if addresses.is_address(name) else name


TrustDomain = Annotated[
    str, AfterValidator(_trust_domain), Field(json_schema_extra={"pattern": _TRUST_DOMAIN}, max_length=255)
]
AlternativeName = Annotated[str, AfterValidator(_alternative_name), Field(min_length=1, max_length=2048)]


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
    """TLS for clients. Renewed files are taken over without a restart, and without a connection that is dropped."""

    certificate: AbsolutePath = Field(description="Absolute path of the certificate (PEM), with its chain.")
    key: AbsolutePath = Field(description="Absolute path of its key (PEM, without a passphrase).")
    client_ca: AbsolutePath | None = Field(
        None,
        description="Absolute path of the authorities (PEM) that may have signed clients' certificates. By default "
        "clients are asked for none.",
    )
    client_certificate: Literal["required", "optional"] = Field(
        "required", description="Whether a client must show one, where there is `client_ca`."
    )
    read_by: Literal["tidegate", "envoy"] = Field(
        "tidegate",
        description="On whose machine the files are. `tidegate`: it checks what is in them, and sends it to Envoy, the "
        "key too, over the control connection. `envoy`: the key goes nowhere, and Tidegate does not look at the files; "
        "Envoy takes new ones over when they are renamed into place.",
    )

    @model_validator(mode="after")
    def _usable(self, info: ValidationInfo) -> Self:
        if info.context not in {CHECKED, FOLLOWED} and self.read_by == "tidegate":
            _check(self.certificate, self.key, self.client_ca)
        return self


class PoolTls(Section):
    """TLS to the engines of a pool, from Envoy and from Tidegate, which asks them for their load.

    The files are on Tidegate's machine; what is in them is sent to Envoy.
    """

    ca: AbsolutePath = Field(description="Absolute path of the authorities (PEM) that may have signed the engines'.")
    server_name: ServerName | None = Field(
        None,
        description="DNS name (or IP address) that Envoy names when it connects, and that the engines' certificates "
        "must bear unless `san` says otherwise.",
    )
    san: tuple[AlternativeName, ...] = Field(
        (),
        max_length=64,
        description="Subject alternative names, of which the engines' certificates must bear one: DNS names, IP "
        "addresses or URIs, such as spiffe://example.org/engine.",
    )
    certificate: AbsolutePath | None = Field(
        None, description="Absolute path of the certificate (PEM) that is shown to the engines, where they want one."
    )
    key: AbsolutePath | None = Field(None, description="Absolute path of its key (PEM, without a passphrase).")

    @model_validator(mode="after")
    def _usable(self, info: ValidationInfo) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise fault("expected certificate and key, or neither")
        if not self.san and self.server_name is None:
            raise fault("expected server_name or san: any certificate of these authorities would do else")
        if info.context not in {CHECKED, FOLLOWED}:
            _check(self.certificate, self.key, self.ca)
        return self

    @property
    def accepted(self) -> tuple[str, ...]:
        """The names of which an engine's certificate must bear one."""
        return self.san or ((self.server_name,) if self.server_name else ())


def _check(certificate: str | None, key: str | None, ca: str | None) -> None:
    try:
        if certificate is not None and key is not None:
            pem.identity(certificate, key)
        if ca is not None:
            pem.authorities(ca)
    except pem.CertificateError as error:
        raise fault(f"expected certificates that can be used: {error}") from None


class ServerTls(Section):
    """TLS with certificates on both sides. Tidegate reads its files again before a handshake when they have changed."""

    certificate: AbsolutePath = Field(description="Absolute path of Tidegate's certificate (PEM), with its chain.")
    key: AbsolutePath = Field(description="Absolute path of its key (PEM, without a passphrase).")
    client_ca: AbsolutePath = Field(
        description="Absolute path of the authorities (PEM) that may have signed a peer's certificate; a peer without "
        "one is refused."
    )
    trust_domain: TrustDomain | None = Field(
        None,
        description="SPIFFE trust domain: a peer may do what its certificate's URI says that it is, "
        "`spiffe://DOMAIN/tidegate/envoy`, or `…/tidegate/envoy/NODE` for the Envoy of that node id alone, and "
        "`spiffe://DOMAIN/tidegate/agent/NODE`. By default whoever has a certificate of `client_ca` may.",
    )

    @model_validator(mode="after")
    def _usable(self, info: ValidationInfo) -> Self:
        if info.context != CHECKED:
            try:
                certificates.server_context(self.files)
            except pem.CertificateError as error:
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


def exposed(settings: Iterable[tuple[str, ListenerTls | PoolTls | None]], *, guarded: bool) -> Iterator[str]:
    """Find private keys that would be sent to whoever asks, in the clear; not where the connection is ``guarded``."""
    for place, tls in () if guarded else settings:
        by_tidegate = isinstance(tls, PoolTls) or (tls is not None and tls.read_by == "tidegate")
        if tls is not None and tls.key is not None and by_tidegate:
            other = ", or read_by: envoy," if isinstance(tls, ListenerTls) else ""
            where = "where the discovery service is not on a loopback address"
            yield f"{place}: expected control.tls beside it{other} {where}"
