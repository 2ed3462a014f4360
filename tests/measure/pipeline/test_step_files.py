"""Inputs that are made of the tokens of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tokenizers import Tokenizer

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.measure.pipeline.inputs import preprocess
from pytest_mlms.measure.pipeline.step_files import vocabulary_size, with_local_files
from tests.support.language import write_tokenizer

HERE = Place(Path("m.yaml"), 30)
DIGEST = "0" * 64


def text(name: str, file: Path, **fields: Any) -> Input:
    give = fields.pop("give", "ids")
    length = fields.pop("length", 8)
    tokenize = {"file": str(file), "sha256": DIGEST, "length": length, "give": give}
    given = {"name": name, "type": "text", "element_type": "int64", "column": "text"}
    return Input.model_validate({**given, "steps": [{"tokenize": tokenize}], **fields})


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    write_tokenizer(path)
    return path


def three_inputs(tokenizer: Path, **fields: Any) -> list[Input]:
    """Return the inputs of a model like BERT, from one column."""
    return [
        text("input_ids", tokenizer, **fields),
        text("attention_mask", tokenizer, give="attention_mask", **fields),
        text("token_type_ids", tokenizer, give="type_ids", **fields),
    ]


def folder(tmp_path: Path, table: str) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    (path / "labels.csv").write_text(table)
    return path


def opened(path: Path, inputs: list[Input]) -> Dataset:
    return open_dataset(path, inputs, HERE, "texts.zip")


def test_one_column_of_texts_makes_three_inputs(tmp_path: Path, tokenizer: Path) -> None:
    path = folder(tmp_path, 'text,label\nthe cat sat,1\n"where, the cat ?",0\n')
    data = opened(path, three_inputs(tokenizer))
    batch = data.batch([0, 1])
    assert batch["input_ids"].tolist() == [[2, 4, 5, 6, 3, 0, 0, 0], [2, 7, 1, 4, 5, 8, 3, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 5 + [0] * 3, [1] * 7 + [0]]
    assert batch["token_type_ids"].sum() == 0
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int64)}


def test_two_columns_are_a_pair_of_texts(tmp_path: Path, tokenizer: Path) -> None:
    path = folder(tmp_path, "question,context,label\nwhere ?,the cat sat on the mat,1\n")
    inputs = three_inputs(tokenizer, column=["question", "context"], length=9)
    batch = opened(path, inputs).batch([0])
    assert batch["input_ids"].tolist() == [[2, 7, 8, 3, 4, 5, 6, 10, 3]]  # cut to 9
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1, 1]]
    path = tmp_path / "pairs.npz"
    np.savez(path, question=["where ?"], context=["the mat"], label=[1])
    assert opened(path, inputs).batch([0])["input_ids"].tolist() == [[2, 7, 8, 3, 4, 9, 3, 0, 0]]


def test_another_file_of_the_same_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat"], ["[PAD]", "[CLS]", "[SEP]", "cat"]
    spec = text("x", Path("tokenizer.json"), length=3)
    for folder, words in (("a", one), ("b", [*two, "[UNK]"]), ("b", [*one, "on"])):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        write_tokenizer(Path("tokenizer.json"), words)
        assert preprocess(["cat"], spec).tolist() == [
            list(map(words.index, ["[CLS]", "cat", "[SEP]"]))
        ]
        assert vocabulary_size("tokenizer.json") == len(words)


def test_a_longer_text_is_cut_and_keeps_its_end(tokenizer: Path) -> None:
    batch = preprocess(["the cat sat on the mat"], text("x", tokenizer, length=4))
    assert batch.tolist() == [[2, 4, 5, 3]]


def test_padding_is_as_the_file_says_it(tokenizer: Path) -> None:
    file = Tokenizer.from_file(str(tokenizer))
    file.enable_padding(direction="left", pad_id=9, pad_type_id=1, pad_token="mat")
    file.save(str(tokenizer))
    ids, mask, types = (preprocess(["the cat"], x)[0] for x in three_inputs(tokenizer, length=6))
    assert ids.tolist() == [9, 9, 2, 4, 5, 3]
    assert mask.tolist() == [0, 0, 1, 1, 1, 1]
    assert types.tolist() == [1, 1, 0, 0, 0, 0]


def test_texts_may_be_files(tmp_path: Path, tokenizer: Path) -> None:
    path = folder(tmp_path, "text,label\na.txt,1\nb.txt,0\n../c.txt,0\n")
    (path / "a.txt").write_text("the cat\n")
    (path / "b.txt").write_bytes(b"the cat\nsat \xff")
    with pytest.raises(DatasetError, match=r"labels.csv:4: ../c.txt leads outside"):
        opened(path, [text("x", tokenizer)])
    (path / "labels.csv").write_text("text,label\na.txt,1\nb.txt,0\n")
    data = opened(path, [text("x", tokenizer)])
    assert data.batch([0])["x"].tolist() == [[2, 4, 5, 3, 0, 0, 0, 0]]
    expected = r"^m.yaml:30: texts.zip: labels.csv:3: b.txt:2 is not UTF-8 \(byte 12\); save it"
    with pytest.raises(DatasetError, match=expected):
        data.batch([1])


def test_a_table_that_is_not_utf_8_is_an_error_with_its_line(
    tmp_path: Path, tokenizer: Path
) -> None:
    path = folder(tmp_path, "")
    (path / "labels.csv").write_bytes(b"text,label\nfine,1\nna\xefve,0\n")
    with pytest.raises(DatasetError, match=r"labels.csv:3 is not UTF-8 \(byte 20\)"):
        opened(path, [text("x", tokenizer)])


def test_a_missing_column_is_named(tmp_path: Path, tokenizer: Path) -> None:
    path = folder(tmp_path, "sentence,label\nfine,1\n")
    with pytest.raises(DatasetError, match="here sentence, label; write 'text,label'"):
        opened(path, three_inputs(tokenizer))


def test_tokens_outside_of_the_range_are_of_another_tokenizer(
    tmp_path: Path, tokenizer: Path
) -> None:
    path = folder(tmp_path, "text,label\nthe cat,1\nthe mat,1\n")
    data = opened(path, three_inputs(tokenizer, range=[0, 8]))
    data.batch([0])
    expected = (
        "labels.csv:3: step 1 of input 'input_ids', tokenize: token 9 is outside of .* 0 to 8"
    )
    with pytest.raises(DatasetError, match=expected):
        data.batch([0, 1])


def test_a_tokenizer_that_is_none_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n")
    with pytest.raises(DatasetError, match=r"vocab.txt is no tokenizer: .*; name a tokenizer.json"):
        preprocess(["the cat"], text("x", path))


def test_an_array_is_no_text(tokenizer: Path) -> None:
    with pytest.raises(DatasetError, match="the dataset has no text"):
        preprocess([np.zeros(3)], text("x", tokenizer))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": []}, "begin its steps with 'tokenize'"),
        ({"type": "tensor", "column": None}, "a tensor has no step 'tokenize'; write 'type: text'"),
        ({"column": ["a", "b", "c"]}, "at most 2 items"),
    ],
)
def test_an_input_of_text_is_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        text("x", Path("t.json"), **fields)


def test_steps_take_the_local_paths_of_their_files() -> None:
    spec = text("x", Path("t.json"))
    local = with_local_files(spec, {"t.json": Path("/cache/t.json")})
    assert local.steps[0].name == "tokenize"
    assert local.steps[0].parameters.file == "/cache/t.json"
    assert with_local_files(spec, {}) == spec
