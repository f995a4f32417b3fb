"""The four formats of public traces."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.simulator.virtual import traces
from tidegate.simulator.virtual.workload import Arrival

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9305900,396,109
2023-11-16 18:15:48.6805900,12,1
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1100, "output_length": 6, "hash_ids": [7, 8, 9]}
{"timestamp": 1500, "input_length": 1024, "output_length": 4, "hash_ids": [7, 8]}

"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,GPT-4,1087,230,1317,API log
46,GPT-4,50,0,50,API log
"""
BAILIAN = (
    '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.1, "input_length": 40, "output_length": 9, "type": "text",'
    ' "turn": 1, "hash_ids": [1, 2, 3]}\n'
    '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 62.1, "input_length": 64, "output_length": 9, "type": "text",'
    ' "turn": 2, "hash_ids": [1, 2, 4, 5]}\n'
)


def read(tmp_path: Path, text: str) -> list[Arrival]:
    file = tmp_path / "trace"
    file.write_text(text, encoding="utf-8")
    return list(traces.read(file).arrivals)


def test_azures_timestamps_become_seconds_from_the_first_and_are_put_in_order(tmp_path: Path) -> None:
    found = read(tmp_path, AZURE)
    assert [(one.prompt_tokens, one.output_tokens) for one in found] == [(374, 44), (12, 1), (396, 109)]
    assert [one.at for one in found] == pytest.approx([0.0, 2.0, 4.25], abs=1e-5)


def test_mooncakes_ids_are_kept_for_full_blocks_alone(tmp_path: Path) -> None:
    assert read(tmp_path, MOONCAKE) == [Arrival(0.0, 1100, 6, (7, 8), 512), Arrival(1.5, 1024, 4, (7, 8), 512)]


def test_burstgpts_failures_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, BURSTGPT) == [Arrival(0.0, 472, 18), Arrival(40.5, 1087, 230)]


def test_bailians_turns_are_one_session(tmp_path: Path) -> None:
    first, second = read(tmp_path, BAILIAN)
    assert first.blocks == (1, 2)
    assert second.blocks == (1, 2, 4, 5)
    assert first.block_tokens == second.block_tokens == 16
    assert first.session == second.session == "1"
    assert second.at - first.at == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no known format"),
        ("a,b\n1,2\n", "no known format"),
        (AZURE + "yesterday,1,2\n", "line 5: "),
        (AZURE + "2023-11-16 18:15:46,one,2\n", "line 5: "),
        (AZURE.splitlines()[0], "no request"),
        (MOONCAKE + "{", "line 4: not JSON"),
        (MOONCAKE + "[1]", "line 4: not a JSON object"),
        (MOONCAKE + '{"timestamp": 1}', "line 4: no input_length"),
        (MOONCAKE + '{"timestamp": 1, "input_length": null, "output_length": 1}', "line 4: "),
        ('{"timestamp": 1, "input_length": 0, "output_length": 1}', "no request"),
    ],
)
def test_a_broken_trace_is_refused_with_the_place_and_the_reason(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(traces.TraceError, match=said):
        read(tmp_path, text)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"\x80\x81\x82" * 100)
    with pytest.raises(traces.TraceError, match="not UTF-8"):
        traces.read(tmp_path / "trace")


@settings(deadline=None)
@given(line=st.text(max_size=200), start=st.sampled_from([AZURE, MOONCAKE, BURSTGPT, BAILIAN]))
def test_no_line_whatever_breaks_the_reader(line: str, start: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any-trace"
    file.write_text(start + line, encoding="utf-8", errors="surrogatepass")
    try:
        found = traces.read(file)
    except traces.TraceError:
        return
    assert all(one.prompt_tokens > 0 and one.output_tokens > 0 for one in found.arrivals)
