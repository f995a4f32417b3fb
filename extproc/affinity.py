"""What a request has in common with others: the beginning of its prompt. It does not leave this process unhashed."""

from extproc.body import ParsedBody
from extproc.desk import Desk
from tidegate.tokens import prefix
from tidegate.tokens.prefix import Prefix


async def begun(desk: Desk, parsed: ParsedBody, tokens: int, pool: str, salt: str = "") -> Prefix:
    """Return the hashed beginning of a prompt of ``tokens`` tokens, as it is known to whoever serves it.

    ``pool`` is empty where the model says which it is. ``salt`` keeps it apart from other tenants' where that is a
    guess; engines that tell what they cache know no tenants.
    """
    if desk.told_prefixes and (told := await desk.told_prefixes.beginning(parsed, pool)) is not None:
        return told
    return beginning(parsed, tokens, salt)


def beginning(parsed: ParsedBody, tokens: int, salt: str = "") -> Prefix:
    """Return the hashed beginning of a prompt of ``tokens`` tokens.

    Only prompts for the same model and with the same salt can have it in common. Tools are laid out before the
    conversation but stand behind it among the texts; so prompts whose tools differ in length have nothing in common.
    """
    schemas = 0 if parsed.conversation is None else parsed.conversation.schema_characters
    keys = (parsed.model, parsed.salt, str(schemas))
    return prefix.of_texts(parsed.texts, tokens, (*keys, salt) if salt else keys)
