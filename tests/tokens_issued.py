"""Who issues JSON Web Tokens in tests."""

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


class Issuer:
    """An issuer with a key of its own."""

    def __init__(self, name: str = "https://issuer.example", kid: str = "one") -> None:
        self.name = name
        self._kid = kid
        self._key = rsa.generate_private_key(65537, 2048)

    def key_set(self) -> dict[str, Any]:
        """Return its public keys."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": self._kid}
        return {"keys": [{**key, "n": _encoded(_bytes(numbers.n)), "e": _encoded(_bytes(numbers.e))}]}

    def token(self, **claims: Any) -> str:
        """Return a token, good for a minute, with these claims besides the issuer; ``None`` leaves one out."""
        said = {"iss": self.name, "exp": int(time.time()) + 60, **claims}
        return self._signed({name: value for name, value in said.items() if value is not None})

    def _signed(self, claims: dict[str, Any]) -> str:
        header = {"alg": "RS256", "typ": "JWT", "kid": self._kid}
        text = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
        return f"{text}.{_encoded(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def unsigned(**claims: Any) -> str:
    """Return a token that says it needs no signature."""
    parts = ({"alg": "none", "typ": "JWT"}, {"exp": int(time.time()) + 60, **claims})
    return ".".join([*(_encoded(json.dumps(part).encode()) for part in parts), ""])


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
