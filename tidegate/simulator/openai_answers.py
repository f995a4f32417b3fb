"""How a simulated engine words its answers: JSON bodies and server-sent events, field by field as vLLM 0.32 does.

The words of an answer are plain ASCII letters, so that an event is a few strings put together, once for each token.
"""

import base64
import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tidegate.simulator.errors import compact
from tidegate.simulator.stats import FinishReason

FINGERPRINT = "vllm-0.32.0-simulated"
DONE = "data: [DONE]\n\n"


class Usage(NamedTuple):
    """Tokens of one HTTP request; ``cached`` of its prompt tokens needed no prefill."""

    prompt: int
    completion: int
    cached: int

    def body(self) -> dict[str, Any]:
        """Return vLLM's ``usage``; cached tokens are left out where there are none, as vLLM does."""
        details = {"cached_tokens": self.cached} if self.cached else None
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": details,
        }


class Text(NamedTuple):
    """One finished answer."""

    text: str
    reason: FinishReason


class Wording(Protocol):
    """The form of the answers of one API. Events end with a blank line."""

    def opening(self, choice: int) -> str:
        """Return the event that goes before the first token of ``choice``, empty where there is none."""
        ...

    def token(self, choice: int, text: str) -> str:
        """Return the event for one token."""
        ...

    def last_token(self, choice: int, text: str, reason: FinishReason, fingerprint: bool) -> str:
        """Return the event for the token that ends ``choice``; ``fingerprint``: no event of usage will follow."""
        ...

    def usage(self, usage: Usage) -> str:
        """Return the event of usage."""
        ...

    def whole(self, answers: Sequence[Text], usage: Usage) -> str:
        """Return the JSON body of an answer that is not streamed."""
        ...


class _Heading:
    """The fields that all parts of an answer begin with."""

    def __init__(self, answer_id: str, created: int, model: str, kind: str) -> None:
        self._fields = {"id": answer_id, "object": kind, "created": created, "model": model}
        self._event = "data: " + compact(self._fields)[:-1]

    def event(self, rest: str) -> str:
        return f"{self._event},{rest}}}\n\n"

    def usage(self, usage: Usage) -> str:
        counts = compact({key: value for key, value in usage.body().items() if value is not None})
        return self.event(f'"choices":[],"usage":{counts},"system_fingerprint":"{FINGERPRINT}"')

    def body(self, choices: Sequence[Mapping[str, Any]], usage: Usage, tail: Sequence[str]) -> str:
        whole = {
            **self._fields,
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {**usage.body(), "completion_tokens_details": None},
            **dict.fromkeys(tail),
        }
        return compact(whole)


def _fingerprint(wanted: bool) -> str:
    return f',"system_fingerprint":"{FINGERPRINT}"' if wanted else ""


class ChatWording:
    """``/v1/chat/completions``."""

    def __init__(self, number: str, created: int, model: str, stream: bool) -> None:
        """``number``: hexadecimal and unique; ``created``: seconds since 1970."""
        kind = "chat.completion.chunk" if stream else "chat.completion"
        self._heading = _Heading(f"chatcmpl-{number}", created, model, kind)
        self.usage = self._heading.usage

    def opening(self, choice: int) -> str:
        """See ``Wording``."""
        delta = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
        return self._heading.event(
            f'"choices":[{{"index":{choice},{delta}}}],"prompt_token_ids":null,"prompt_text":null'
        )

    def token(self, choice: int, text: str) -> str:
        """See ``Wording``."""
        return self._heading.event(
            f'"choices":[{{"index":{choice},"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":null,'
            '"token_ids":null}]'
        )

    def last_token(self, choice: int, text: str, reason: FinishReason, fingerprint: bool) -> str:
        """See ``Wording``."""
        return self._heading.event(
            f'"choices":[{{"index":{choice},"delta":{{"content":"{text}"}},"logprobs":null,'
            f'"finish_reason":"{reason.value}","stop_reason":null,"token_ids":null}}]{_fingerprint(fingerprint)}'
        )

    def whole(self, answers: Sequence[Text], usage: Usage) -> str:
        """See ``Wording``."""
        empty = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
        choices = [
            {
                "index": at,
                "message": {"role": "assistant", "content": answer.text, **empty},
                "logprobs": None,
                "finish_reason": answer.reason.value,
                **dict.fromkeys(("stop_reason", "token_ids", "routed_experts")),
            }
            for at, answer in enumerate(answers)
        ]
        tail = ("prompt_logprobs", "prompt_token_ids", "prompt_text")
        return self._heading.body(choices, usage, (*tail, "kv_transfer_params", "ec_transfer_params", "metrics"))


class CompletionWording:
    """``/v1/completions``."""

    def __init__(self, number: str, created: int, model: str) -> None:
        """``number``: hexadecimal and unique; ``created``: seconds since 1970."""
        self._heading = _Heading(f"cmpl-{number}", created, model, "text_completion")
        self.usage = self._heading.usage

    def opening(self, choice: int) -> str:  # noqa: ARG002
        """See ``Wording``."""
        return ""

    def token(self, choice: int, text: str) -> str:
        """See ``Wording``."""
        return self._event(choice, text, "null", fingerprint=False)

    def last_token(self, choice: int, text: str, reason: FinishReason, fingerprint: bool) -> str:  # noqa: ARG002
        """See ``Wording``; here the fingerprint comes with the usage alone."""
        return self._event(choice, text, f'"{reason.value}"', fingerprint=False)

    def whole(self, answers: Sequence[Text], usage: Usage) -> str:
        """See ``Wording``."""
        tail = ("stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts")
        choices = [
            {
                "index": at,
                "text": answer.text,
                "logprobs": None,
                "finish_reason": answer.reason.value,
                **dict.fromkeys(tail),
            }
            for at, answer in enumerate(answers)
        ]
        return self._heading.body(choices, usage, ("kv_transfer_params", "ec_transfer_params", "metrics"))

    def _event(self, choice: int, text: str, reason: str, fingerprint: bool) -> str:
        return self._heading.event(
            f'"choices":[{{"index":{choice},"text":"{text}","logprobs":null,"finish_reason":{reason},'
            f'"stop_reason":null,"prompt_token_ids":null,"token_ids":null}}]{_fingerprint(fingerprint)}'
        )


def with_usage(event: str, usage: Usage) -> str:
    """Return ``event``, if there is one, with usage so far, as vLLM does with ``continuous_usage_stats``."""
    if not event:
        return event
    counts = compact({key: value for key, value in usage.body().items() if value is not None})
    return event.removesuffix("}\n\n") + f',"usage":{counts}}}\n\n'


def embeddings(number: str, created: int, model: str, vectors: Sequence[object], usage: Usage) -> str:
    """Return the JSON body of ``/v1/embeddings``; each of ``vectors`` as ``embedding`` made it."""
    data = [{"index": at, "object": "embedding", "embedding": vector} for at, vector in enumerate(vectors)]
    heading = {"id": f"embd-{number}", "object": "list", "created": created, "model": model}
    return compact({**heading, "data": data, "usage": usage.body()})


def embedding(prompt: bytes, dimensions: int, encoding: str) -> list[float] | str:
    """Return a vector of ``dimensions`` numbers from -1 to 1 that the prompt decides: a list, or base64 of float32."""
    noise = hashlib.shake_128(prompt).digest(dimensions)
    vector = array("f", ((byte - 127.5) / 127.5 for byte in noise))
    return vector.tolist() if encoding == "float" else base64.b64encode(vector.tobytes()).decode()
