"""The API key that a request shows, and what it is told that shows none, or a wrong one.

OpenAI's clients send ``Authorization: Bearer KEY``, Anthropic's ``x-api-key: KEY``.
"""

from collections.abc import Mapping

from extproc.errors import ApiError

AUTHORIZATION, API_KEY = "authorization", "x-api-key"
MAX_KEY_CHARACTERS = 512
"""A longer one is nobody's, and not worth hashing."""

_SCHEME = "bearer"
_BLANKS = " \t"


def unauthenticated(message: str) -> ApiError:
    """Return the error for a request of which it is not known whose it is."""
    return ApiError(
        401,
        message,
        reason="unauthenticated",
        kind="authentication_error",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def key_of(headers: Mapping[str, str]) -> str | None:
    """Return the key that ``headers`` show, ``None`` if they show none.

    Raises:
        ApiError: 401, what they show is no key, or more than one. (A header that is repeated came joined by commas,
            which makes it nobody's key.)
    """
    shown = headers.get(API_KEY)
    authorization = headers.get(AUTHORIZATION)
    if authorization is not None:
        scheme, _, key = authorization.strip(_BLANKS).partition(" ")
        key = key.strip(_BLANKS)
        if scheme.lower() != _SCHEME or not key:
            raise unauthenticated("The Authorization header must be 'Bearer' and an API key.")
        if shown is not None and shown.strip(_BLANKS) != key:
            raise unauthenticated("Authorization and x-api-key show different API keys; expected one.")
        shown = key
    if shown is None:
        return None
    shown = shown.strip(_BLANKS)
    if not shown or len(shown) > MAX_KEY_CHARACTERS:
        raise wrong()
    return shown


def wrong() -> ApiError:
    """Return the error for a key that is nobody's."""
    return unauthenticated("The API key is not valid.")


def expired() -> ApiError:
    """Return the error for a token that Envoy found not valid."""
    return unauthenticated("The token is not valid: not signed by a known issuer, not for this service, or expired.")


def unknown() -> ApiError:
    """Return the error for somebody of whom it is known who they are, and who is no tenant."""
    return unauthenticated("Whoever this is has no access here.")


def missing() -> ApiError:
    """Return the error for a request that shows nothing."""
    return unauthenticated("An API key is missing. Send it as 'Authorization: Bearer KEY', or as 'x-api-key: KEY'.")
