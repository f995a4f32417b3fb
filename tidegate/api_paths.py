"""The paths of the APIs that go to engines, by the API's name; the first is its own, by which engines know it.

They are declared where the APIs are (``extproc.apis``); the configuration has to know them too, and a test compares.
"""

from collections.abc import Mapping
from typing import Final

PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "audio_speech": ("/v1/audio/speech",),
    "audio_transcriptions": ("/v1/audio/transcriptions",),
    "audio_translations": ("/v1/audio/translations",),
    "chat_completions": ("/v1/chat/completions",),
    "classify": ("/classify", "/v1/classify"),
    "completions": ("/v1/completions",),
    "count_tokens": ("/v1/messages/count_tokens",),
    "detokenize": ("/detokenize", "/v1/detokenize"),
    "embeddings": ("/v1/embeddings",),
    "generate": ("/generate",),
    "images_edits": ("/v1/images/edits",),
    "images_generations": ("/v1/images/generations",),
    "images_variations": ("/v1/images/variations",),
    "messages": ("/v1/messages",),
    "pooling": ("/pooling",),
    "rerank": ("/rerank", "/v1/rerank", "/v2/rerank"),
    "responses": ("/v1/responses",),
    "score": ("/score", "/v1/score"),
    "tokenize": ("/tokenize", "/v1/tokenize"),
}

FORMS: Final = frozenset({"audio_transcriptions", "audio_translations", "images_edits", "images_variations"})
"""Those whose bodies are forms, or may be."""

ANSWERED_HERE: Final = ("/v1/models", "/v1/responses/")
"""Where paths begin that never get to an engine."""

API_OF: Final[Mapping[str, str]] = {path: name for name, paths in PATHS.items() for path in paths}


def own_path(api: str) -> str:
    """Return the path by which engines know ``api``; empty for one that has none."""
    return PATHS[api][0] if api in PATHS else ""
