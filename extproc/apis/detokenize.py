"""Token ids to text, done by an engine; as ``tokenize`` is."""

from extproc.apis.tokenize import parse
from extproc.usage import Usage

__all__ = ["METHOD", "PATHS", "USAGE", "parse"]

METHOD = "POST"
PATHS = ("/detokenize", "/v1/detokenize")
USAGE = Usage.NONE
