"""How answers tell what they cost."""

import enum


class Usage(enum.Enum):
    """The form in which an answer tells its token usage: Envoy reads it by the route, which follows this.

    The values are known to the route table and to the access log's reader, by agreement.
    """

    CHAT_COMPLETIONS = "chat_completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    NONE = "none"
    """It tells none, or not with every engine: what is not there is not missed."""
