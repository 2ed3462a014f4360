"""Tables that become the data of a model, or are refused with what to write."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.cli.main import main
from pytest_mlms.core.errors import MlmsError
from tests.author.draft.test_drafting import request
from tests.support.project import DIGITS

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
ROWS = 30
LABELS = np.arange(ROWS) % 3
FEATURES = np.eye(3)[LABELS] * 4 + np.random.default_rng(0).random((ROWS, 3)).round(2)
HEADER = "a,b,c"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    return tmp_path


def save(nodes: Sequence[onnx.NodeProto], takes: dict[str, list[int]], gives: int) -> None:
    """Write model.onnx, whose output ``y`` has so many numbers an input."""
    inputs = [helper.make_tensor_value_info(n, FLOAT, ["N", *sizes]) for n, sizes in takes.items()]
    outputs = [helper.make_tensor_value_info("y", FLOAT, ["N", gives])]
    weights = [
        numpy_helper.from_array(np.array([[1], [2], [3]], np.float32), "sum"),
        numpy_helper.from_array(np.array([[1, 0], [0, 1], [1, 1]], np.float32), "pairs"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "model.onnx")


def save_classifier() -> None:
    """Write a model whose class is the column with the largest number."""
    save([helper.make_node("Softmax", ["x"], ["y"])], {"x": [3]}, 3)


def save_regression() -> None:
    """Write a model that gives a + 2 b + 3 c."""
    save([helper.make_node("MatMul", ["x", "sum"], ["y"])], {"x": [3]}, 1)


def write(
    target: Iterable[object], header: str = f"{HEADER},target", *, first: bool = False
) -> None:
    """Write data.csv, whose target is the last column, or the first one."""
    lines = [header] if header else []
    for row, label in zip(FEATURES, target, strict=True):
        cells = [f"{value:g}" for value in row]
        cells.insert(0 if first else len(cells), str(label))
        lines.append(",".join(cells))
    Path("data.csv").write_text("\n".join([*lines, ""]))


SAID: list[str] = []


def drafted(
    target: Sequence[str] = (),
    without: Sequence[str] = (),
    most: int = 1000,
    labels: Path | None = None,
) -> Draft:
    """Return the draft for the model and the table."""
    SAID.clear()
    asked = replace(
        request("model.onnx", said=SAID),
        data=recognise_data(Path("data.csv")),
        target_columns=target,
        without_columns=without,
        most_inputs=most,
        labels=labels,
        replaces=True,
    )
    return draft_manifest(asked)


def packed() -> dict[str, np.ndarray]:
    with np.load("m-data.npz") as file:
        return dict(file)


def refusal(target: Sequence[str] = (), without: Sequence[str] = ()) -> str:
    with pytest.raises(MlmsError) as found:
        drafted(target, without)
    return str(found.value)


SUM = FEATURES @ [1, 2, 3]
NAMES = np.array(["cat", "dog", "eel"])[LABELS]


@pytest.mark.parametrize(
    ("target", "header", "first", "reason"),
    [
        (LABELS, "a,b,c,target", False, "column 'target', by its name"),
        (LABELS, "Label,a,b,c", True, "column 'Label', by its name"),
        (LABELS, "a,b,c,kind", False, "column 'kind', the last one"),
        (LABELS, "", False, "column 4, the last one"),
        (LABELS, "", True, "column 1, the first one: the model's outputs fit it, and not the last"),
        (LABELS, "kind,a,b,c", True, "column 'kind', the first one: the model's outputs fit it"),
        (NAMES, "animal,a,b,c", True, "column 'animal', the only one of texts; cat, dog, eel are"),
        (LABELS + 1, "a,b,c,y", False, "by its name; 1, 2, 3 are the columns 0, 1 …"),
        (LABELS == 1, "a,b,c,y", False, "by its name; False is 0, True is 1"),
    ],
)
def test_the_target_of_a_classification_is_found_and_why_is_said(
    target: Sequence[object], header: str, first: bool, reason: str
) -> None:
    save_classifier()
    write(target, header, first=first)
    draft = drafted()
    assert draft.task == "classification"
    assert draft.dataset is not None
    assert draft.dataset.name == "data"
    assert reason in draft.dataset.comment
    assert any(reason in line for line in SAID)
    arrays = packed()
    assert np.array_equal(arrays["x"], FEATURES.astype(np.float32))
    is_truth = np.asarray(target).dtype == bool
    assert np.array_equal(arrays["label"], LABELS == 1 if is_truth else LABELS)
    assert arrays["label"].dtype == np.int64


@pytest.mark.parametrize(
    ("header", "first"), [("a,b,c,price", False), ("", False), ("", True), ("y,a,b,c", True)]
)
def test_numbers_are_a_regression(header: str, first: bool) -> None:
    save_regression()
    write([f"{value:.3f}" for value in SUM], header, first=first)
    assert drafted().task == "regression"
    assert packed()["label"] == pytest.approx(SUM, abs=1e-3)


def test_a_place_and_a_column_with_a_mistyped_number_are_no_targets() -> None:
    save_regression()
    write(SUM, "x,y,z,price")
    drafted()
    assert np.array_equal(packed()["label"], SUM)
    text = Path("data.csv").read_text().splitlines()
    text[3] = f"1.2x,{text[3].partition(',')[2]}"
    Path("data.csv").write_text("\n".join(text))
    assert "data.csv:4: column 'x': '1.2x' is no number" in refusal()


@pytest.mark.parametrize("names", [[1, 2, 3], ["ant", "bee", "cat"]])
def test_classes_that_a_sample_lacks_keep_their_numbers(names: list[object]) -> None:
    save_classifier()
    places = np.where(np.arange(ROWS) == 4, 0, 1 + LABELS % 2)
    write([names[place] for place in places])
    drafted(most=5)
    assert packed()["label"].min() > 0
    expected = {tuple(row): place for row, place in zip(FEATURES, places, strict=True)}
    for row, label in zip(packed()["x"], packed()["label"], strict=True):
        known = min(expected, key=lambda each: float(abs(np.array(each) - row).sum()))
        assert expected[known] == label


def test_a_class_that_is_called_as_a_missing_value_is_one_where_the_model_has_it() -> None:
    save_classifier()
    model = onnx.load("model.onnx")
    names = TensorProto(name="classes", data_type=TensorProto.STRING, dims=[3])
    names.string_data.extend([b"None", b"bug", b"dent"])
    model.graph.initializer.append(names)
    onnx.save(model, "model.onnx")
    write(np.array(["None", "bug", "dent"])[LABELS])
    drafted()
    assert np.array_equal(packed()["label"], LABELS)


@pytest.mark.parametrize("names", [["low", "mid", "top"], ["red cat", "5", "x"], [0, 1, 2]])
def test_another_order_of_classes_is_told_by_the_scores(names: list[object]) -> None:
    save_classifier()
    swapped = [sorted(names, key=str)[(1, 0, 2)[place]] for place in LABELS]
    write(swapped)
    said = refusal()
    first, second, third = (sorted(names, key=str)[place] for place in (1, 0, 2))
    assert "33.33 % of the rows are right, and 100.00 % in the order" in said
    assert f"in the order {first}, {second}, {third}; see whether" in said
    line = said.partition("name it: ")[2].partition(", and --labels")[0]
    subprocess.run(line, shell=True, check=True)
    drafted(labels=Path("labels.txt"))
    assert np.array_equal(packed()["label"], LABELS)


@pytest.mark.parametrize("first", [0, 1])
def test_texts_of_classes_get_the_numbers_that_a_model_without_scores_gives(first: int) -> None:
    save_classifier()
    model = onnx.load("model.onnx")
    nodes = [
        helper.make_node("ArgMax", ["x"], ["place"], axis=1, keepdims=0),
        helper.make_node("Gather", ["classes", "place"], ["label"]),
    ]
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info("label", LONG, ["N"]))
    numbers = numpy_helper.from_array(np.arange(first, first + 3), "classes")
    model.graph.initializer.append(numbers)
    onnx.save(model, "model.onnx")
    write(NAMES)
    drafted()
    assert np.array_equal(packed()["label"], first + LABELS)
    write(NAMES[[1, 0, 2] * (ROWS // 3)])
    if first == 0:
        assert "100.00 % in the order dog, cat, eel; see whether" in refusal()


@pytest.mark.parametrize("sign", ["${:g}", "{:g}%", "{:g} kg", "{:g},0"])
def test_numbers_with_signs_and_units_are_no_classes(sign: str) -> None:
    save_regression()
    write([f'"{sign.format(value)}"' for value in SUM], "a,b,c,price")
    said = refusal()
    assert said.startswith(f"data.csv:2: column 'price', the target, is '{sign.format(SUM[0])}'")
    assert "write numbers without signs and units" in said


def test_numbers_that_are_too_large_for_classes_are_none(
    recwarn: pytest.WarningsRecorder,
) -> None:
    save_classifier()
    write(LABELS * 1e20)
    assert "1 number as the label of an input, and the model gives 'y' 3 numbers" in refusal()
    assert not recwarn.list


def test_dates_beside_the_features_are_left_out_and_keys_are_advised() -> None:
    save_classifier()
    write(LABELS, "a,b,c,kind")
    lines = Path("data.csv").read_text().splitlines()
    for name, cell in (("when", "2024-01-{:02}"), ("customer", "7{}3"), ("who", "Ann {}")):
        cells = [name, *(cell.format(row) for row in range(ROWS))]
        rows = [f"{first},{line}" for first, line in zip(cells, lines, strict=True)]
        Path("data.csv").write_text("\n".join(rows))
        if name == "when":
            drafted()
            assert np.array_equal(packed()["label"], LABELS)
            assert "data.csv: neither features nor target, left out: when" in SAID
        else:
            assert f"--target kind --without {name} (" in refusal()


def test_maps_of_scores_beside_texts_of_classes_ask_for_an_export_as_arrays() -> None:
    x = helper.make_tensor_value_info("x", FLOAT, ["N", 3])
    names = [b"cat", b"dog", b"eel"]
    linear = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        classlabels_strings=names,
        coefficients=np.eye(3).ravel().tolist(),
        intercepts=[0.0, 0.0, 0.0],
    )
    zipmap = helper.make_node(
        "ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_strings=names
    )
    label = helper.make_tensor_value_info("label", TensorProto.STRING, ["N"])
    score = helper.make_tensor_type_proto(FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, score))
    maps = helper.make_value_info("maps", kind)
    graph = helper.make_graph([linear, zipmap], "g", [x], [label, maps])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "model.onnx")
    write(NAMES)
    said = refusal()
    assert "no output of the model has a score for each class: 'maps' is a map for each" in said
    assert "export it as an array, with skl2onnx: to_onnx(model, X, options={'zipmap': Fa" in said


def test_a_model_of_several_numbers_has_several_targets() -> None:
    save([helper.make_node("MatMul", ["x", "pairs"], ["y"])], {"x": [3]}, 2)
    write([f"{a + c:g},{b + c:g}" for a, b, c in FEATURES], "a,b,c,p,q")
    draft = drafted()
    assert draft.dataset is not None
    assert draft.task == "regression"
    assert packed()["label"].shape == (ROWS, 2)
    assert "column 'p', column 'q', the last 2, behind the 3" in draft.dataset.comment
    assert np.array_equal(packed()["x"], FEATURES.astype(np.float32))


@pytest.mark.parametrize("name", ["", "id", "patient_id", "PassengerId", "Unnamed: 0", "index"])
def test_what_numbers_the_rows_is_left_out(name: str) -> None:
    save_classifier()
    write(LABELS, f"{name},a,b,c,target")
    lines = Path("data.csv").read_text().splitlines()
    rows = [f"{number * 7},{line}" for number, line in enumerate(lines[1:])]
    Path("data.csv").write_text("\n".join([lines[0], *rows]))
    drafted()
    assert np.array_equal(packed()["x"], FEATURES.astype(np.float32))
    assert any(f"left out: {name or 'the one without a name'}" in line for line in SAID)


def test_columns_are_matched_with_inputs_of_their_names() -> None:
    nodes = [
        helper.make_node("Concat", ["petal width", "c", "a"], ["x"], axis=1),
        helper.make_node("MatMul", ["x", "sum"], ["y"]),
    ]
    save(nodes, {"petal width": [1], "c": [1], "a": [1]}, 1)
    write([f"{value:.3f}" for value in SUM], "C,Petal_Width,a,price")
    assert drafted().task == "regression"
    arrays = packed()
    for column, name in enumerate(("c", "petal width", "a")):
        assert np.array_equal(arrays[name][:, 0], FEATURES[:, column].astype(np.float32))
    write(LABELS, "a,b,c,price")
    assert "no column 'petal width', which is an input of the model; rename one of" in refusal()
    write(LABELS, "")
    assert "write them into its first line: petal width,c,a,target" in refusal()


def test_rows_without_values_are_told_by_their_line() -> None:
    save_classifier()
    write(["" if row == 3 else label for row, label in enumerate(LABELS)])
    text = Path("data.csv").read_text().splitlines()
    text[7] = "," + text[7].partition(",")[2]
    text[9] = "NA," + text[9].partition(",")[2]
    Path("data.csv").write_text("\n".join(text))
    drafted()
    assert len(packed()["label"]) == ROWS - 3
    assert "data.csv: line 5: left out: no target" in SAID
    assert "data.csv: lines 8, 10: left out: missing values, and the model takes no NaN" in SAID
    assert any("27 of 30 rows, packed into" in line for line in SAID)


def test_missing_values_stay_where_the_model_has_answers_for_them() -> None:
    nodes = [
        helper.make_node("IsNaN", ["x"], ["lacking"]),
        helper.make_node("Sub", ["x", "x"], ["nothing"]),
        helper.make_node("Mul", ["one", "zero"], ["filler"]),
        helper.make_node("Where", ["lacking", "filler", "x"], ["known"]),
        helper.make_node("Softmax", ["known"], ["y"]),
    ]
    constants = [
        helper.make_node("Constant", [], [name], value_float=value)
        for name, value in (("one", 1.0), ("zero", 0.0))
    ]
    save([*constants, nodes[0], *nodes[2:]], {"x": [3]}, 3)
    write(LABELS)
    text = Path("data.csv").read_text()
    Path("data.csv").write_text(text + ",5,0,1\n")
    drafted()
    assert np.isnan(packed()["x"]).sum() == 1
    assert f"data.csv: line {ROWS + 2}: missing values, kept as NaN, as the model has" in SAID[-4]


def test_a_large_table_is_sampled_in_its_order() -> None:
    save_classifier()
    write(LABELS)
    drafted(most=10)
    kept = packed()["x"]
    places = [FEATURES.astype(np.float32).tolist().index(row) for row in kept.tolist()]
    assert len(places) == 10
    assert places == sorted(places)
    assert any("10 of 30 rows, packed into" in line for line in SAID)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("label,b,c,target", "'label', 'target', of which each may be the target; say which it is"),
        ("a,b,c", "has 3 columns, and the model takes 3, so that none is left for the target; add"),
        ("a,b,c,d,e,target", "has 5 columns of features, and the model takes 3 in 'x'; leave out"),
        ("a,b,target", "has 2 columns of features, and the model takes 3 in 'x'; name the table"),
        ("a,b,c,d,e", "has 5 columns, and the model takes 3; say which is the target, and which"),
    ],
)
def test_columns_that_do_not_fit_are_refused(header: str, message: str) -> None:
    save_classifier()
    count = header.count(",") + 1
    rows = [",".join("123456"[:count]), ",".join("987654"[:count])]
    Path("data.csv").write_text("\n".join([header, *rows]))
    assert message in refusal()


def test_a_user_says_the_target_and_what_is_no_feature() -> None:
    save_classifier()
    write([f"{label},{label}" for label in LABELS], "a,b,c,target,label")
    advice = refusal()
    assert advice.endswith(
        "say which it is, and which are no features: --target target --without label"
    )
    drafted(["target"], ["label"])
    assert np.array_equal(packed()["label"], LABELS)
    assert "no column 'lable'; did you mean 'label'?" in refusal(["lable"])
    assert "--without x: data.csv has no such column, but a, b, c" in refusal((), ["x"])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "male",
            "data.csv:4: column 'a': 'male' is no number, and the model takes float32; encode",
        ),
        ("1e300", "data.csv:4: column 'a' is 1e300, which float32 does not hold; correct it"),
        ("1e999", "data.csv:4: column 'a': '1e999' is too large"),
    ],
)
def test_a_cell_that_a_model_does_not_take_is_refused_by_its_line(cell: str, message: str) -> None:
    save_classifier()
    write(LABELS)
    text = Path("data.csv").read_text().splitlines()
    text[3] = f"{cell}," + text[3].partition(",")[2]
    Path("data.csv").write_text("\n".join(text))
    assert message in refusal()


def test_dates_are_no_features() -> None:
    save_classifier()
    write(LABELS)
    text = Path("data.csv").read_text().splitlines()
    rows = [f"2024-01-{row:02},{line.partition(',')[2]}" for row, line in enumerate(text[1:], 1)]
    Path("data.csv").write_text("\n".join([text[0], *rows]))
    assert "data.csv:2: column 'a': '2024-01-01' is no number" in refusal()
    assert "a model takes no dates; leave the column out: --without a" in refusal()


def test_other_classes_than_the_models_ask_for_their_names() -> None:
    save_classifier()
    write(np.array(["cat", "dog"])[LABELS % 2])
    assert "has 2 classes (cat, dog), and the model 3; name the file" in refusal()


def test_a_refused_table_leaves_nothing_behind(folder: Path) -> None:
    save_classifier()
    write(LABELS + 5)
    Path("data.csv").write_text(Path("data.csv").read_text() + "1,2,3,9\n")
    assert main(["init", "model.onnx", "--data", "data.csv"]) == 2
    assert {path.name for path in folder.iterdir()} <= {
        "model.onnx",
        "data.csv",
        "twins",
        ".benchmarks",
    }


def test_a_table_of_pixels_is_pictures_whose_range_is_found_out() -> None:
    shutil.copy(DIGITS / "digits_cnn.onnx", "model.onnx")
    with np.load(DIGITS / "digits_test.npz") as digits:
        pixels, labels = digits["image"], digits["label"]
    header = ",".join([*(f"pixel_{number}" for number in range(64)), "target"])
    rows = [
        ",".join(map(str, [*row.ravel(), label])) for row, label in zip(pixels, labels, strict=True)
    ]
    Path("data.csv").write_text("\n".join([header, *rows]))
    draft = drafted()
    assert draft.inputs[0].type == "image"
    assert np.array_equal(packed()["image"], pixels)
