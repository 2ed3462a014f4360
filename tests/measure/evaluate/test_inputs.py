"""Inputs of a dataset, and random ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest import load
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.evaluate.inputs import Inputs, draw_array, input_shape, random_batch
from tests.support.small_manifest import small, write


def predictor(*shape: int | None) -> Any:
    return SimpleNamespace(inputs=(Tensor("x", "float32", shape),))


def case_of(folder: Path, **fields: Any) -> Any:
    """Return a case of the small manifest, with a batch of 5."""
    spec = {"name": "x", "type": "tensor", "element_type": "float32", **fields}
    loaded = load(write(folder, small(inputs=[spec])))
    return SimpleNamespace(loaded=loaded, batch_size=5, inputs=loaded.manifest.inputs)


def test_a_random_batch_has_the_shape_and_type_of_the_models_input(tmp_path: Path) -> None:
    batch = random_batch(predictor(None, 3), case_of(tmp_path))
    assert batch["x"].shape == (5, 3)
    assert batch["x"].dtype == np.float32


def test_a_free_axis_is_an_error_with_the_inputs_line(tmp_path: Path) -> None:
    message = r"m\.yaml:\d+: input 'x' has free axes, \(None, None\); add 'shape: \[batch, \?\]'"
    with pytest.raises(OutputError, match=message):
        random_batch(predictor(None, None), case_of(tmp_path))
    batch = random_batch(predictor(None, None), case_of(tmp_path, shape=[2, "batch"]))
    assert batch["x"].shape == (2, 5)


def test_random_inputs_are_one_batch_without_labels() -> None:
    drawn = {"x": np.arange(6.0).reshape(2, 3)}
    found = Inputs(None, drawn, batch_size=2)
    assert len(found) == 2
    assert list(found.batches()) == [drawn]
    assert found.label(0) is None


def test_a_single_input_is_repeated_along_the_axis_of_the_batch() -> None:
    drawn = {"x": np.arange(6.0).reshape(3, 2), "rate": np.array(16000)}
    batch = Inputs(None, drawn, 2, {"x": 1, "rate": None}).repeated(1)
    assert batch["x"].tolist() == [[1, 1], [3, 3], [5, 5]]
    assert batch["rate"] == 16000


def test_a_single_input_is_repeated_to_a_whole_batch() -> None:
    drawn = {"x": np.arange(6.0).reshape(2, 3)}
    batch = Inputs(None, drawn, batch_size=2).repeated(1)
    assert batch["x"].tolist() == [[3.0, 4.0, 5.0]] * 2


Shape = tuple[int | None, ...]


def tensor(*shape: int | None, dtype: str = "float32") -> Tensor:
    return Tensor("x", dtype, shape)


def spec(**fields: Any) -> Input:
    whole = {"name": "x", "type": "tensor", "element_type": "float32", **fields}
    return Input.model_validate(whole)


def image(*steps: Any, layout: str = "NCHW") -> Input:
    return spec(type="image", layout=layout, steps=list(steps))


def draw(dtype: str, **fields: Any) -> Any:
    random = np.random.default_rng(0)
    return draw_array(tensor(None, 100, dtype=dtype), spec(**fields), 50, random)


RESIZE = {"resize": {"size": [320, 240]}}
COVER = {"resize": {"size": [320, 240], "keep_aspect_ratio": True}}
CROP = {"crop": {"size": [224, 200]}}


@pytest.mark.parametrize(
    ("declared", "steps", "layout", "expected"),
    [
        ((None, 3, None, None), [RESIZE], "NCHW", (4, 3, 320, 240)),
        ((None, None, None, None), ["decode", RESIZE], "NCHW", (4, 3, 320, 240)),
        ((None, None, None, None), ["decode", RESIZE], "NHWC", (4, 320, 240, 3)),
        ((None, None, None, 1), [COVER, CROP], "NHWC", (4, 224, 200, 1)),
        ((), ["decode", RESIZE], "NCHW", (4, 3, 320, 240)),
    ],
)
def test_free_axes_of_images_are_those_of_the_steps(
    declared: Shape, steps: list[Any], layout: str, expected: tuple[int, ...]
) -> None:
    assert input_shape(tensor(*declared), image(*steps, layout=layout), 4) == expected


@pytest.mark.parametrize(
    ("declared", "shape", "expected"),
    [
        ((None, None), ["batch", 128], (4, 128)),
        ((2, None, 128), [2, "batch", 128], (2, 4, 128)),
        ((), [], ()),
        ((None, None, None), [80, 3000, 1], (80, 3000, 1)),
    ],
)
def test_the_shape_of_the_manifest_says_which_axis_is_the_batch(
    declared: Shape, shape: list[Any], expected: tuple[int, ...]
) -> None:
    assert input_shape(tensor(*declared), spec(shape=shape), 4) == expected


def test_a_model_without_a_batch_takes_one_input() -> None:
    assert input_shape(tensor(80, 3000), spec(), 1) == (80, 3000)
    message = r"input 'x' has 80 rows, and batch_sizes 4; .* 'shape: \[…, batch, …\]'"
    with pytest.raises(OutputError, match=message):
        input_shape(tensor(80, 3000), spec(), 4)


@pytest.mark.parametrize(
    ("declared", "given", "advice"),
    [
        ((None, 3, None), spec(), r"has free axes, \(None, 3, None\); add 'shape: \[batch, 3, \?\]'"),
        ((None, 3, None, None), image("decode", COVER), r"'shape: \[batch, 3, \?, \?\]'"),
        ((2, None, 8), spec(), r"add 'shape: \[2, batch, 8\]' with your sizes to it"),
        ((), spec(), r"no known shape; add 'shape: \[batch, 3\]' .* \('shape: \[\]' for a single"),
    ],
)  # fmt: skip
def test_an_axis_that_stays_free_is_an_error_with_what_to_write(
    declared: Shape, given: Input, advice: str
) -> None:
    with pytest.raises(OutputError, match=advice):
        input_shape(tensor(*declared), given, 4)


def test_token_ids_are_drawn_within_their_range() -> None:
    ids = draw("int64", range=[100, 199])
    assert ids.dtype == np.int64
    assert set(np.unique(ids)) == set(range(100, 200))


def test_floats_are_drawn_within_their_range() -> None:
    values = draw("float32", range=[-2, -1.5])
    assert values.dtype == np.float32
    assert values.min() >= -2
    assert values.max() <= -1.5
    assert len(np.unique(values)) > 1000


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("int64", 0, 1), ("bool", 0, 1), ("uint8", 0, 255)]
)
def test_integers_without_a_range_fit_masks_and_pictures(dtype: str, low: int, high: int) -> None:
    values = draw(dtype)
    assert values.dtype == np.dtype(dtype)
    assert (values.min(), values.max()) == (low, high)


def test_floats_without_a_range_are_standard_normal() -> None:
    values = draw("float16")
    assert values.dtype == np.float16
    assert abs(values.mean()) < 0.1
    assert abs(values.std() - 1) < 0.1


def test_a_single_number_has_a_shape_without_axes() -> None:
    random = np.random.default_rng(0)
    rate = draw_array(tensor(dtype="int64"), spec(shape=[], range=[16000, 16000]), 8, random)
    assert rate.shape == ()
    assert rate == 16000


def test_values_that_would_not_fit_into_memory_are_an_error_before_they_are_drawn() -> None:
    values = tensor(None, 3, 224, 224)
    message = "random values of float32 1000000000 x 3 x 224 x 224 for input 'x' take .* of memory"
    with pytest.raises(OutputError, match=message):
        draw_array(values, spec(), 10**9, np.random.default_rng(0))
