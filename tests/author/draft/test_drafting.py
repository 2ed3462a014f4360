"""Drafts of several models, which are one network in several formats."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.measuring import measurable, measure_twice, with_limits
from pytest_mlms.author.draft.model_files import recognise_models
from pytest_mlms.author.draft.opening import DraftRequest, stacks_of
from pytest_mlms.author.draft.parts import Draft, ModelPart
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.artifacts.fetch import default_cache
from tests.support.onnx_models import ModelBuilder
from tests.support.project import DIGITS, TWIN


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the digits network, and a framework ``twin`` in a folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS / "digits_cnn.onnx", tmp_path / "model.onnx")
    (tmp_path / "twins").mkdir()
    (tmp_path / "twins" / "twin.py").write_text(TWIN)
    return tmp_path


def request(*models: str, said: list[str]) -> DraftRequest:
    """Return what asks for a draft; ``said`` gets the lines for the user."""
    predictors = find_predictors([Path("twins")])
    recognised = recognise_models(models, predictors)
    return DraftRequest(
        models=recognised,
        stacks=stacks_of(recognised, []),
        target=Path("m.yaml").absolute(),
        predictors=predictors,
        cache=default_cache(),
        say=said.append,
        show=lambda step: None,
    )


def change_order_of_classes(source: Path, target: Path) -> None:
    """Write the network with the rows of its last layer reversed."""
    model = onnx.load(source)
    for weight in model.graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.ndim == 2:
            weight.CopyFrom(numpy_helper.from_array(array[::-1].copy(), weight.name))
    onnx.save(model, target)


def test_another_network_is_pointed_out(folder: Path) -> None:
    change_order_of_classes(folder / "model.onnx", folder / "other.onnx")
    said: list[str] = []
    draft = draft_manifest(request("model.onnx", "twin=other.onnx", said=said))
    assert "  differs from model.onnx by " in said[-1]
    assert said[-1].endswith("see whether both are the same network")
    assert 0.01 < draft.rounding < 1, "1 % of logits of some units"
    assert draft.agreement(draft.rounding).startswith("agreement: {reference: onnxruntime, rtol: 0")


def test_a_model_that_takes_other_arrays_is_refused(folder: Path) -> None:
    model = ModelBuilder()
    model.add_input("image", None, 8, 8, 1)
    model.add("Flatten", "image", "logits")
    model.add_output("logits", "batch", 64)
    model.save(folder / "twins")
    message = (
        "twins/model.onnx takes 'image' as float32 any x 8 x 8 x 1, "
        "and model.onnx as float32 any x 1 x 8 x 8; export them with the same inputs"
    )
    with pytest.raises(MlmsError, match=message):
        draft_manifest(request("model.onnx", "twin=twins/model.onnx", said=[]))


def test_one_model_agrees_with_none() -> None:
    draft = Draft("m", "inference", [ModelPart("onnxruntime", "m.onnx", {"graph": "0"})], [], [])
    assert measurable(draft) is draft


@pytest.mark.slow  # 4 s
def test_models_may_differ_by_twice_what_they_do(folder: Path) -> None:
    draft = draft_manifest(request("model.onnx", "twin=model.onnx", said=[]))
    path = folder / "m.yaml"
    path.write_text(measurable(draft).text())
    options = ["--mlms-stack=here", "--mlms-predictors=twins", "-kagreement"]
    path.write_text(with_limits(draft, measure_twice(path, options)).text())
    (limit,) = load(path, find_predictors([Path("twins")])).manifest.thresholds.agreement
    assert (limit.reference, limit.rtol, limit.atol) == ("onnxruntime", 0, 1e-6)


def test_a_draft_has_threads_only_where_they_were_asked_for() -> None:
    model = ModelPart("onnxruntime", "m.onnx", {"graph": "0"})
    assert "threads" not in Draft("m", "inference", [model], [], []).text()
    assert "  threads: 2\n" in Draft("m", "inference", [model], [], [], threads=2).text()


@pytest.mark.parametrize(
    ("variant", "comment"),
    [
        (
            "int8",
            "more than rounding: variants of other precision do; see by a dataset with labels",
        ),
        (None, "more than rounding: see whether the models are one network"),
    ],
)
def test_a_variant_is_one_network_however_much_it_differs(
    variant: str | None, comment: str
) -> None:
    models = [ModelPart("onnxruntime", f"{name}.onnx", {"graph": "0"}) for name in "ab"]
    draft = Draft("m", "inference", models, [], [], rounding=0.01)
    item = {
        "kind": "agreement",
        "framework": "onnxruntime",
        "variant": variant,
        "versions": {},
        "machine": {"cpu": {}, "cores": {"logical": 2}},
        "estimates": {"difference_max": {"value": 0.3}},
    }
    ((line, found),) = with_limits(draft, [[item], [item]]).thresholds
    assert line.endswith("atol: 0.6}")
    assert comment in found


def test_models_of_which_one_gives_nan_are_refused() -> None:
    models = [ModelPart("onnxruntime", f"{name}.onnx", {"graph": "0"}) for name in "ab"]
    draft = Draft("m", "inference", models, [], [], rounding=0.01)
    items = [
        {"kind": "agreement", "estimates": {"difference_max": {"value": value}}}
        for value in (0.3, None)  # as results have what is no number
    ]
    with pytest.raises(
        MlmsError, match="the models give NaN, infinity or other texts for other inputs"
    ):
        with_limits(draft, [items, items])
