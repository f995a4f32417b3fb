from tests.e2e.llamacpp.engine import gguf, llamacpp

__all__ = ["gguf", "llamacpp"]
