"""What a prompt is made of, as far as its tokens go."""

from typing import NamedTuple


class Conversation(NamedTuple):
    """The shape of a conversation, by which a chat template adds tokens of its own.

    Attributes:
        messages: how many there are.
        instructions: how many of them are instructions to the model (roles ``system`` and ``developer``).
        names: how many bear a name besides their role.
        schema_characters: length of the tools' JSON, which is among the prompt's texts as well; 0 without tools.
    """

    messages: int
    instructions: int = 0
    names: int = 0
    schema_characters: int = 0


class Prompt(NamedTuple):
    """A prompt, before it is counted.

    Attributes:
        texts: what is to be tokenised.
        conversation: its shape where a chat template lays it out; ``None`` where the engine takes it as it is.
        other_tokens: tokens that are neither: token ids, and an estimate of images, audio and files.
    """

    texts: tuple[str, ...]
    conversation: Conversation | None = None
    other_tokens: int = 0
