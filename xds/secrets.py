"""Certificates and authorities as Envoy's secrets: what names them, and the resources.

A listener or a cluster names its secrets and does not hold them, so that a renewed certificate changes the secret
alone: Envoy uses it from the next handshake on, and connections that there are go on.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls

from tidegate.config import Config
from tidegate.config_tls import EnvoyTls, ListenerTls
from tidegate.pem import Authorities, Identity
from xds.snapshot import Reference, Resource
from xds.type_urls import SECRET

ENVOY_CERTIFICATE = "envoy_certificate"
ENVOY_CA = "envoy_ca"
"""What Envoy shows to the control plane, and accepts of it."""


class Material(NamedTuple):
    """What is in the files that Tidegate reads, by the names of the secrets; of each the last that could be used."""

    identities: Mapping[str, Identity]
    authorities: Mapping[str, Authorities]


NO_MATERIAL = Material({}, {})


def listener_certificate(settings: ListenerTls) -> str:
    """Return the name of the secret that a listener shows; several listeners may have the same."""
    return f"listener_certificate:{_machine(settings)}{settings.certificate}"


def listener_client_ca(settings: ListenerTls) -> str:
    """Return the name of the secret with the authorities of a listener's clients."""
    return f"listener_client_ca:{_machine(settings)}{settings.client_ca}"


def _machine(settings: ListenerTls) -> str:
    return "envoy:" if settings.read_by == "envoy" else ""


def pool_ca(pool: str) -> str:
    """Return the name of the secret with the authorities of the engines of ``pool``."""
    return f"pool_{pool}_ca"


def pool_certificate(pool: str) -> str:
    """Return the name of the secret with what Envoy shows to the engines of ``pool``."""
    return f"pool_{pool}_certificate"


def references(*names: str) -> frozenset[Reference]:
    """Return the mentions of the secrets with these names."""
    return frozenset(Reference(SECRET, name) for name in names)


def of_listener(settings: ListenerTls | None) -> tuple[str, ...]:
    """Return the secrets that the listener names."""
    if settings is None:
        return ()
    shown = listener_certificate(settings)
    return (shown,) if settings.client_ca is None else (shown, listener_client_ca(settings))


def secrets(config: Config, material: Material) -> tuple[Resource, ...]:
    """Return the secrets that listeners and clusters of ``config`` name, of those that something usable is there for.

    Cheap while what is in them stays the same.
    """
    found = [_certificate(name, identity) for name, identity in material.identities.items()]
    found += [_authorities(name, known.pem) for name, known in material.authorities.items()]
    on_file = {
        resource.name: resource
        for listener in config.listeners
        if listener.tls is not None and listener.tls.read_by == "envoy"
        for resource in _of_envoys_listener(listener.tls)
    }
    found += on_file.values()
    if config.control.tls is not None:
        found += of_envoy(config.control.tls.envoy)
    return tuple(found)


@lru_cache(maxsize=4)
def of_envoy(files: EnvoyTls) -> tuple[Resource, ...]:
    """Return the secrets in files of Envoy's with which it comes to the control plane."""
    return (
        Resource(
            SECRET, ENVOY_CERTIFICATE, bytes(certificate_on_file(ENVOY_CERTIFICATE, files.certificate, files.key))
        ),
        Resource(SECRET, ENVOY_CA, bytes(authorities_on_file(ENVOY_CA, files.ca))),
    )


def certificate_on_file(name: str, certificate: str, key: str) -> tls.Secret:
    """Return the secret in files of Envoy's, which it reads again when something is renamed into their folder."""
    watched = core.WatchedDirectory(path=_folder(certificate))
    pair = tls.TlsCertificate(
        certificate_chain=core.DataSource(filename=certificate),
        private_key=core.DataSource(filename=key),
        watched_directory=watched,
    )
    return tls.Secret(name=name, tls_certificate=pair)


def authorities_on_file(name: str, ca: str) -> tls.Secret:
    """Return the same for authorities."""
    watched = core.WatchedDirectory(path=_folder(ca))
    context = tls.CertificateValidationContext(trusted_ca=core.DataSource(filename=ca), watched_directory=watched)
    return tls.Secret(name=name, validation_context=context)


@lru_cache(maxsize=64)
def _of_envoys_listener(settings: ListenerTls) -> tuple[Resource, ...]:
    shown = listener_certificate(settings)
    pair = certificate_on_file(shown, settings.certificate, settings.key)
    if settings.client_ca is None:
        return (Resource(SECRET, shown, bytes(pair)),)
    trusted = listener_client_ca(settings)
    authorities = authorities_on_file(trusted, settings.client_ca)
    return (Resource(SECRET, shown, bytes(pair)), Resource(SECRET, trusted, bytes(authorities)))


@lru_cache(maxsize=1024)
def _certificate(name: str, identity: Identity) -> Resource:
    pair = tls.TlsCertificate(
        certificate_chain=core.DataSource(inline_bytes=identity.certificate),
        private_key=core.DataSource(inline_bytes=identity.key),
    )
    return Resource(SECRET, name, bytes(tls.Secret(name=name, tls_certificate=pair)))


@lru_cache(maxsize=1024)
def _authorities(name: str, pem: bytes) -> Resource:
    context = tls.CertificateValidationContext(trusted_ca=core.DataSource(inline_bytes=pem))
    return Resource(SECRET, name, bytes(tls.Secret(name=name, validation_context=context)))


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)
