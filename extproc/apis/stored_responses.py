"""A response that was asked for earlier: refused, because no endpoint is known to have it."""

from collections.abc import Mapping
from typing import NoReturn

from extproc.desk import Catalogue
from extproc.errors import ApiError
from extproc.usage import Usage

METHOD = "*"
PATHS = ("/v1/responses/",)
USAGE = Usage.NONE


def answer(headers: Mapping[str, str], catalogue: Catalogue) -> NoReturn:  # noqa: ARG001  whatever was asked
    """Refuse.

    Raises:
        ApiError: 404, always.
    """
    raise ApiError(
        404,
        "Responses are not stored here: they are created, and answered at once, by POST /v1/responses.",
        reason="stateful",
        code="response_not_found",
    )
