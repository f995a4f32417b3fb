"""Variations of an image: a picture in, pictures like it out; asked for as ``images_edits`` are, without a text."""

from extproc.apis.images_edits import parse_form
from extproc.usage import Usage

__all__ = ["METHOD", "PATHS", "USAGE", "parse_form"]

METHOD = "POST"
PATHS = ("/v1/images/variations",)
USAGE = Usage.NONE
