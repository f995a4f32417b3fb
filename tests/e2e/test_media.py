"""Audio, images and lists of models through a real Envoy, by the clients that people use, sync and async."""

import base64
from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.e2e.api_engine import api_engine
from tests.e2e.stack import Stack, configuration, fetch, up

PICTURE = b"\x89PNG\r\n\x1a\n" + b"\0\r\n--" * 1_000


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with api_engine() as first, api_engine() as second:
        config = configuration([first], engine="none")
        config["pools"][0]["models"] = ["m", "org/large"]
        config["pools"].append({**config["pools"][0], "name": "other", "models": ["whisper-*", "claude-opus-4-1"]})
        config["pools"][1]["endpoints"] = [{"address": f"127.0.0.1:{second}"}]
        with up(tmp_path_factory.mktemp("media"), config) as running:
            yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("size", [1_000, 600_000, 20_000_000])
def test_a_recording_reaches_the_pool_of_its_model_whole(client: openai.OpenAI, stack: Stack, size: int) -> None:
    before = stack.total("tidegate_picks_total", pool="other")

    heard = client.audio.transcriptions.create(model="whisper-1", file=("talk.mp3", b"\0\r\n-" * (size // 4)))

    told, _, kind = heard.text.partition(" bytes of ")
    assert kind == "multipart/form-data"
    assert size < int(told) < size + 1_000
    assert stack.total("tidegate_picks_total", pool="other") - before == 1


def test_translations_speech_and_images_reach_an_engine(client: openai.OpenAI, stack: Stack) -> None:
    with pytest.warns(DeprecationWarning, match="deprecated"):
        translated = client.audio.translations.create(model="whisper-1", file=("a.wav", b"\0" * 10))
    assert translated.text
    with pytest.warns(DeprecationWarning, match="deprecated"):
        varied = client.images.create_variation(model="m", image=("a.png", PICTURE))
    assert len(client.audio.speech.create(model="m", input="hello", voice="alloy").content) == 1_000
    for images in (
        client.images.generate(model="m", prompt="a cat", n=2),
        client.images.edit(model="m", image=[("a.png", PICTURE), ("b.png", PICTURE)], prompt="brighter"),
        varied,
    ):
        assert images.data is not None
        assert images.data[0].b64_json
    stack.settle()
    names = {"audio_translations", "audio_speech", "images_generations", "images_edits", "images_variations"}
    assert {name: stack.total("tidegate_requests_total", api=name, outcome="ok") for name in names} == dict.fromkeys(
        names, 1
    )
    assert stack.total("tidegate_usage_unknown_total") == 0


async def test_the_async_sdk_sends_recordings_too(stack: Stack) -> None:
    async with openai.AsyncOpenAI(base_url=stack.clients, api_key="unused", max_retries=0) as client:
        assert (await client.audio.transcriptions.create(model="whisper-1", file=("a.mp3", b"\0" * 100))).text
        with pytest.raises(openai.NotFoundError) as caught:
            await client.audio.transcriptions.create(model="nothing", file=("a.mp3", b"\0" * 100))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_form_that_is_none_is_told_what_is_wrong(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/images/edits", cast_to=object, body={"model": "m"})
    assert caught.value.param == "prompt"
    with pytest.raises(openai.APIStatusError) as unsupported:
        client.post("/audio/transcriptions", cast_to=object, body={"model": "whisper-1"})
    assert unsupported.value.status_code == 415


def test_an_image_in_a_message_counts_by_its_tiles(stack: Stack) -> None:
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (512).to_bytes(4, "big") * 2
    url = f"data:image/png;base64,{base64.b64encode(header + bytes(300_000)).decode()}"
    body = {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}
    stack.settle()
    before = stack.total("tidegate_prompt_tokens_estimated_total", pool="default")

    assert fetch(f"{stack.clients}/responses", body)[0] == 200

    stack.settle()
    assert stack.total("tidegate_prompt_tokens_estimated_total", pool="default") - before == 255 + 7


def test_the_anthropic_sdk_lists_the_models_page_by_page(stack: Stack) -> None:
    base = stack.clients.removesuffix("/v1")
    with anthropic.Anthropic(base_url=base, api_key="unused", max_retries=0) as claude:
        assert [model.id for model in claude.models.list(limit=1)] == ["m", "org/large", "claude-opus-4-1"]
        assert claude.models.retrieve("org/large").display_name == "org/large"
        with pytest.raises(anthropic.NotFoundError) as caught:
            claude.models.retrieve("nothing")
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == "not_found_error"
