"""A model for use answers as the items of its manifest do, by the same files, steps and agents."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pytest_mlms.api import (
    AgentError,
    ArtifactError,
    DatasetError,
    MlmsError,
    Model,
    OutputError,
    Unavailable,
    open_model,
)
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.predict.inputs import Given, dataset_of
from tests.support.agents import faulty_spec
from tests.support.fileserver import serving
from tests.support.project import DIGITS, Project, write_matrix
from tests.support.used_models import write_box_model, write_sum_model, write_text_model

DATA = np.load(DIGITS / "digits_test.npz")
KEEPING = """
import numpy as np, pytest

@pytest.fixture(autouse=True)
def keep(mlms_session, request):
    yield
    for kept in mlms_session.outputs._kept.values():
        np.save(request.config.rootpath / "kept.npy", kept.arrays["logits"])
"""


def test_it_answers_as_an_accuracy_item_does_bit_for_bit(project: Project) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [1]")
    project.set_thresholds("  agreement: {reference: onnxruntime, rtol: 1e-4}")
    project.pytester.makeconftest(KEEPING)
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    kept = np.load(project.path / "kept.npy")
    with open_model(project.manifest) as model:
        for number in range(25):
            found = model.predict(DATA["image"][number])
            assert found.outputs["logits"].tobytes() == kept[number].tobytes()
            best = found.labels[0]
            assert (best.index, best.label) == (kept[number].argmax(), str(kept[number].argmax()))
            assert best.is_probability


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "locks"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_text_a_file_and_bytes_are_the_same_input(folder: Path) -> None:
    (folder / "t.txt").write_text("the cat sat")
    with open_model(write_text_model(folder)) as model:
        answers = [
            model.predict(given).labels
            for given in ("the cat sat", folder / "t.txt", b"the cat sat", {"text": "the cat sat"})
        ]
        assert answers[0][0].label == "about a cat"
        assert answers.count(answers[0]) == 4
        assert model.predict("a cat in model.npz").labels[0].label == "about a cat"
        wrong: list[tuple[Given, str]] = [
            (3, "takes a text, and has int64"),
            ([["a"], ["b", "c"]], "it is no array: "),
        ]
        for value, problem in wrong:
            with pytest.raises(DatasetError, match=rf"made\.yaml:\d+: .*{problem}"):
                model.predict(value)


def test_boxes_of_an_array_are_in_its_pixels_and_masks_are_none(folder: Path) -> None:
    with open_model(str(write_box_model(folder))) as model:
        (plate,) = model.predict(np.zeros((100, 200, 3), np.uint8)).objects
        assert (plate.label, plate.score, plate.mask) == ("plate", 0.75, None)
        assert plate.box == (50, 50, 150, 100)
        assert model.predict(np.ones((8, 8, 3), np.uint8)).labels == ()


def test_a_model_without_a_task_gives_arrays_and_a_profile(folder: Path) -> None:
    with open_model(write_sum_model(folder)) as model:
        one, two = np.ones(3), np.full(3, 2, np.int32)
        found = model.predict({"a": one, "b": two})
        assert found.arrays["logits"].tolist() == found.outputs["logits"].tolist() == [3, 3, 3]
        assert model.latency({"a": one, "b": two}) > 0
        profile = model.profile({"a": one, "b": two})
        assert [layer.type for layer in profile.layers] == ["Add"]
        with pytest.raises(OutputError, match=r"made\.yaml:\d+: input 'a'"):
            model.predict({"a": np.ones(4), "b": two})
        wrong: list[tuple[Given, str]] = [
            ({"a": one}, "'b' is missing; give a value for each of a, b"),
            ({"a": one, "c": two}, "no input is called 'c'"),
            (one, "the model has 2 inputs; give a value for each of a, b"),
            ({"a": np.array([None] * 3), "b": two}, "takes numbers, and has object"),
            ({"a": one + 1j, "b": two}, "takes numbers, and has complex128"),
            ({"a": [[1.0], [2.0, 3.0]], "b": two}, "it is no array: "),
            ({"a": "made.yaml", "b": two}, "'made.yaml' is no numbers; give a file as a Path"),
        ]
        for inputs, problem in wrong:
            with pytest.raises(DatasetError, match=problem):
                model.predict(inputs)
        with pytest.raises(MlmsError, match="there is no level 'lair'; write some of application"):
            model.profile({"a": one, "b": two}, ["lair"])


def test_an_input_of_one_number_is_filled_where_it_is_not_given(folder: Path) -> None:
    manifest = write_sum_model(folder)
    content = json.loads(manifest.read_text())
    content["inputs"][1]["range"] = [2, 2]
    manifest.write_text(json.dumps(content))
    with open_model(manifest) as model:
        assert model.predict([1, 2, 3]).arrays["logits"].tolist() == [3, 4, 5]
        given = {"a": [1, 2, 3], "b": [0, 0, 0]}
        assert model.predict(given).arrays["logits"].tolist() == [1, 2, 3]


def test_a_model_for_other_hardware_is_not_opened(folder: Path) -> None:
    manifest = write_sum_model(folder)
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "hardware": {"cores": ">= 100000"}}))
    with pytest.raises(Unavailable, match=r"made\.yaml:\d+: "):
        open_model(manifest)


def test_the_models_own_tensors_go_in_and_out_without_steps(folder: Path) -> None:
    with open_model(write_sum_model(folder)) as model:
        numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
        found = model.infer({"a": numbers, "b": numbers})
        assert found["logits"].tolist() == (2 * numbers).tolist()
        assert [tensor.name for tensor in model.tensors[0]] == ["a", "b"]
        with pytest.raises(
            OutputError, match="input 'a' is float64 2 x 3; the model takes float32"
        ):
            model.infer({"a": numbers.astype(float), "b": numbers})


@pytest.mark.parametrize("fault", ["killed", "memory", "garbage"])
def test_the_call_after_one_that_an_agent_died_in_has_a_new_one(folder: Path, fault: str) -> None:
    spec = faulty_spec(folder, at="predict", fault=fault)
    with Model(spec, {"labels.txt": DIGITS / "labels.txt"}) as model:
        for _ in range(2):
            with pytest.raises(AgentError) as caught:
                model.predict(DATA["image"][0])
            assert "has ended" not in str(caught.value)


def test_agents_that_died_leave_nothing_open(folder: Path) -> None:
    with Model(faulty_spec(folder, at="predict", fault="exit"), {}) as model:
        opened = []
        for _ in range(6):
            with pytest.raises(AgentError):
                model.predict(DATA["image"][0])
            opened.append((psutil.Process().num_fds(), len(vars(model._agent)["_exit_callbacks"])))
        assert len(set(opened[1:])) == 1, opened


def test_a_log_stays_that_an_error_names_and_a_closed_model_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    model = Model(
        faulty_spec(folder, at="predict", fault="exit"), {"labels.txt": DIGITS / "labels.txt"}
    )
    with pytest.raises(AgentError) as caught:
        model.predict(DATA["image"][0])
    model.close()
    (log,) = re.findall(r"/\S+\.log", str(caught.value))
    assert Path(log).is_file()
    with pytest.raises(MlmsError, match=r"digits\.yaml: the model is closed; open it again"):
        model.predict(DATA["image"][0])


def test_the_settings_of_the_project_are_those_of_its_items(folder: Path) -> None:
    predictors = Path(__file__).parent.parent / "support" / "predictors"
    (folder / "pytest.ini").write_text(f"[pytest]\nmlms_predictors = {predictors}\n")
    with open_model(write_matrix(folder)) as model:
        assert model.predict(np.ones(3, np.float32)).arrays["y"].shape == (5,)
    stack = "{framework: matrix, interpreter: current}"
    (folder / "stacks.yaml").write_text(f"a: {stack}\nb: {stack}\n")
    with pytest.raises(MlmsError, match="all means 2 stacks; name one"):
        open_model(folder / "m.yaml", stack="all")
    with serving() as server:
        server.files["/w.npy"] = (folder / "w.npy").read_bytes()
        content = (folder / "m.yaml").read_text()
        (folder / "m.yaml").write_text(content.replace("w.npy", server.url("/w.npy")))
        limit = "mlms_download_size = 10 B\n"
        (folder / "pytest.ini").write_text(f"[pytest]\nmlms_predictors = {predictors}\n{limit}")
        with pytest.raises(ArtifactError, match="the server sends more than 10.0 B"):
            open_model(folder / "m.yaml", stack="a", cache=str(folder / "cache"))
        (folder / "pytest.ini").write_text("[pytest]\nmlms_download_size = much\n")
        with pytest.raises(MlmsError, match="^mlms_download_size of pytest: 'much'"):
            open_model(folder / "m.yaml", stack="a", predictors=[str(predictors)])


PICTURE = {"name": "x", "type": "image", "element_type": "float32", "layout": "NHWC"}
SPECS = [
    Input.model_validate(spec)
    for spec in (
        {"name": "x", "type": "tensor", "element_type": "float32"},
        {"name": "x", "type": "tensor", "element_type": "int8", "shape": ["batch", 2]},
        {"name": "x", "type": "tensor", "element_type": "string"},
        PICTURE,
        {**PICTURE, "steps": [{"decode": {"color": "RGB"}}, {"resize": {"size": [2, 2]}}]},
    )
]
ARRAYS = arrays(
    st.sampled_from(["u1", "i8", "f2", "?", "U2", "S2", "M8[s]", "c8", "O"]),
    array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
)
VALUES = st.one_of(
    st.binary(), st.text(), st.floats(), st.lists(st.lists(st.floats())), st.none(), ARRAYS
)


@given(st.sampled_from(SPECS), VALUES)
def test_any_input_is_a_dataset_or_an_error_of_its_line(spec: Input, value: object) -> None:
    try:
        dataset = dataset_of(value, [spec], Place(Path("m.yaml"), 7))  # type: ignore[arg-type]
        dataset.batch([0])
    except DatasetError as error:
        assert str(error).startswith("m.yaml:7: ")
