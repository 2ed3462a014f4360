"""Inputs of both sides of an upgrade, by stand-ins for their agents."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from mlms_predictors._run.pictures import decode
from PIL import Image

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.decide.upgrade import compared_inputs
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.compared_inputs import StackInputs, _predict_both
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.inputs import Decoding


def test_an_interruption_of_one_side_ends_the_other_that_computes_beside_it() -> None:
    killed = threading.Event()

    def interrupted(batch: Any) -> Any:
        raise KeyboardInterrupt

    def endless(batch: Any) -> Any:
        assert killed.wait(60)
        return {}

    a = SimpleNamespace(predict=interrupted)
    b = SimpleNamespace(predict=endless, agent=SimpleNamespace(kill=killed.set))
    labels: Any = {"a": "baseline", "b": "candidate"}
    pair = AgentPair(cast(Predictor, a), cast(Predictor, b), labels, together=True)
    with pytest.raises(KeyboardInterrupt):
        _predict_both(pair, {"a": {}, "b": {}})
    assert killed.is_set()


PICTURE = Input.model_validate(
    {
        "name": "image",
        "type": "image",
        "element_type": "uint8",
        "layout": "NHWC",
        "steps": [{"decode": {"color": "L"}}],
    }
)


class Decoder:
    """Decodes as an agent does, and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.began = threading.Semaphore(0)

    def decode(self, asked: Decoding) -> Any:
        self.count += 1
        self.began.release()
        if asked.content[:3] == b"bad":
            raise DatasetError("broken")
        return np.asarray(decode(*asked[:4]))


def pictures_of(count: int) -> tuple[Dataset, dict[Any, Any]]:
    """Return pictures of a pixel, whose level is their number, and what decodes them."""
    contents = []
    for number in range(count):
        stream = io.BytesIO()
        Image.fromarray(np.full((1, 1), number, np.uint8)).save(stream, "PNG")
        contents.append(stream.getvalue())
    files = [f"{number}.png" for number in range(count)]
    dataset = Dataset("m.yaml:9: d", (PICTURE,), {"image": contents}, None, files)
    return dataset, {"a": Decoder(), "b": Decoder()}


def test_pictures_are_decoded_ahead_in_order_and_end_with_the_pass() -> None:
    dataset, agents = pictures_of(10)
    batches = StackInputs(agents).batches(dataset, 4)
    levels = [next(batches)["a"]["image"].ravel().tolist()]
    for agent in agents.values():  # of all pictures, although one batch was asked for
        assert all(agent.began.acquire(timeout=60) for _ in range(10))
    levels += [batch["b"]["image"].ravel().tolist() for batch in batches]
    assert levels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
    assert not [each for each in threading.enumerate() if each.name.startswith("mlms-decode")]


def test_no_more_pictures_are_decoded_ahead_than_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset, agents = pictures_of(10)
    monkeypatch.setattr(compared_inputs, "_MOST_AHEAD", 3 * len(dataset.elements["image"][0]))
    batches = StackInputs(agents).batches(dataset, 4)
    next(batches)
    batches.close()  # which waits for those that are being decoded
    assert {agent.count for agent in agents.values()} <= {4, 5, 6, 7}


def test_a_broken_picture_is_an_error_in_its_turn() -> None:
    dataset, agents = pictures_of(10)
    contents = list(dataset.elements["image"])
    contents[5] = b"bad"
    dataset = Dataset(dataset.name, dataset.inputs, {"image": contents}, None, dataset.files)
    batches = StackInputs(agents).batches(dataset, 4)
    assert next(batches)["a"]["image"].ravel().tolist() == [0, 1, 2, 3]
    with pytest.raises(DatasetError, match="m.yaml:9: d: element 5: .*are not an image"):
        next(batches)
