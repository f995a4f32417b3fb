import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.image_size import MAX_CHARACTERS, of_base64, of_data_url
from tests.extproc.image_files import FILES, data_url, in_base64, png


@pytest.mark.parametrize("file", FILES)
def test_the_size_is_read_from_the_beginning_of_every_kind_of_file(file: Callable[[int, int], bytes]) -> None:
    data = file(640, 480) + b"\xab" * 100_000

    assert of_base64(in_base64(data)) == (640, 480)
    assert of_data_url(data_url(data)) == (640, 480)


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_ends_before_its_size_has_none(file: Callable[[int, int], bytes]) -> None:
    whole = file(640, 480)
    sizes = {of_base64(in_base64(whole[:end])) for end in range(0, len(whole), max(1, len(whole) // 40))}

    assert sizes <= {None, (640, 480)}
    assert of_base64(in_base64(whole[:12])) is None or file is FILES[1]


@pytest.mark.parametrize(
    "url",
    [
        *("http://169.254.169.254/latest", "file:///etc/passwd", "https://example.org/cat.png", "", "data:", "data:,x"),
        *("data:image/png,plain", "data:image/png;base64", "data:image/png;base64,????", "\ud800data:;base64,AAAA"),
    ],
)
def test_what_is_no_image_here_has_no_size_and_is_never_fetched(url: str) -> None:
    assert of_data_url(url) is None


def test_an_absurd_size_is_none() -> None:
    assert of_base64(in_base64(png(0, 5))) is None
    assert of_base64(in_base64(png(4_000_000_000, 1))) is None


def test_no_more_than_the_beginning_is_looked_at() -> None:
    late = b"\xff\xd8" + b"\xff\xe1\xff\xff" + b"\0" * 65_533 + b"\xff\xc0\0\x0b\x08\0\x10\0\x10"

    assert len(in_base64(late)) > MAX_CHARACTERS
    assert of_base64(in_base64(late)) is None


@given(st.one_of(st.text(), st.binary().map(lambda data: base64.b64encode(data).decode())))
def test_whatever_it_is_nothing_is_raised(text: str) -> None:
    of_base64(text)
    of_data_url(f"data:image/png;base64,{text}")


@given(
    st.sampled_from([b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8 ", b"RIFF\0\0\0\0WEBPVP8X"]),
    st.binary(max_size=200),
)
def test_whatever_follows_a_true_beginning_nothing_is_raised(head: bytes, rest: bytes) -> None:
    size = of_base64(in_base64(head + rest))

    assert size is None or min(size) >= 1
