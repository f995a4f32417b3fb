"""Changing images: pictures and a text in, pictures out."""

from extproc import form
from extproc.apis import images_generations
from extproc.apis.images_generations import TOKENS_PER_IMAGE
from extproc.body import ParsedBody, choice_count, model_or_none, truth
from extproc.conversation import IMAGE_TOKENS
from extproc.usage import Usage

METHOD = "POST"
PATHS = ("/v1/images/edits",)
USAGE = Usage.NONE


def parse_form(body: bytes, content_type: str) -> ParsedBody:
    """Understand the form of a request to change images, or the JSON in which some clients name the images.

    Raises:
        ApiError: nobody could serve it.
    """
    if form.is_json(content_type):
        return images_generations.parse(body)
    given = form.read(body, content_type, ("model", "prompt", "n", "stream"))
    model = model_or_none(given.fields.get("model"))
    prompt = given.fields.get("prompt", "")
    return ParsedBody(
        model=model,
        texts=(prompt,) if prompt else (),
        overhead_tokens=IMAGE_TOKENS * len(given.files),
        max_output_tokens=TOKENS_PER_IMAGE,
        choices=choice_count(n=given.fields.get("n")),
        stream=truth(given.fields.get("stream")),
    )
