"""Models that take texts as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest import load
from tests.author.draft.test_drafting import request

ML = "ai.onnx.ml"
COLOURS = np.array(["red", "green", "blue", "ä"])
LABELS = np.arange(40) % 4


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model that gives each colour a column."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    encoder = helper.make_node(
        "OneHotEncoder", ["colour"], ["prob"], domain=ML, cats_strings=COLOURS.tolist()
    )
    colour = helper.make_tensor_value_info("colour", TensorProto.STRING, ["N"])
    prob = helper.make_tensor_value_info("prob", TensorProto.FLOAT, ["N", 4])
    graph = helper.make_graph([encoder], "g", [colour], [prob])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 2)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "m.onnx")
    return tmp_path


def draft(**arrays: Any) -> Any:
    """Draft a manifest for arrays, which is read again."""
    np.savez("data.npz", **arrays)
    asked = replace(request("m.onnx", said=[]), data=recognise_data(Path("data.npz")))
    Path("m.yaml").write_text(draft_manifest(asked).text())
    return load(Path("m.yaml")).manifest


def test_texts_of_the_data_are_an_input_of_strings() -> None:
    manifest = draft(colour=COLOURS[LABELS], label=LABELS)
    assert (manifest.inputs[0].type, manifest.inputs[0].element_type) == ("tensor", "string")
    assert manifest.outputs[0].type == "classification"


def test_texts_that_are_not_there_are_asked_for() -> None:
    with pytest.raises(MlmsError, match="input 'colour' takes texts, and there are no random ones"):
        draft_manifest(request("m.onnx", said=[]))
    with pytest.raises(MlmsError, match="takes texts, and its array is int64; save it as texts"):
        draft(colour=LABELS, label=LABELS)


SAID: list[str] = []


def save_table_model(colours: list[str], takes: list[str]) -> None:
    """Write a model that gives each colour a number, plus that of a column ``size`` if it has it.

    A size without value counts as 0.
    """
    nodes = [
        helper.make_node("OneHotEncoder", ["colour"], ["o"], "e", domain=ML, cats_strings=colours),
        helper.make_node("Squeeze", ["o", "one"], ["scores"]),
        helper.make_node("IsNaN", ["size"], ["none"]),
        helper.make_node("Where", ["none", "zero", "size"], ["known"]),
        helper.make_node("Add", ["scores", "known"], ["prob"]),
    ]
    if "size" not in takes:
        nodes = [*nodes[:1], helper.make_node("Squeeze", ["o", "one"], ["prob"])]
    kinds = {"colour": TensorProto.STRING, "size": TensorProto.FLOAT}
    values = [helper.make_tensor_value_info(name, kinds[name], ["N", 1]) for name in takes]
    prob = helper.make_tensor_value_info("prob", TensorProto.FLOAT, ["N", len(colours)])
    weights = [
        numpy_helper.from_array(np.array([1]), "one"),
        numpy_helper.from_array(np.zeros(1, np.float32), "zero"),
    ]
    graph = helper.make_graph(nodes, "g", values, [prob], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 2)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "m.onnx")


def draft_table(text: str) -> dict[str, Any]:
    """Draft a manifest for a table, and return the arrays that are packed."""
    SAID.clear()
    Path("data.csv").write_text(text)
    data = recognise_data(Path("data.csv"))
    draft_manifest(replace(request("m.onnx", said=SAID), data=data, replaces=True))
    with np.load("m-data.npz") as file:
        return dict(file)


def test_a_column_of_a_table_is_an_input_of_strings() -> None:
    save_table_model(["red", "größe", "NA"], ["colour", "size"])
    arrays = draft_table("size,label,colour\n1,0,red\n2,1,größe\n3,2,NA\n4,0,red\n")
    assert (arrays["colour"].shape, arrays["colour"].dtype.kind) == ((4, 1), "U")
    assert arrays["colour"][:, 0].tolist() == ["red", "größe", "NA", "red"]
    assert arrays["size"].tolist() == [[1], [2], [3], [4]]


def test_texts_that_a_model_has_no_category_for_are_said() -> None:
    save_table_model(["red", "blue"], ["colour", "size"])
    draft_table("size,label,colour\n1,0,red\n2,1,blue\n3,1,Blue\n")
    problem = "1 of 3 texts are no categories of the model, such as 'Blue'"
    assert f"data.csv: column 'colour': {problem}" in SAID
    draft_table("size,label,colour\n1,0,red\n2,1,blue\n")
    assert not any("categories" in line for line in SAID)


def test_blanks_behind_commas_stay_where_a_model_was_trained_on_them() -> None:
    table = "size,label,colour\n1,0, red\n2,1, blue\n3,1, ?\n"
    save_table_model([" red", " blue", " ?"], ["colour", "size"])
    assert draft_table(table)["colour"][:, 0].tolist() == [" red", " blue", " ?"]
    assert "data.csv: column 'colour': with a blank first, as the model's file" in SAID
    save_table_model(["red", "blue", "?"], ["colour", "size"])
    assert draft_table(table)["colour"][:, 0].tolist() == ["red", "blue", "?"]
    assert not any("blank first" in line for line in SAID)


def test_missing_values_stay_beside_texts_where_the_model_has_answers_for_them() -> None:
    save_table_model(["red", "blue"], ["colour", "size"])
    assert len(draft_table("size,label,colour\n1,0,red\n,1,blue\n3,1,red\n")["label"]) == 3
    assert len(draft_table("size,label,colour\n1,0,red\n2,1,\n,1,blue\n")["label"]) == 1


def test_the_last_column_is_the_target_of_a_model_of_texts_that_are_numbers() -> None:
    save_table_model(["1", "2"], ["colour"])
    arrays = draft_table("kind,sort\n1,0\n2,1\n1,0\n")
    assert arrays["colour"].tolist() == [["1"], ["2"], ["1"]]
    assert arrays["label"].tolist() == [0, 1, 0]


def test_bytes_are_no_texts() -> None:
    with pytest.raises(
        MlmsError, match=r"its array is \|S1; save .* colour=numpy.char.decode\(col"
    ):
        draft(colour=np.array([b"a", b"b"]), label=np.arange(2))
