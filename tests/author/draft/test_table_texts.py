"""Tables of texts and their classes, for models of tokens."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.measure.pipeline import open_dataset
from tests.author.draft.test_drafting import request

WORDS = ["[UNK]", "[PAD]", "good", "bad", "film", "the", "was"]
TEXTS = ["the film was good", "bad bad, film", "good"] * 5
LABELS = ["yes", "no", "yes"] * 5


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a tokenizer of a few words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    return tmp_path


def save(length: int | str, second: str = "attention_mask") -> None:
    """Write model.onnx, which counts good and bad tokens."""
    table = np.zeros((len(WORDS), 2), np.float32)
    table[2], table[3] = [-3, 3], [3, -3]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", [second], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "last"], ["mask"]),
        helper.make_node("Mul", ["rows", "mask"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "first"], ["logits"], keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["N", length])
        for name in ("input_ids", second)
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])
    weights = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([2]), "last"),
        numpy_helper.from_array(np.array([1]), "first"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [logits], weights)
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "model.onnx")


def write(*rows: Sequence[object]) -> None:
    with Path("data.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def drafted() -> Draft:
    data = recognise_data(Path("data.csv"))
    return draft_manifest(replace(request("model.onnx", said=[]), data=data, replaces=True))


@pytest.mark.parametrize(("length", "tokens"), [(6, 6), ("T", 4)])
def test_texts_become_tokens_by_the_tokenizer_beside_the_model(
    length: int | str, tokens: int
) -> None:
    save(length)
    write(("text", "label"), *zip(TEXTS, LABELS, strict=True))
    draft = drafted()
    assert draft.task == "text-classification"
    Path("m.yaml").write_text(draft.text())
    manifest = load(Path("m.yaml"), find_predictors([])).manifest
    dataset = open_dataset(Path("m-data.npz"), manifest.inputs, Place(Path("m.yaml"), 1))
    assert dataset.labels is not None
    assert list(dataset.labels) == [1, 0, 1] * 5
    batch = dataset.batch([0, 1])
    assert batch["input_ids"].tolist()[0] == [5, 4, 6, 2] + [0] * (tokens - 4)
    assert batch["attention_mask"].tolist()[0] == [1] * 4 + [0] * (tokens - 4)
    assert manifest.inputs[0].range == (0, len(WORDS) - 1)


def test_classes_have_the_names_of_the_configuration_in_any_case() -> None:
    save(6)
    Path("config.json").write_text(json.dumps({"id2label": {"0": "YES", "1": "NO"}}))
    write(("label", "review"), *zip(LABELS, TEXTS, strict=True))
    draft = drafted()
    with np.load("m-data.npz") as file:
        assert file["label"].tolist() == [0, 1, 0] * 5
        assert file["review"].tolist() == TEXTS
    assert draft.dataset is not None
    assert "YES, NO are 0, 1 …, as" in draft.dataset.comment


def test_texts_without_a_tokenizer_are_refused_with_what_to_save() -> None:
    save(6)
    Path("tokenizer.json").unlink()
    write(("text", "label"), *zip(TEXTS, LABELS, strict=True))
    with pytest.raises(MlmsError, match=r"there is no .*tokenizer.json, .*; save the model's own"):
        drafted()
    Path("tokenizer.json").write_text("{}")
    with pytest.raises(MlmsError, match=r"tokenizer.json: tokenizer.json is no tokenizer"):
        drafted()


def test_places_of_tokens_are_refused() -> None:
    save(6, second="position_ids")
    write(("text", "label"), *zip(TEXTS, LABELS, strict=True))
    with pytest.raises(MlmsError, match="'position_ids' takes the places of tokens, which no step"):
        drafted()
