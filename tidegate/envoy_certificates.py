"""Which certificates Envoy shows: it refuses some that are sound, and would go on with the one before, or with none.

What is here was seen of Envoy 1.40, which has BoringSSL.
"""

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import PublicKeyAlgorithmOID

CURVES: Final = ("secp256r1", "secp384r1", "secp521r1")
RSA_BITS: Final = (2048, 16_384)
"""The smallest and the largest."""

EXPECTED: Final = f"RSA of {RSA_BITS[0]} to {RSA_BITS[1]} bits, P-256, P-384, P-521 or Ed25519"


def refused(certificate: x509.Certificate) -> str:
    """Return why Envoy refuses to show ``certificate``; empty where it does not."""
    try:
        key, extensions = certificate.public_key(), certificate.extensions
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension):
        return "its public key is of no known kind, or its extensions cannot be read"
    found = ""
    if isinstance(key, RSAPublicKey):
        if certificate.public_key_algorithm_oid != PublicKeyAlgorithmOID.RSAES_PKCS1_v1_5:
            found = "RSA for PSS alone"
        elif not RSA_BITS[0] <= key.key_size <= RSA_BITS[1]:
            found = f"RSA of {key.key_size} bits"
    elif isinstance(key, EllipticCurvePublicKey):
        if key.curve.name not in CURVES:
            found = key.curve.name
        elif not _may_sign(extensions):
            return "its key usage does not name digital signatures, without which Envoy refuses it"
    elif not isinstance(key, Ed25519PublicKey):
        found = type(key).__name__.strip("_").removesuffix("PublicKey")
    if found:
        return f"its key is of a kind that Envoy refuses ({found}); expected {EXPECTED}"
    return "it must come with a stapled OCSP response, which there is none of" if _stapled(extensions) else ""


def _may_sign(extensions: x509.Extensions) -> bool:
    usage = [one.value for one in extensions if isinstance(one.value, x509.KeyUsage)]
    return all(one.digital_signature for one in usage)


def _stapled(extensions: x509.Extensions) -> bool:
    features = [one.value for one in extensions if isinstance(one.value, x509.TLSFeature)]
    return any(x509.TLSFeatureType.status_request in one for one in features)
