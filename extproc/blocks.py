"""A conversation as Anthropic has it: a system prompt beside it, and contents of typed blocks.

Written like ``conversation``, by the same rules: what is not known counts as nothing, and only text is tokenised.
"""

import json
from typing import Any

from extproc import image_size
from extproc.body import MAX_ITEMS
from extproc.conversation import FILE_TOKENS, Contribution
from extproc.errors import ApiError, missing, wrong_type, wrong_value
from tidegate.tokens import images
from tidegate.tokens.prompt import Conversation


def of_conversation(system: Any, messages: Any, model: str = "") -> Contribution:
    """Return what a system prompt and messages put into the prompt of ``model``.

    Raises:
        ApiError: they are missing, too many, or of another form.
    """
    if messages is None:
        raise missing("messages")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of messages")
    if not messages:
        raise wrong_value("messages", "at least one message")
    walk = _Walk(len(messages), model)
    if system is not None:
        walk.content(system, "system")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise wrong_type(f"messages[{place}]", "an object")
        walk.content(message.get("content"), f"messages[{place}].content")
    instructions = int(system is not None)
    return Contribution(walk.texts, walk.tokens, Conversation(len(messages) + instructions, instructions))


class _Walk:
    """What was found so far, and how much was looked at."""

    def __init__(self, items: int, model: str) -> None:
        self._model = model
        self.texts: list[str] = []
        self.tokens = 0
        self._items = items
        self._bound()

    def _bound(self) -> None:
        if self._items > MAX_ITEMS:
            raise wrong_value("messages", f"at most {MAX_ITEMS} messages and blocks together")

    def content(self, content: Any, param: str, *, nested: bool = False) -> None:
        """Take in a text or a list of blocks."""
        if content is None:
            return
        if isinstance(content, str):
            self.texts.append(content)
            return
        if not isinstance(content, list):
            raise self._unlike(param)
        self._items += len(content)
        self._bound()
        for place, block in enumerate(content):
            if not isinstance(block, dict):
                raise wrong_type(f"{param}[{place}]", "an object")
            self._block(block, f"{param}[{place}]", nested=nested)

    @staticmethod
    def _unlike(param: str) -> ApiError:
        return wrong_type(param, "a string or an array of blocks")

    def _block(self, block: dict[str, Any], param: str, *, nested: bool) -> None:
        match block.get("type"):
            case "text":
                self._text(block.get("text"))
            case "image":
                self.tokens += self._image(block.get("source"))
            case "document":
                self._document(block.get("source"))
            case "tool_use" | "server_tool_use":
                self._text(block.get("name"))
                self._text(json.dumps(block.get("input"), ensure_ascii=False))
            case "tool_result" | "search_result" if not nested:
                self.content(block.get("content"), f"{param}.content", nested=True)
        # The thinking of earlier turns is dropped before the prompt is made.

    def _image(self, source: Any) -> int:
        data = source.get("data") if isinstance(source, dict) else None
        return images.tokens(self._model, image_size.of_base64(data) if isinstance(data, str) else None)

    def _document(self, source: Any) -> None:
        text = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
        if isinstance(text, str):
            self.texts.append(text)
        else:
            self.tokens += FILE_TOKENS

    def _text(self, value: Any) -> None:
        if isinstance(value, str):
            self.texts.append(value)
