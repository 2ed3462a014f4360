"""The worst inputs of an item, with pictures of masks and waveforms."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.core.records import Place
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.tasks.classification import ClassificationEvidence
from pytest_mlms.measure.evaluate.tasks.object_detection import ObjectDetection
from pytest_mlms.measure.evaluate.tasks.segmentation import SegmentationScorer
from pytest_mlms.measure.evaluate.tasks.task import ClassCounts, MaskPair
from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.show.report.worst_examples import draw_masks, keep_worst_examples, waveform_of

HERE = Place(Path("m.yaml"), 1)
CLASSES = Output.model_validate({"name": "y", "type": "classification"})


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder("a.yaml::test[x]", tmp_path / "run", HERE)


def image_input(**fields: Any) -> Input:
    known = {"name": "x", "type": "image", "layout": "NHWC", "element_type": "float32"}
    return Input.model_validate({**known, **fields})


def dataset_of(elements: Any, spec: Input | None = None, labels: Any = None) -> Dataset:
    return Dataset("m.yaml:1: d", (spec or image_input(),), {"x": elements}, labels)


def wrong(count: int) -> ClassificationEvidence:
    """Return the evidence of inputs that are the more wrong the later they come."""
    values = np.column_stack([np.arange(count), np.zeros(count)])
    return ClassificationEvidence(values, np.ones(count, int), CLASSES, ["a", "b"])


def kept(recorder: Recorder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((recorder.folder / "worst.json").read_text())
    return found


def test_the_twelve_worst_inputs_are_kept_with_thumbnails(recorder: Recorder) -> None:
    pixels = np.random.default_rng(7).integers(0, 255, (20, 300, 400, 3), np.uint8)
    keep_worst_examples(recorder, wrong(20), dataset_of(pixels))
    found = kept(recorder)
    assert (found["inputs"], found["wrong"]) == (20, 19)
    assert [example["input"] for example in found["examples"]] == list(range(19, 7, -1))
    first = found["examples"][0]
    assert first["columns"] == {"label": "b", "class_1": "a", "score_1": "19"}
    with Image.open(recorder.folder / first["picture"]) as picture:
        assert picture.size == (128, 96)
    assert sum(path.stat().st_size for path in recorder.folder.iterdir()) < 300_000
    assert set(recorder.recording().artifacts) >= {"worst.json", "worst-01.jpg", "worst-12.jpg"}


def test_small_pictures_are_kept_exactly_with_all_shades(recorder: Recorder) -> None:
    pixels = np.zeros((2, 8, 8), np.uint8)
    pixels[1, 0, 0] = 16
    keep_worst_examples(recorder, wrong(2), dataset_of(pixels))
    with Image.open(recorder.folder / "worst-01.png") as picture:
        assert picture.getpixel((0, 0)) == (255, 255, 255)
        assert picture.getpixel((1, 0)) == (0, 0, 0)


def test_a_picture_is_decoded_from_its_file(recorder: Recorder) -> None:
    content = io.BytesIO()
    Image.new("RGB", (200, 100), "red").save(content, "PNG")
    spec = image_input(steps=["decode"])
    keep_worst_examples(recorder, wrong(2), dataset_of([content.getvalue()] * 2, spec))
    with Image.open(recorder.folder / "worst-01.jpg") as picture:
        assert picture.size == (128, 64)


def test_what_is_no_picture_has_none(recorder: Recorder) -> None:
    spec = image_input(steps=["decode"])
    keep_worst_examples(recorder, wrong(2), dataset_of([b"no picture"] * 2, spec))
    assert kept(recorder)["examples"][0]["picture"] == ""


def test_texts_are_kept_as_texts(recorder: Recorder) -> None:
    tokenize = {"file": "tokenizer.json", "sha256": 64 * "0", "length": 8, "give": "ids"}
    fields = {"name": "x", "type": "text", "element_type": "int64", "column": "text"}
    spec = Input.model_validate({**fields, "steps": [{"tokenize": tokenize}]})
    texts = ["fine", ("a\x1b[31mquestion", "long " * 1000)]
    keep_worst_examples(recorder, wrong(2), dataset_of(texts, spec))
    (example,) = kept(recorder)["examples"]
    assert example["texts"]["x"].startswith("a\\x1b[31mquestion | long ")
    assert len(example["texts"]["x"]) < 1100


def test_an_array_of_texts_is_kept_as_its_texts(recorder: Recorder) -> None:
    fields = {"name": "x", "type": "tensor", "element_type": "string"}
    texts = [np.array(["red", "S"]), np.array(["blue", "C"])]
    keep_worst_examples(recorder, wrong(2), dataset_of(texts, Input.model_validate(fields)))
    (example,) = kept(recorder)["examples"]
    assert example["texts"] == {"x": "blue | C"}


def test_nothing_is_kept_where_no_input_is_wrong(recorder: Recorder) -> None:
    right = ClassificationEvidence(np.eye(2), np.arange(2), CLASSES, ["a", "b"])
    keep_worst_examples(recorder, right, dataset_of(np.zeros((2, 8, 8), np.uint8)))
    assert not recorder.folder.exists()


def test_boxes_are_shares_of_the_picture_with_right_and_wrong_ones(
    recorder: Recorder, tmp_path: Path
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.new("RGB", (200, 100)).save(folder / "1.png")
    boxes = [[20.0, 10, 40, 20], [100.0, 50, 50, 40]]
    labels = {
        "images": [{"id": 1, "file_name": "1.png", "height": 100, "width": 200}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": box} for box in boxes],
        "categories": [{"id": 1, "name": "cat\nsat"}],
    }
    (folder / "labels.json").write_text(json.dumps(labels))
    spec = image_input(steps=["decode", {"resize": {"size": [100, 200]}}])
    dataset = open_dataset(folder, [spec], HERE, labels="boxes")
    columns = {"columns": {"names": ["x1", "y1", "x2", "y2", "score", "class"]}}
    output = Output.model_validate({"name": "y", "type": "boxes", "steps": [columns]})
    scorer = ObjectDetection().scorer([output], dataset)
    rows = [[20, 10, 60, 30, 0.9, 0], [0, 60, 30, 90, 0.95, 0]]
    scorer.add({"y": np.array([rows], np.float32)}, range(1))
    assert scorer.evidence().by_class() == [ClassCounts("cat\nsat", labelled=2, right=1, wrong=1)]
    keep_worst_examples(recorder, scorer.evidence(), dataset)
    (example,) = kept(recorder)["examples"]
    assert [tuple(box.values()) for box in example["boxes"]] == [
        ("label", "cat\nsat", None, [0.1, 0.1, 0.2, 0.2]),
        ("label", "cat\nsat", None, [0.5, 0.5, 0.25, 0.4]),
        ("wrong", "cat\nsat", pytest.approx(0.95), [0, 0.6, 0.15, 0.3]),
        ("right", "cat\nsat", pytest.approx(0.9), [0.1, 0.1, 0.2, 0.2]),
    ]


def test_wrong_pixels_of_a_mask_are_red_and_right_ones_of_objects_green(
    recorder: Recorder,
) -> None:
    label = np.zeros((1, 8, 8), np.uint8)
    label[0, :, 4:] = 1
    dataset = dataset_of(np.full((1, 8, 8, 3), 200, np.uint8), labels=label)
    output = Output.model_validate({"name": "y", "type": "mask"})
    scorer = SegmentationScorer(output, dataset)
    found = label.copy().astype(np.int64)
    found[0, 0] = 1
    scorer.add({"y": found}, range(1))
    assert scorer.evidence().by_class() == [
        ClassCounts("0", 32, 28, 0),
        ClassCounts("1", 32, 32, 4),
    ]
    keep_worst_examples(recorder, scorer.evidence(), dataset)
    (example,) = kept(recorder)["examples"]
    assert example["has_masks"]
    with Image.open(recorder.folder / "worst-01.png") as picture:
        reds = [picture.getpixel(place)[0] for place in ((0, 0), (7, 7), (0, 7))]  # type: ignore[index]
        greens = [picture.getpixel(place)[1] for place in ((0, 0), (7, 7), (0, 7))]  # type: ignore[index]
    assert reds[0] > greens[0]
    assert greens[1] > reds[1]
    assert reds[2] == greens[2]


YELLOW = (255, 214, 10)


def test_each_instance_has_a_colour_and_each_label_an_outline() -> None:
    found = np.zeros((12, 24), np.int32)
    found[3:9, 2:8] = 1
    found[3:9, 14:20] = 2
    label = np.zeros((12, 24), np.int32)
    label[2:10, 1:9] = 1
    picture = draw_masks(None, MaskPair(label, found, are_instances=True))
    first, second, ground, edge = (
        picture.getpixel(at) for at in ((5, 5), (17, 5), (11, 5), (1, 5))
    )
    assert len({first, second, ground, edge}) == 4
    assert ground == (128, 128, 128)
    assert edge == YELLOW


def test_objects_that_touch_are_told_apart() -> None:
    label = np.ones((8, 8), np.int32)
    label[:, 4:] = 2
    picture = draw_masks(None, MaskPair(label, np.zeros_like(label), are_instances=True))
    assert [picture.getpixel((x, 4)) == YELLOW for x in (2, 3, 4, 5)] == [False, True, True, False]


AUDIO = {"name": "x", "type": "audio", "element_type": "float32", "sample_rate": 8000}
TENSOR = {"name": "x", "type": "tensor", "element_type": "float32", "shape": ["batch", 4]}


def sound_dataset(element: Any, spec: dict[str, Any]) -> Dataset:
    inputs = [Input.model_validate(spec)]
    return cast(Dataset, SimpleNamespace(inputs=inputs, elements={"x": [element]}))


def test_a_sound_is_the_ends_of_its_columns() -> None:
    samples = np.concatenate([np.zeros(4000), np.full(4000, 0.5), np.full(4000, -0.25)])
    found = waveform_of(sound_dataset(samples.astype(np.float32), AUDIO), 0)
    assert found is not None
    assert found.seconds == 1.5
    assert len(found.lows) == len(found.highs) == 120
    assert (found.highs[0], found.highs[60], found.lows[-1]) == (0, 0.5, -0.25)


def test_what_is_no_sound_has_none() -> None:
    assert waveform_of(sound_dataset(np.zeros(4, np.float32), TENSOR), 0) is None
    assert waveform_of(sound_dataset(b"RIFF no sound", AUDIO), 0) is None
    assert waveform_of(sound_dataset(np.zeros(0, np.float32), AUDIO), 0) is None


def test_samples_that_are_no_numbers_or_too_loud_are_bounded() -> None:
    samples = np.array([np.nan, np.inf, -3.0], np.float32)
    found = waveform_of(sound_dataset(samples, AUDIO), 0)
    assert found is not None
    assert (found.lows, found.highs) == ((0, 1, -1), (0, 1, -1))
