"""What a request has in common with others: the beginning of its prompt, and its session.

Neither leaves this process as it came: a prompt is hashed, and so is the name of a session, which may be somebody's
secret and is written into decision records.
"""

import hashlib
from collections.abc import Mapping

from extproc.body import ParsedBody
from tidegate.tokens import prefix
from tidegate.tokens.prefix import Prefix

SESSION_HEADER = "x-session-id"
"""As other routers name it (llm-d's endpoint picker, vLLM's router)."""


def session_of(headers: Mapping[str, str]) -> str:
    """Return what stands for the session that the headers name; empty when they name none."""
    named = headers.get(SESSION_HEADER, "")
    return hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() if named else ""


def beginning(parsed: ParsedBody, tokens: int) -> Prefix:
    """Return the hashed beginning of a prompt of ``tokens`` tokens.

    Only prompts for the same model and with the same salt can have it in common. Tools are laid out before the
    conversation but stand behind it among the texts; so prompts whose tools differ in length have nothing in common.
    """
    schemas = 0 if parsed.conversation is None else parsed.conversation.schema_characters
    return prefix.of_texts(parsed.texts, tokens, (parsed.model, parsed.salt, str(schemas)))
