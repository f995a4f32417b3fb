"""What chat templates add to a conversation, by the family of the model."""

import functools
import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidegate.tokens.prompt import Conversation


class Template(NamedTuple):
    """Tokens that a chat template writes besides the contents.

    Attributes:
        base: for every conversation: what begins it, and what begins the answer.
        message: for a message, its role included.
        instruction: for a system or developer message.
        uninstructed: where there is no such message: some templates then write one of their own.
        name: for a name, besides its text.
        tools: for tools, besides their schemas.
        schema_share: tokens of the schemas as the template writes them, over tokens of the JSON that was sent.
    """

    base: float
    message: float
    instruction: float
    uninstructed: float = 0
    name: float = 0
    tools: float = 0
    schema_share: float = 1


DEFAULT: Final = "openai"
"""For models that are not known: within 10 tokens of most templates that add no system prompt of their own."""

TEMPLATES: Final[Mapping[str, Template]] = {
    # OpenAI's cookbook: 3 for a message, 1 for its role, 1 for a name, 3 that begin the answer. Tools become
    # TypeScript, which takes about half as many tokens as their JSON.
    DEFAULT: Template(base=3, message=4, instruction=4, name=1, tools=9, schema_share=0.5),
    # The rest is measured with the models' own tokenizers and templates: an empty conversation of a user, of a system
    # and a user, and of more turns; the tools are two small ones of 178 tokens. Where a message comes to 1.5, a user's
    # and an assistant's together come to 3. The stock templates of Llama 3, Gemma 3 and DeepSeek V3 leave tools out:
    # who sends them tools serves another template, so their JSON counts as it is.
    "gpt-oss": Template(base=51, message=5, instruction=7, tools=25, schema_share=0.5),
    "llama-3": Template(base=5, message=5, instruction=5),
    "llama-3.1": Template(base=25, message=5, instruction=5, uninstructed=5, tools=61, schema_share=1.7),
    "qwen2.5": Template(base=3, message=5, instruction=5, uninstructed=21, tools=76),
    "qwen3": Template(base=3, message=5, instruction=5, tools=81),
    "gemma-3": Template(base=4, message=5, instruction=1),
    "deepseek-v3": Template(base=1.5, message=1.5, instruction=0),
    "mistral-v1": Template(base=4, message=4, instruction=2),
    "mistral-v3": Template(base=1.5, message=1.5, instruction=2, tools=4),
}

_FAMILIES: Final = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        ("gpt-oss", "gpt-oss"),
        # Distilled models speak the template of their teacher, whatever they are built on.
        ("deepseek", "deepseek-v3"),
        (r"llama-?3[.-][1-9](?![0-9]*[bk])", "llama-3.1"),  # and not 3-8b or 3-128k
        ("llama-?3", "llama-3"),
        (r"qwen-?2\.5", "qwen2.5"),
        ("qwen-?3", "qwen3"),
        ("gemma", "gemma-3"),
        (r"mistral-7b-instruct-v0\.[12]|mixtral-8x7b", "mistral-v1"),
        ("[a-z]*stral-|mixtral", "mistral-v3"),
    )
)
"""What is looked for in a model's name, first to last."""

_CHARACTERS_PER_TOKEN: Final = 3.5
"""Of the schemas' JSON (measured: 3.3 indented, 3.6 minified)."""


@functools.lru_cache(1_024)
def template_for(model: str) -> Template:
    """Return the chat template of ``model``, any string; paths and other cases do not matter."""
    name = model[:256].lower()
    return TEMPLATES[next((family for pattern, family in _FAMILIES if pattern.search(name)), DEFAULT)]


def added_tokens(template: Template, conversation: Conversation) -> int:
    """Return the tokens that ``template`` adds to the texts of ``conversation``.

    They are fewer than none where it writes long schemas in fewer tokens than their JSON has.
    """
    tokens = template.base + template.message * (conversation.messages - conversation.instructions)
    tokens += template.instruction * conversation.instructions + template.name * conversation.names
    if not conversation.instructions:
        tokens += template.uninstructed
    if conversation.schema_characters:
        as_sent = conversation.schema_characters / _CHARACTERS_PER_TOKEN
        tokens += template.tools + (template.schema_share - 1) * as_sent
    return math.ceil(tokens)
