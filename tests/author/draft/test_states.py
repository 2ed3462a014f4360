"""States, which are known by their names, and by the shape that they keep."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.states import states_of
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest import load
from tests.author.draft.test_drafting import request
from tests.support.onnx_models import ModelBuilder


def found(inputs: str, outputs: str, dtype: str = "float32") -> dict[str, str]:
    """Return the states of a model that takes ``x`` as well, by names with spaces between."""
    takes = [Tensor(name, "float32", (1, 4)) for name in ["x", *inputs.split()]]
    gives = [Tensor(name, dtype, (1, 4)) for name in outputs.split()]
    return states_of(takes, gives)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("h", "hn"),
        ("c0", "cn"),
        ("h_in", "h_out"),
        ("state", "stateN"),
        ("state", "state_out"),
        ("in_cache", "out_cache"),
        ("cache_in", "cache_out"),
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.11.decoder.value", "present.11.decoder.value"),
        ("past_0", "present_0"),
        ("past", "present"),
        ("cached_len_0", "new_cached_len_0"),
        ("prev_state", "state"),
        ("prev_frame", "next_frame"),
        ("r1i", "r1o"),
        ("hiddenState", "hiddenStateOut"),
        ("hiddenstate_in", "hiddenstate_out"),
        ("memories_in", "memories_out"),
        ("prev_hidden_states", "new_hidden_states"),
    ],
)
def test_names_of_a_state_differ_in_the_side_of_the_call(before: str, after: str) -> None:
    assert found(before, f"y {after}") == {before: after}
    assert found(before, f"y {after}", dtype="float16") == {}, "of another type"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("image", "image_out"),
        ("audio_in", "audio_out"),
        ("input", "output"),
        ("x1", "x2"),
        ("state", "state"),
        ("past_key_values.0.key", "present.1.key"),
        ("past_key_values.0.key", "present.0.value"),
        ("mask", "masked"),
        ("h", "c"),
        ("membrane_in", "membrane_out"),
        ("member_in", "member_out"),
        ("statement_in", "statement_out"),
        ("encoder_hidden_states", "encoder_hidden_states_out"),
        ("cell_image", "cell_image_out"),
        ("context_mask", "context_mask_out"),
        ("old_price", "new_price"),
        ("init_image", "updated_image"),
        ("last_frame", "next_frame"),
        ("initial_guess", "new_guess"),
    ],
)
def test_what_a_model_only_changes_is_no_state(before: str, after: str) -> None:
    assert found(before, f"y {after}") == {}


def test_a_single_number_before_and_after_is_a_state_by_its_name_only() -> None:
    for name, size, is_state in (
        ("price", 1, False),
        ("price", 4, True),
        ("state", 1, True),
    ):
        takes = [Tensor(each, "float32", (None, size)) for each in ("x", f"prev_{name}")]
        gives = [Tensor(each, "float32", (None, size)) for each in ("y", f"next_{name}")]
        assert bool(states_of(takes, gives)) is is_state


def test_a_state_has_the_shape_of_its_output() -> None:
    takes = [Tensor(name, "float32", (None, 4)) for name in ("x", "state_in")]
    for shape, is_state in (((None, 4), True), ((), True), ((None, 5), False), ((4,), False)):
        gives = [Tensor("y", "float32", (1,)), Tensor("state_out", "float32", shape)]
        assert bool(states_of(takes, gives)) is is_state


def test_inputs_are_no_states_where_all_would_be_or_an_output_is_not_the_only_one() -> None:
    tensors = [Tensor("state_in", "float32", (1,))], [Tensor("state_out", "float32", (1,))]
    assert states_of(*tensors) == {}
    assert found("state", "state_out new_state") == {}
    assert found("audio_in state_in", "audio_out state_out") == {"state_in": "state_out"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    return tmp_path


def save_model(folder: Path, *, is_growing: bool = False) -> None:
    """Write a model with a state, whose output is as long, or longer by what is added."""
    model = ModelBuilder()
    model.add_input("x", "batch", 4)
    model.add_input("in_cache", "batch", "past")
    model.add("Concat", "x in_cache" if is_growing else "in_cache", "out_cache", axis=1)
    model.add("Softmax", "x", "probs", axis=1)
    model.add_output("probs", "batch", 4)
    model.add_output("out_cache", "batch", "after")
    shutil.move(model.save(folder), folder / "m.onnx")


def draft(folder: Path, data: str = "") -> Any:
    """Draft a manifest, which is read again."""
    asked = request("m.onnx", said=[])
    if data:
        asked = replace(asked, data=recognise_data(Path(data)))
    (folder / "m.yaml").write_text(draft_manifest(asked).text())
    return load(folder / "m.yaml").manifest


def test_a_state_is_drafted_as_the_output_of_the_call_before(folder: Path) -> None:
    save_model(folder)
    manifest = draft(folder)
    _, state = manifest.inputs
    assert (state.from_output, state.shape) == ("out_cache", ("batch", 16000))
    comment = "a guess: a state, by its name and shape, which is 'out_cache' of the call before"
    assert comment in (folder / "m.yaml").read_text()
    assert [output.name for output in manifest.outputs] == ["probs", "out_cache"]
    assert manifest.outputs[0].type == "classification"
    assert manifest.outputs[1].type == "tensor", "which upgrades compare"


def test_a_past_that_grows_is_none(folder: Path) -> None:
    save_model(folder, is_growing=True)
    assert draft(folder).inputs[1].from_output is None


def test_data_need_not_have_a_state_and_may(folder: Path) -> None:
    save_model(folder)
    arrays: dict[str, Any] = {"x": np.eye(4, dtype=np.float32), "label": np.arange(4)}
    np.savez("data.npz", **arrays)
    assert draft(folder, "data.npz").inputs[1].from_output == "out_cache"
    np.savez("data.npz", **arrays, in_cache=np.zeros((4, 6), np.float32))
    (folder / "m.yaml").unlink()
    assert draft(folder, "data.npz").inputs[1].from_output is None
    np.savez("data.npz", x=arrays["x"], target=arrays["label"])
    with pytest.raises(MlmsError, match="has no array 'label', and 'target' is no input"):
        draft(folder, "data.npz")
