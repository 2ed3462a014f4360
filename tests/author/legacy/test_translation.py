"""Translation of legacy manifests: what is copied, what is decided, and the known defects."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.author.legacy.records import Refused
from tests.support.legacy_manifests import (
    A0,
    A1,
    A2,
    detector,
    native,
    translated,
    with_lines,
    with_python,
)

PAPER_LABELS = "a830abf70aabcb873475cbf57e3ce380"


def notes_of(folder: Path, text: str) -> str:
    return "\n".join(f"{note.line}: {note.text}" for note in translated(folder, text).notes)


def above(text: str, line: str) -> str:
    """Return the comment above a line."""
    lines = text.splitlines()
    number = next(number for number, found in enumerate(lines) if found.strip().startswith(line))
    comment: list[str] = []
    while number and lines[number - 1].strip().startswith("#"):
        number -= 1
        comment.insert(0, lines[number].strip(" #"))
    return " ".join(comment)


def test_a_typed_manifest_is_copied(tmp_path: Path) -> None:
    found = native(tmp_path, A2)
    assert found["name"] == "Small_Network"
    assert found["version"] == "1.10.0"
    assert found["task"] == "image-classification"
    assert found["description"] == "A network of two layers."
    assert found["models"] == [
        {
            "framework": "tensorflow ==1.12.*",
            "or_nearest": True,
            "graph": "https://example.org/small.pb",
            "sha256": "md5:11111111111111111111111111111111",
            "options": {"inputs": "pixels float32[?,8,6,3]", "outputs": "scores"},
        }
    ]
    assert found["dataset"] == "imagenet"
    (spec,) = found["inputs"]
    assert (spec["name"], spec["layout"], spec["element_type"]) == ("pixels", "NHWC", "float32")
    assert spec["steps"] == [
        {"decode": {"color": "RGB", "orientation": "stored"}},
        {"resize": {"size": [8, 6]}},
        {"normalize": {"mean": [30, 20, 10], "scale": 2}},
    ]
    top = {
        "k": 5,
        "labels": "https://example.org/names.txt",
        "sha256": "md5:0123456789abcdef0123456789abcdef",
    }
    assert found["outputs"] == [
        {"name": "scores", "type": "classification", "steps": [{"top_k": top}]}
    ]


def test_what_was_decided_has_a_comment_above(tmp_path: Path) -> None:
    text = translated(tmp_path, A2).text
    assert above(text, "name: Small_Network").endswith("the original's name is 'Small Network'")
    assert "it claims top1 70.5 on Image Net" in above(text, "name: Small_Network")
    assert above(text, "version:") == "the original has 1.10"
    assert above(text, "- framework:").startswith("the original has the version 1.12; ")
    assert "EXIF" in above(text, "- decode:")
    assert above(text, "- normalize:") == ""


def test_mean_and_scale_are_reversed_for_bgr(tmp_path: Path) -> None:
    text = with_lines(A2, "color_mode: RGB", "color_mode: BGR")
    text = with_lines(text, "scale: 2", "scale: [1, 2, 3]")
    found = native(tmp_path, text)["inputs"][0]["steps"]
    assert found[0]["decode"]["color"] == "BGR"
    assert found[-1] == {"normalize": {"mean": [10, 20, 30], "scale": [3, 2, 1]}}
    assert "reversed" in above(translated(tmp_path, text).text, "- normalize:")


@pytest.mark.parametrize(
    ("framework", "color", "layout"),
    [
        ("MXNet", "RGB", "NCHW"),
        ("Caffe", "BGR", "NCHW"),
        ("Caffe2", "BGR", "NCHW"),
        ("CNTK", "BGR", "NCHW"),
        ("TensorFlow", "RGB", "NHWC"),
    ],
)
def test_old_manifests_have_the_defaults_of_their_agent(
    tmp_path: Path, framework: str, color: str, layout: str
) -> None:
    text = with_lines(A1, "name: MXNet", f"name: {framework}")
    (spec,) = native(tmp_path, text)["inputs"]
    assert spec["layout"] == layout
    assert spec["steps"][0]["decode"]["color"] == color
    assert above(translated(tmp_path, text).text, "layout:")


def test_agents_before_2019_ignored_the_order_of_colours(tmp_path: Path) -> None:
    text = with_lines(
        A1, "    parameters:\n      dim", "    parameters:\n      color_mode: BGR\n      dim"
    )
    assert native(tmp_path, text)["inputs"][0]["steps"][0]["decode"]["color"] == "RGB"
    assert "11: color_mode was ignored before 2019" in notes_of(tmp_path, text)


def test_features_are_a_classification_by_labels(tmp_path: Path) -> None:
    found = native(tmp_path, A1)
    (output,) = found["outputs"]
    assert output["type"] == "classification"
    assert output["position"] == 0
    assert output["steps"][0]["top_k"]["labels"].startswith("https://s3.amazonaws.com/")
    assert found["models"][0]["sha256"] == {
        "graph": "md5:11111111111111111111111111111111",
        "weights": "md5:22222222222222222222222222222222",
    }
    assert found["models"][0]["weights"] == "https://example.org/old/old-0000.params"


@pytest.mark.parametrize(
    ("name", "task"),
    [("VOC-FCN-9s", "semantic-segmentation"), ("Net_SOD", "tensor-processing")],
)
def test_some_features_are_no_classification(tmp_path: Path, name: str, task: str) -> None:
    translation = translated(tmp_path, with_lines(A1, "name: Old", f"name: {name}"))
    assert f"task: {task}\n" in translation.text
    assert translation.has_accuracy == (task != "tensor-processing")


@pytest.mark.parametrize(
    ("written", "versions"),
    [
        ("1.12", " ==1.12.*"),
        ("1.14.0", " ==1.14.0"),
        ("'>=1.1.0'", " >=1.1.0"),
        ("2", " ==2.*"),
        ("''", ""),
    ],
)
def test_versions_of_frameworks_become_python_s(
    tmp_path: Path, written: str, versions: str
) -> None:
    text = with_lines(A2, "version: 1.12", f"version: {written}")
    assert native(tmp_path, text)["models"][0]["framework"] == f"tensorflow{versions}"


def test_the_one_number_of_dimensions_is_both_sides(tmp_path: Path) -> None:
    found = native(tmp_path, with_lines(A2, "[3, 8, 6]", "7"))
    assert found["inputs"][0]["steps"][1] == {"resize": {"size": [7, 7]}}


def test_the_longest_side_keeps_the_aspect_ratio(tmp_path: Path) -> None:
    sides = "max_dimension: 513\n      keep_aspect_ratio: true"
    found = native(tmp_path, with_lines(A2, "dimensions: [3, 8, 6]", sides))
    assert found["inputs"][0]["steps"][1] == {"resize": {"longest": 513}}
    assert found["models"][0]["options"]["inputs"] == "pixels float32[?,?,?,3]"
    assert found["inputs"][0]["shape"] == ["batch", 384, 513, 3]


def test_pictures_of_any_size_have_one_where_they_are_random(tmp_path: Path) -> None:
    text = with_lines(A2, "      dimensions: [3, 8, 6]\n", "")
    found = native(tmp_path, text)["inputs"][0]
    assert found["shape"] == ["batch", 480, 640, 3]
    assert [next(iter(step)) for step in found["steps"]] == ["decode", "normalize"]
    assert "for random pictures" in above(translated(tmp_path, text).text, "shape:")
    found = native(tmp_path, with_python("as_is", "softmax"))["inputs"][0]
    assert found["shape"] == ["batch", 480, 640, 3]


def test_masks_are_compared_in_the_size_of_their_labels(tmp_path: Path) -> None:
    text = A2.replace("type: classification", "type: semanticsegment")
    (output,) = native(tmp_path, text)["outputs"]
    assert (output["type"], output["steps"]) == ("mask", [{"mask": {"resize": "nearest"}}])
    (output,) = native(tmp_path, text.replace("name: TensorFlow", "name: PyTorch"))["outputs"]
    assert output["steps"] == [{"argmax": {"axis": 1}}, {"mask": {"resize": "nearest"}}]


def test_the_file_of_values_of_an_input_is_told(tmp_path: Path) -> None:
    values = "type: raw\n    parameters:\n      url: https://example.org/ids.txt\n"
    text = with_lines(A2, "type: image\n    parameters:\n", values)
    (spec,) = native(tmp_path, text)["inputs"]
    assert spec["type"] == "tensor"
    assert "15: the values in https://example.org/ids.txt are not taken" in notes_of(tmp_path, text)


def test_a_member_of_an_archive_has_the_archive_s_address(tmp_path: Path) -> None:
    text = with_lines(A2, "is_archive: false", "is_archive: true\n  base_url: https://e.org/a.tgz")
    text = with_lines(text, "https://example.org/small.pb", "small.pb")
    assert native(tmp_path, text)["models"][0]["graph"] == "https://e.org/a.tgz#small.pb"
    assert "of the file in the archive" in above(translated(tmp_path, text).text, "sha256:")


def test_a_file_without_a_digest_is_unpinned(tmp_path: Path) -> None:
    digest = "  graph_checksum: 11111111111111111111111111111111\n"
    text = with_lines(A2, digest, "  graph_checksum:\n")
    text = with_lines(text, "    features_checksum: 0123456789abcdef0123456789abcdef\n", "")
    found = native(tmp_path, text)
    assert found["models"][0]["sha256"] == "unpinned"
    assert found["outputs"][0]["steps"][0]["top_k"]["sha256"] == "unpinned"
    notes = notes_of(tmp_path, text)
    assert "29: there is no graph_checksum" in notes
    assert "27: the names of classes have no md5" in notes


def test_logits_of_pytorch_get_a_softmax(tmp_path: Path) -> None:
    text = with_lines(A2, "name: TensorFlow", "name: PyTorch")
    assert native(tmp_path, text)["outputs"][0]["steps"][0] == "softmax"
    assert "softmax is added" in notes_of(tmp_path, text)
    text = with_lines(
        text, "probabilities_layer: 's", "probabilities_transform: softmax\n    a: 's"
    )
    assert native(tmp_path, text)["outputs"][0]["steps"][0] == "softmax"
    assert "softmax" not in notes_of(tmp_path, text)


def test_boxes_of_tensorflow_are_shares_with_y_first(tmp_path: Path) -> None:
    found = native(tmp_path, detector())
    assert found["task"] == "object-detection"
    boxes, scores, classes = found["outputs"]
    assert boxes["steps"][0] == {"boxes": {"format": "yxyx", "units": "relative"}}
    assert boxes["steps"][1]["classes"]["labels"] == "https://example.org/names.txt"
    assert (scores["type"], classes["type"]) == ("scores", "classes")


def test_labels_without_background_are_corrected_for_tensorflow(tmp_path: Path) -> None:
    text = detector(features_checksum=PAPER_LABELS)
    assert native(tmp_path, text)["outputs"][0]["steps"][1] == {"classes": {"ids": "same"}}
    assert "28: corrected" in notes_of(tmp_path, text)


@pytest.mark.parametrize("is_revised", [False, True])
def test_boxes_of_mxnet_are_pixels_with_x_first(tmp_path: Path, is_revised: bool) -> None:
    columns = {
        "ymin_index": "1",
        "xmin_index": "0",
        "ymax_index": "3",
        "xmax_index": "2",
        "scale_height": "8",
        "scale_width": "6",
    }
    text = detector("MXNet", boxes_layer="2", **(columns if is_revised else {}))
    boxes = native(tmp_path, text)["outputs"][0]
    assert boxes["position"] == 2
    assert boxes["steps"][:2] == [
        {"boxes": {"format": "xyxy", "units": "pixels"}},
        {"min_score": {"score": 0}},
    ]
    assert ("corrected" in notes_of(tmp_path, text)) != is_revised


def test_boxes_in_other_pixels_than_the_input_s_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"legacy.yml:3\d: scale_width and scale_height are not"):
        translated(tmp_path, detector("MXNet", scale_height="9", scale_width="9"))


def test_scores_of_pytorch_s_detectors_come_first(tmp_path: Path) -> None:
    text = detector("PyTorch").replace("    classes_layer: 'classes'\n", "")
    found = native(tmp_path, text)
    assert found["models"][0]["options"]["outputs"] == "scores; boxes"
    assert found["outputs"][0]["steps"] == ["best_class"]


def test_boxes_scores_and_classes_in_one_output_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"legacy.yml:27: classes_layer is empty"):
        translated(tmp_path, detector(classes_layer=""))


def test_masks_are_those_of_the_boxes(tmp_path: Path) -> None:
    text = detector(masks_layer="'masks'").replace("boundingbox", "instancesegment")
    assert native(tmp_path, text)["outputs"][3] == {
        "name": "masks",
        "type": "masks",
        "steps": [{"masks": {"frame": "box"}}],
    }


def test_labels_without_background_are_corrected_for_masks_too(tmp_path: Path) -> None:
    text = detector(masks_layer="'masks'", features_checksum=PAPER_LABELS)
    text = text.replace("boundingbox", "instancesegment")
    assert native(tmp_path, text)["outputs"][0]["steps"][1] == {"classes": {"ids": "same"}}


def test_the_background_of_pytorch_s_detectors_is_none_of_the_categories(tmp_path: Path) -> None:
    text = detector("PyTorch", background_index="0").replace("    classes_layer: 'classes'\n", "")
    scores, boxes = native(tmp_path, text)["outputs"]
    assert scores["steps"] == ["best_class"]
    assert boxes["steps"][1]["classes"]["labels"] == "https://example.org/names.txt"


def test_pictures_are_the_reverse_of_the_input(tmp_path: Path) -> None:
    text = A2.replace("type: classification", "type: image")
    text = with_lines(text, "probabilities_layer", "masks_layer")
    (output,) = native(tmp_path, text)["outputs"]
    assert output["steps"] == [{"image": {"layout": "NHWC", "mean": [30, 20, 10], "scale": 2}}]
    assert "masks_layer names a picture" in notes_of(tmp_path, text)


def test_hidden_manifests_are_skipped(tmp_path: Path) -> None:
    found = native(tmp_path, f"{A2}hidden: true\n")
    assert found["marks"] == {"skip": {"*": "hidden: true in the original"}}


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        ("mean: [30, 20, 10]", "mean: [10, 20, 30]", "20: mean looks like B, G, R"),
        ("scale: 2", "scale: [0.2, 0.2, 0.2]", "21: scale is for pixels of 0 to 1"),
        ("scale: 2", "crop_method: center", "21: crop_method was never applied"),
        (
            "element_type: float32\n    prob",
            "element_type: float32s\n    prob",
            "did you mean 'float32'",
        ),
        ("    features_url: https://example.org/names.txt\n", "", "there are no names of classes"),
    ],
)
def test_a_defect_is_kept_with_a_warning(tmp_path: Path, old: str, new: str, warning: str) -> None:
    assert warning in notes_of(tmp_path, with_lines(A2, old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph_path: https://example.org/small.pb", "graph_path:", "no graph_path"),
        ("graph_path: https:", "onnx_url: https:", "only onnx_url"),
        ("[3, 8, 6]", "[640, 360, 4]", ":19: dimensions .* are no picture"),
        ("[30, 20, 10]", "[1, 2]", ":20: mean has 2 numbers for 3 channels"),
        ("color_mode: RGB", "color_mode: HSV", ":18: color_mode 'HSV' is unknown"),
        ("type: image", "type: smell", "type 'smell' is unknown"),
        ("type: classification", "type: smell", "type 'smell' is unknown"),
        ("name: TensorFlow", "name: Keras", ":3: the framework 'Keras' is unknown"),
        ("version: 1.12", "version: new", "framework version 'new' is unknown"),
        ("version: 1.10", "version: 1.x", ":5: the version '1.x' is none"),
        ("name: Small Network", "name: '!?'", ":1: the name '!\\?' has neither"),
        ("https://example.org/small.pb", "/etc/passwd", "is no address of the web"),
        ("https://example.org/small.pb", "http://[", "is no address"),
        ("1111111111", "xyz", "graph_checksum is no md5"),
        (
            "element_type: float32\n      in",
            "element_type: raw_image\n      in",
            "'raw_image' is unknown",
        ),
    ],
)
def test_what_is_unclear_is_refused_with_file_and_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(Refused, match=message) as error:
        translated(tmp_path, with_lines(A2, old, new))
    assert "legacy.yml:" in str(error.value)


def test_a_stub_has_no_model_file(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"legacy.yml:7: has no model file, only the page"):
        translated(tmp_path, A0)


def test_caffe_runs_the_files_of_caffe_that_tensorrt_read(tmp_path: Path) -> None:
    text = with_lines(A1, "name: MXNet", "name: TensorRT")
    found = native(tmp_path, with_lines(text, "old-symbol.json", "deploy.prototxt"))
    assert found["models"][0]["framework"] == "caffe"
    assert (found["inputs"][0]["name"], found["outputs"][0]["name"]) == ("data", "prob")


def test_onnx_runtime_runs_the_onnx_files_of_caffe2(tmp_path: Path) -> None:
    text = with_lines(A1, "name: MXNet", "name: Caffe2")
    text = with_lines(text, "  graph_path: old-symbol.json\n", "")
    found = native(tmp_path, with_lines(text, "old-0000.params", "model.onnx"))
    (model,) = found["models"]
    assert model["framework"] == "onnxruntime"
    assert model["graph"] == "https://example.org/old/model.onnx"
    assert model["sha256"] == "md5:22222222222222222222222222222222"


def test_the_steps_of_recent_manifests_are_those_of_their_python(tmp_path: Path) -> None:
    found = native(tmp_path, with_python("torchvision", "softmax"))
    (spec,) = found["inputs"]
    assert (spec["position"], spec["layout"]) == (0, "NCHW")
    assert spec["steps"] == [
        {"decode": {"orientation": "stored"}},
        {"resize": {"shortest": 40}},
        {"crop": {"size": [32, 32], "library": "torchvision"}},
        {"normalize": {"mean": [127.5, 63.75, 31.875], "scale": [51, 25.5, 102]}},
    ]
    (output,) = found["outputs"]
    assert output["steps"][0] == "softmax"
    assert output["steps"][1]["top_k"]["labels"] == "https://example.org/names.txt"


def test_the_python_counts_where_a_key_says_something_else(tmp_path: Path) -> None:
    text = with_python("torchvision", "softmax")
    assert notes_of(tmp_path, text) == ""
    text = with_lines(text, "[3, 32, 32]", "[3, 30, 30]")
    text = with_lines(text, "mean: [127.5,", "mean: [12,")
    found = notes_of(tmp_path, text)
    assert "14: dimensions say [30, 30] and the code [32, 32]; the code counts" in found
    assert "15: mean says [12, 63.75, 31.875]" in found


def test_python_of_another_form_is_refused_and_never_run(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'ran')!r}, 'w')"
    with pytest.raises(Refused, match="preprocess is Python of an unknown form"):
        translated(tmp_path, with_python(code, "softmax"))
    with pytest.raises(Refused, match="postprocess is Python of an unknown form"):
        translated(tmp_path, with_python("torchvision", code))
    with pytest.raises(Refused, match="before_preprocess is Python"):
        translated(tmp_path, f"{A2}before_preprocess: {code}\n")
    assert not (tmp_path / "ran").exists()


def test_python_that_returns_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="returns nothing"):
        translated(tmp_path, with_python("torchvision", "printed"))


def test_line_breaks_of_texts_do_not_end_a_comment(tmp_path: Path) -> None:
    name = '"a\\u2028b\\n: [c"'
    found = native(tmp_path, with_lines(A2, "name: Small Network", f"name: {name}"))
    assert found["name"] == "a_b_c"
