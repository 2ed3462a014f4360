"""Texts and tokens of a model's outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline.outputs import decode_texts, decode_tokens, normalized_label
from tests.support.language import write_tokenizer

DIGEST = "0" * 64


def output(*steps: Any, kind: str = "text") -> Output:
    return Output.model_validate({"name": "y", "type": kind, "steps": list(steps)})


def tokens(*steps: Any) -> Output:
    return output(*steps, kind="tokens")


def logits(*paths: list[int], classes: int = 5) -> Any:
    """Return values whose best class is that of the paths (inputs x times x classes)."""
    return np.eye(classes, dtype=np.float32)[np.array(paths)]


@pytest.fixture
def letters(tmp_path: Path) -> dict[str, str]:
    """A file of the tokens a, b, a blank and |, without one for CTC's blank."""
    path = tmp_path / "letters.txt"
    path.write_text("a\nb\n \n|\n")
    return {"file": str(path), "sha256": DIGEST}


def test_ctc_takes_repetitions_once_and_leaves_out_blanks(letters: dict[str, str]) -> None:
    values = logits([1, 1, 0, 1, 2, 2], [0, 0, 0, 0, 0, 0], [4, 1, 3, 3, 0, 3])
    assert decode_texts(values, output({"ctc": letters})) == ["aab", "", "|a  "]
    spec = output({"ctc": {**letters, "delimiter": "|"}}, "normalize_text")
    assert decode_texts(values, spec) == ["aab", "", "a"]
    best = values.argmax(axis=2)
    assert decode_texts(best, output({"ctc": {**letters, "append": ["c"]}}))[0] == "bb "


def test_letters_that_were_corrected_are_read_again(letters: dict[str, str]) -> None:
    values = logits([1, 0, 2])
    assert decode_texts(values, output({"ctc": letters})) == ["ab"]
    Path(letters["file"]).write_text("cc\nd\n \n|\n")
    assert decode_texts(values, output({"ctc": letters})) == ["ccd"]


def test_the_blank_may_have_a_line_of_its_own_or_be_the_last(letters: dict[str, str]) -> None:
    values = logits([0, 0, 4, 0, 1])
    assert decode_texts(values, output({"ctc": {**letters, "blank": 4}})) == ["aab"]
    more = {**letters, "append": ["c"]}
    assert decode_texts(values, output({"ctc": {**more, "blank": 4}})) == ["aab"]


def test_a_file_of_other_tokens_is_an_error(letters: dict[str, str]) -> None:
    spec = output({"ctc": letters})
    expected = r"step 1 of output 'y', ctc: letters.txt has 4 tokens, and the model 9 classes"
    with pytest.raises(OutputError, match=expected):
        decode_texts(logits([1, 2], classes=9), spec)
    with pytest.raises(OutputError, match="blank 7 isn't among the 5 classes"):
        decode_texts(logits([1, 2]), output({"ctc": {**letters, "blank": 7}}))
    with pytest.raises(OutputError, match="expected inputs x times x classes"):
        decode_texts(np.zeros((2, 3), np.float32), spec)
    with pytest.raises(OutputError, match="it has NaN or infinity"):
        decode_texts(logits([1, 2]) * np.nan, spec)


def test_ids_are_made_texts_by_a_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write_tokenizer(path)
    ids = np.array([[2, 4, 5, 3, 6, -1], [4, 9, 0, 0, 0, 0]])
    detokenize = {"file": str(path), "sha256": DIGEST}
    assert decode_texts(ids, output({"detokenize": detokenize})) == ["the cat sat", "the mat"]
    spec = output({"detokenize": {**detokenize, "stop": 3}})
    assert decode_texts(ids, spec) == ["the cat", "the mat"]
    best = output("argmax", {"detokenize": detokenize})
    assert decode_texts(np.eye(11)[[[4, 5]]], best) == ["the cat"]
    with pytest.raises(OutputError, match=r"token 11 isn't among the 11 of tokenizer.json"):
        decode_texts(np.array([[11]]), spec)
    with pytest.raises(OutputError, match="not ids of tokens; add 'argmax'"):
        decode_texts(np.zeros((1, 2, 3)), spec)
    blank = output({"ctc": {"blank": 0}}, {"detokenize": detokenize})
    assert decode_texts(np.array([[4, 4, 0, 5]]), blank) == ["the cat"]


def test_texts_and_labels_are_made_alike(letters: dict[str, str]) -> None:
    steps = {"case": "lower", "punctuation": "remove"}
    spec = output({"ctc": letters}, {"normalize_text": steps})
    assert (
        normalized_label("It\u2019s  HERE, isn't it? 'No'\n", spec) == "it\u2019s here isn't it no"
    )
    upper = output({"ctc": letters}, {"normalize_text": {"case": "upper", "form": "NFKC"}})
    assert normalized_label("ﬁne ①", upper) == "FINE 1"


@pytest.mark.parametrize(
    ("kind", "steps", "message"),
    [
        ("text", [], "nothing makes this output a text; end its steps with 'ctc' and a file"),
        ("text", [{"ctc": {"blank": 0}}], "nothing makes this output a text"),
        ("text", ["nms"], "an output of type text has no step 'nms'"),
        ("tokens", ["normalize_text"], "an output of type tokens has no step 'normalize_text'"),
        ("classification", [{"ctc": {}}], "has no step 'ctc'; write 'type: text'"),
    ],
)
def test_steps_must_make_the_type_of_the_output(kind: str, steps: list[Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        output(*steps, kind=kind)


def test_texts_are_normalized_behind_what_makes_them(letters: dict[str, str]) -> None:
    with pytest.raises(OutputError, match="it has no texts yet; move it behind 'ctc'"):
        decode_texts(logits([1, 2]), output("normalize_text", {"ctc": letters}))


def test_tokens_are_ids_up_to_the_padding() -> None:
    rows = decode_tokens(np.array([[4, 5, -1], [4, 5, 6]]), tokens())
    assert [row.tolist() for row in rows] == [[4, 5], [4, 5, 6]]
    padded = decode_tokens(np.array([[-1, 4, -1, 5, -1], [-1] * 5]), tokens())
    assert [row.tolist() for row in padded] == [[-1, 4, -1, 5], []]
    assert decode_tokens(logits([1, 2]), tokens("argmax"))[0].tolist() == [1, 2]
    for axis in (0, 3, -3):
        with pytest.raises(OutputError, match="write an axis of it behind the first"):
            decode_tokens(logits([1]), tokens({"argmax": {"axis": axis}}))
    with pytest.raises(OutputError, match="not ids of tokens; add a step 'argmax'"):
        decode_tokens(np.zeros((1, 2)), tokens())


def test_values_above_a_threshold_are_ones() -> None:
    spec = tokens("sigmoid", {"threshold": {"above": 0.7}})
    assert decode_tokens(np.array([[0.0, 1.0, 0.8]]), spec)[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"file": "a.txt"}, "needs its digest"),
        ({"append": ["x"]}, "append and delimiter belong to a file"),
        ({"blank": -1}, "greater than or equal to 0"),
    ],
)
def test_a_step_of_ctc_is_checked(steps: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        output({"ctc": steps})
