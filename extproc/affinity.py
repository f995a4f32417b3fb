"""What a request has in common with others: the beginning of its prompt. It does not leave this process unhashed."""

from extproc.body import ParsedBody
from tidegate.tokens import prefix
from tidegate.tokens.prefix import Prefix


def beginning(parsed: ParsedBody, tokens: int) -> Prefix:
    """Return the hashed beginning of a prompt of ``tokens`` tokens.

    Only prompts for the same model and with the same salt can have it in common. Tools are laid out before the
    conversation but stand behind it among the texts; so prompts whose tools differ in length have nothing in common.
    """
    schemas = 0 if parsed.conversation is None else parsed.conversation.schema_characters
    return prefix.of_texts(parsed.texts, tokens, (parsed.model, parsed.salt, str(schemas)))
