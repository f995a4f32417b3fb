"""Translation: a recording in, its text in English out; asked for as ``audio_transcriptions`` is."""

from extproc.apis.audio_transcriptions import parse_form
from extproc.usage import Usage

__all__ = ["METHOD", "PATHS", "USAGE", "parse_form"]

METHOD = "POST"
PATHS = ("/v1/audio/translations",)
USAGE = Usage.NONE
