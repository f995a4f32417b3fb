"""The list of models, as OpenAI has it: answered here, from the configuration."""

from typing import Any
from urllib.parse import unquote

import msgspec

from extproc.desk import Catalogue
from extproc.errors import no_such_model
from extproc.usage import Usage

METHOD = "GET"
PATHS = ("/v1/models", "/v1/models/")
USAGE = Usage.NONE

OWNER = "tidegate"


def answer(path: str, catalogue: Catalogue) -> bytes:
    """Return the list of models, or the one that ``path`` names.

    Raises:
        ApiError: 404, there is none of that name.
    """
    # Names hold slashes (meta-llama/Llama-3.1-8B), so all that follows is the name.
    listing, _, name = path.partition(PATHS[1])
    if listing:
        return msgspec.json.encode(
            {"object": "list", "data": [_described(model, catalogue.created) for model in catalogue.models]}
        )
    name = unquote(name, errors="replace")
    if name not in catalogue.models:
        raise no_such_model(name)
    return msgspec.json.encode(_described(name, catalogue.created))


def _described(model: str, created: int) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": created, "owned_by": OWNER}
