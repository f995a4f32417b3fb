"""Which certificates are accepted, held against what a real Envoy takes."""

import json
import os
import shlex
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from tests.envoy_process import envoy_binary
from tidegate import pem
from tidegate.config import Config
from tidegate.config_tls import ListenerTls
from tidegate.config_values import CHECKED
from tidegate.pem import CertificateError
from tidegate.runtime.certificates import Certificates

_UNENDED = b"-----BEGIN X509 CRL-----\nAAAA\n"
_STAPLED = x509.TLSFeature([x509.TLSFeatureType.status_request])


def _usage(*, digital_signature: bool) -> x509.KeyUsage:
    others = "content_commitment data_encipherment key_agreement key_cert_sign crl_sign encipher_only decipher_only"
    rest = dict.fromkeys(others.split(), False)
    return x509.KeyUsage(digital_signature=digital_signature, key_encipherment=True, **rest)


def pair(key: Any, *extensions: x509.ExtensionType) -> tuple[bytes, bytes]:
    """Return a certificate for ``key``, signed with another one, and the key."""
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")]), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(serialization.Encoding.PEM, *plain)


def _p256() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _rsa(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


TAKEN = {
    "P-256": lambda: pair(_p256()),
    "P-384": lambda: pair(ec.generate_private_key(ec.SECP384R1())),
    "P-521": lambda: pair(ec.generate_private_key(ec.SECP521R1())),
    "Ed25519": lambda: pair(ed25519.Ed25519PrivateKey.generate()),
    "RSA of 2048 bits": lambda: pair(_rsa(2048)),
    "RSA of 3072 bits": lambda: pair(_rsa(3072)),
    "RSA that does not sign": lambda: pair(_rsa(2048), _usage(digital_signature=False)),
    "P-256 that signs": lambda: pair(_p256(), _usage(digital_signature=True)),
    "above it another kind": lambda: _followed_by(pair(ec.generate_private_key(ec.SECP256K1()))[0]),
}

REFUSED = {
    "RSA of 1024 bits": lambda: pair(_rsa(1024)),
    "RSA of 2047 bits": lambda: pair(_rsa(2047)),
    "secp256k1": lambda: pair(ec.generate_private_key(ec.SECP256K1())),
    "secp224r1": lambda: pair(ec.generate_private_key(ec.SECP224R1())),
    "brainpoolP256r1": lambda: pair(ec.generate_private_key(ec.BrainpoolP256R1())),
    "Ed448": lambda: pair(ed448.Ed448PrivateKey.generate()),
    "DSA": lambda: pair(dsa.generate_private_key(1024)),
    "key usage does not name digital signatures": lambda: pair(_p256(), _usage(digital_signature=False)),
    "stapled OCSP response": lambda: pair(_p256(), _STAPLED),
    "without its end": lambda: _followed_by(_UNENDED),
}


def _followed_by(more: bytes) -> tuple[bytes, bytes]:
    certificate, key = pair(_p256())
    return certificate + more, key


def _envoy_takes(certificate: Path, key: Path) -> bool:
    """Tell whether Envoy starts with a listener that shows it."""
    both = {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}
    kind = "type.googleapis.com/envoy.extensions"
    shown = {
        "@type": f"{kind}.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {"tls_certificates": [both]},
    }
    echo = {"name": "echo", "typed_config": {"@type": f"{kind}.filters.network.echo.v3.Echo"}}
    listener = {
        "name": "edge",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [echo], "transport_socket": {"name": "tls", "typed_config": shown}}],
    }
    asked = [
        "--mode",
        "validate",
        "-l",
        "error",
        "--config-yaml",
        json.dumps({"static_resources": {"listeners": [listener]}}),
    ]
    ended = subprocess.run([envoy_binary(), *asked], capture_output=True, timeout=60, check=False)
    return ended.returncode == os.EX_OK


def _written(folder: Path, contents: tuple[bytes, bytes]) -> tuple[Path, Path]:
    paths = folder / "tls.crt", folder / "tls.key"
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@pytest.mark.parametrize("kind", TAKEN)
def test_what_is_accepted_is_accepted_by_envoy_as_it_is_and_as_it_is_sent(kind: str, tmp_path: Path) -> None:
    paths = _written(tmp_path, TAKEN[kind]())
    found = pem.identity(*map(str, paths))
    assert _envoy_takes(*paths)
    assert _envoy_takes(*_written(tmp_path, (found.certificate, found.key)))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_envoy_refuses_is_refused_with_its_reason(kind: str, tmp_path: Path) -> None:
    paths = _written(tmp_path, REFUSED[kind]())
    with pytest.raises(CertificateError, match=kind) as caught:
        pem.identity(*map(str, paths))
    assert str(caught.value).startswith(f"{paths[0]}: ")
    assert not _envoy_takes(*paths)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl alone makes such keys")
def test_rsa_that_is_for_pss_alone_is_refused(tmp_path: Path) -> None:
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    made = "openssl req -x509 -newkey rsa-pss -pkeyopt rsa_keygen_bits:2048 -nodes -subj /CN=a"
    subprocess.run(
        shlex.split(f"{made} -out tls.crt -keyout tls.key"), cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    with pytest.raises(CertificateError, match="RSA for PSS alone"):
        pem.identity(*map(str, paths))
    assert not _envoy_takes(*paths)


def test_it_is_said_when_a_configuration_is_checked_and_as_a_metric(tmp_path: Path) -> None:
    paths = [str(path) for path in _written(tmp_path, pair(_rsa(1024)))]
    with pytest.raises(ValidationError, match="RSA of 1024 bits"):
        ListenerTls.model_validate({"certificate": paths[0], "key": paths[1]})
    registry = CollectorRegistry()
    Certificates(registry, lambda: None).material(
        Config.model_validate(
            {
                "pools": ({"name": "one", "endpoints": ({"address": "127.0.0.1:1"},)},),
                "listener": {"tls": {"certificate": paths[0], "key": paths[1]}},
            },
            context=CHECKED,
        )
    )
    assert registry.get_sample_value("tidegate_certificate_refused", {"name": "listener.tls.certificate"}) == 1
