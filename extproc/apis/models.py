"""The list of models: answered here, from the configuration, as OpenAI has it or as Anthropic does.

Both APIs have it at the same path. Anthropic's clients say that they are, by the header ``anthropic-version``.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from extproc.desk import Catalogue
from extproc.errors import ANTHROPIC_VERSION, no_such_model, wrong_value
from extproc.usage import Usage

METHOD = "GET"
PATHS = ("/v1/models", "/v1/models/")
USAGE = Usage.NONE

OWNER = "tidegate"

PAGE, LARGEST_PAGE = 20, 1000
"""How many models Anthropic's list shows at a time, where the client does not say, and at most."""


def answer(headers: Mapping[str, str], catalogue: Catalogue) -> bytes:
    """Return the list of models, or the one that the path names.

    Raises:
        ApiError: 404, there is none of that name; 400, Anthropic's list has no such page.
    """
    path, _, query = headers.get(":path", "").partition("?")
    describe = _for_anthropic if ANTHROPIC_VERSION in headers else _for_openai
    # Names hold slashes (meta-llama/Llama-3.1-8B), so all that follows is the name.
    listing, _, name = path.partition(PATHS[1])
    if not listing:
        name = unquote(name, errors="replace")
        if name not in catalogue.models and not catalogue.serves(name):
            raise no_such_model(name)
        return msgspec.json.encode(describe(name, catalogue.created))
    if describe is _for_anthropic:
        return msgspec.json.encode(_page(query, catalogue))
    return msgspec.json.encode(
        {"object": "list", "data": [describe(model, catalogue.created) for model in catalogue.models]}
    )


def _for_openai(model: str, created: int) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": created, "owned_by": OWNER}


def _for_anthropic(model: str, created: int) -> dict[str, Any]:
    since = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    return {"type": "model", "id": model, "display_name": model, "created_at": since}


def _page(query: str, catalogue: Catalogue) -> dict[str, Any]:
    """Return the page that a query asks for with ``limit`` and ``after_id`` or ``before_id``."""
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    limit = asked.get("limit", str(PAGE))
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 4 and 1 <= int(limit) <= LARGEST_PAGE):
        raise wrong_value("limit", f"a whole number from 1 to {LARGEST_PAGE}")
    models, size = catalogue.models, int(limit)
    if "before_id" in asked:
        end = _place(models, asked["before_id"], "before_id")
        start, more = max(0, end - size), end > size
    else:
        start = _place(models, asked["after_id"], "after_id") + 1 if "after_id" in asked else 0
        end = min(len(models), start + size)
        more = end < len(models)
    page = models[start:end]
    return {
        "data": [_for_anthropic(model, catalogue.created) for model in page],
        "has_more": more,
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def _place(models: Sequence[str], model: str, param: str) -> int:
    if model not in models:
        raise wrong_value(param, "the id of a model in this list")
    return models.index(model)
