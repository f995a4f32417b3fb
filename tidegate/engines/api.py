"""Where an engine answers questions about itself, and how it is asked for one token: data, per engine."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Api(NamedTuple):
    """The paths of one engine.

    Attributes:
        health: answers 200 while it is well by its own account.
        models: lists the models it holds, in OpenAI's form.
        generate: takes ``POST`` requests for text; in OpenAI's form unless ``inputs``.
        inputs: ``generate`` takes Text Generation Inference's own form.
    """

    health: str = "/health"
    models: str = "/v1/models"
    generate: str = "/v1/completions"
    inputs: bool = False

    def question(self, model: str) -> dict[str, object]:
        """Return the body of a request for one token of ``model``; empty where that is not known."""
        if self.inputs:
            return {"inputs": PROMPT, "parameters": {"max_new_tokens": 1}}
        named = {"model": model} if model else {}
        return {**named, "prompt": PROMPT, "max_tokens": 1, "temperature": 0, "stream": False}


PROMPT: Final = "Hi"

_OPENAI: Final = Api()
_APIS: Final[Mapping[str, Api]] = MappingProxyType({"tgi": Api(generate="/generate", inputs=True)})
"""Those that differ from vLLM, SGLang, llama.cpp, trtllm-serve and whatever else speaks OpenAI's language. SGLang's
``/health`` and some releases of others run a real generation, and take a second or more."""


def api(engine: str) -> Api:
    """Return the paths of ``engine``, a dialect's name."""
    return _APIS.get(engine, _OPENAI)
