"""Classification: texts or a conversation in, a class for each out; asked for as ``pooling`` is."""

from extproc.apis.pooling import parse
from extproc.usage import Usage

__all__ = ["METHOD", "PATHS", "USAGE", "parse"]

METHOD = "POST"
PATHS = ("/classify", "/v1/classify")
USAGE = Usage.NONE
