"""``mlms advise --data`` on pictures of real digits: who answers best, and who can't be asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

from pytest_mlms.cli.main import main
from pytest_mlms.evaluation import evaluate
from tests.support.digit_pictures import write_pictures
from tests.support.project import copy_digits, sha256

Run = Callable[..., tuple[int, str, str]]


def write(name: str, **keys: Any) -> None:
    """Write the manifest of digits by another name, with other keys."""
    manifest = yaml.safe_load(Path("zoo/digits.yaml").read_text())
    text = yaml.safe_dump({**manifest, "name": name, **keys}, sort_keys=False)
    Path(f"zoo/{name}.yaml").write_text(text)


def write_damaged(name: str) -> None:
    """Write a model whose weights are those of digits with noise, and its manifest."""
    model = onnx.load("zoo/digits_cnn.onnx")
    generator = np.random.default_rng(1)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.ndim > 1:
            noisy = values + generator.normal(0, values.std(), values.shape)
            tensor.CopyFrom(numpy_helper.from_array(noisy.astype(values.dtype), tensor.name))
    data = model.SerializeToString()
    Path(f"zoo/{name}.onnx").write_bytes(data)
    model_entry = {"framework": "onnxruntime", "graph": f"{name}.onnx", "sha256": sha256(data)}
    write(name, models=[model_entry])


def outputs(labels: str | None) -> list[dict[str, Any]]:
    step = {"k": 5, "labels": labels} if labels else {"k": 5}
    return [{"name": "logits", "type": "classification", "steps": ["softmax", {"top_k": step}]}]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs ``mlms advise`` in a folder with a zoo of digits, and pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    copy_digits(tmp_path / "zoo")
    write_pictures(tmp_path / "photos", 100)

    def advise(*words: str) -> tuple[int, str, str]:
        try:
            status = main(["advise", *words])
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return advise


def test_the_best_model_is_found_and_what_is_pasted_runs(run: Run) -> None:
    write_damaged("damaged")
    Path("photos/3/broken.png").write_text("no picture")
    Path("photos/notes.txt").write_text("no picture, by its name")
    status, output, errors = run("zoo", "--data", "photos")
    assert status == 0, output + errors
    assert "can't be read: photos/3/broken.png: " in errors
    assert "notes.txt" in errors
    assert "digits-cnn onnxruntime b64 is the best: each other one is surely worse" in output
    assert output.count("in place of dataset") == 1
    assert run("zoo", "--data", "photos")[1] == output
    section = yaml.safe_load(output[output.index("# in zoo/digits.yaml") :])
    assert section["dataset"]["skip_corrupt"] == 1
    manifest = yaml.safe_load(Path("zoo/digits.yaml").read_text())
    Path("zoo/digits.yaml").write_text(yaml.safe_dump({**manifest, **section}, sort_keys=False))
    (scored,) = evaluate("zoo/digits.yaml", "-k", "test_accuracy")
    assert scored["estimates"]["top1"]["replicates"] == 100
    assert [Path(one["element"]).name for one in scored["skipped_elements"]] == ["broken.png"]


def test_models_that_answer_alike_have_no_winner(run: Run) -> None:
    write("twin")
    Path("zoo/ci.yml").write_text("on: push\n")
    Path("zoo/broken.yaml").write_text("name: broken\nmodels: []\n")
    status, output, errors = run("zoo", "--data", "photos")
    assert status == 0
    assert "left out: zoo/broken.yaml:" in errors
    assert "ci.yml" not in errors
    assert "is the best" not in output
    assert "100 inputs don't tell these apart" in output
    assert output.count("in place of dataset") == 2


def test_a_model_without_some_of_the_classes_is_refused_by_name(run: Run) -> None:
    names = [str(number) for number in range(8)] + ["eight", "nine"]
    Path("zoo/words.txt").write_text("".join(f"{name}\n" for name in names))
    write("words", outputs=outputs("words.txt"))
    write("nameless", outputs=outputs(None))
    status, output, errors = run("zoo", "--data", "photos")
    assert status == 0
    assert "refused: words (zoo/words.yaml): zoo/words.yaml:" in output
    assert "2 of 10 classes are none of its own: words.txt has no class '8'" in output
    assert "no class '9'" in output
    assert "nameless.yaml" in errors
    assert "names no classes; folders are its numbers" in errors


def test_classes_are_found_by_name_whatever_their_order(run: Run) -> None:
    Path("zoo/words.txt").write_text("".join(f"{name}\n" for name in "abcdefghij"))
    write("words", outputs=outputs("words.txt"))
    write_pictures(Path("words"), 100, "ABCDEFGHIJ")
    status, output, _ = run("zoo/words.yaml", "--data", "words")
    assert status == 0
    assert "words onnxruntime b64 is the only model that answers for this data" in output
    status, output, _ = run("zoo/digits.yaml", "--data", "words")
    assert status == 1
    assert "10 of 10 classes are none of its own" in output
    write("nameless", outputs=outputs(None))
    assert "name the folders by its numbers" in run("zoo/nameless.yaml", "--data", "words")[1]


def test_a_model_that_cannot_read_what_others_can_is_refused(run: Run) -> None:
    manifest = yaml.safe_load(Path("zoo/digits.yaml").read_text())
    steps = [*manifest["inputs"][0]["steps"][:1], {"crop": {"size": [8, 8]}}]
    steps += manifest["inputs"][0]["steps"][2:]
    write("cropping", inputs=[{**manifest["inputs"][0], "steps": steps}])
    from PIL import Image

    Image.new("L", (4, 4)).save("photos/0/small.png")
    status, output, _ = run("zoo", "--data", "photos")
    assert status == 0
    assert "refused: cropping (zoo/cropping.yaml): " in output
    assert "0/small.png" in output
    assert "digits-cnn onnxruntime b64 is the only model" in output


def test_a_table_of_several_tasks_asks_for_one(run: Run) -> None:
    table = [f"{path},{path.parent.name}" for path in Path("photos").rglob("*.png")]
    lines = "\n".join(line.removeprefix("photos/") for line in table)
    Path("photos/labels.csv").write_text(f"file,label\n{lines}\n")
    write("other", task="handwriting")
    status, _, errors = run("zoo", "--data", "photos")
    assert status == 2
    assert "say which: --task handwriting" in errors
    status, output, errors = run("zoo", "--data", "photos", "--task", "image-classification")
    assert status == 0, errors
    assert "digits-cnn onnxruntime b64 is the only model" in output
    assert "taken to be those of each model" in errors


def test_another_quantity_may_be_the_objective(run: Run) -> None:
    status, output, _ = run("zoo", "--data", "photos", "--objective", "max f1_macro")
    assert status == 0
    assert "f1_macro" in output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "nowhere"], "there is no nowhere"),
        (["--data", "photos", "--threads", "2"], "leave it out"),
        (["--data", "photos", "--budget", "1min"], "--budget is for another question"),
        (["--data", "."], "name another folder by --mlms-results"),
        (["--data", "photos", "--objective", "max throughput"], "ranked by their answers"),
        (["--data", "photos", "--objective", "min top1"], "write max"),
        (["--data", "photos", "--task", "ocr"], "no manifest of ocr in zoo"),
        (["--data", "empty"], "has no pictures"),
        (["--data", "flat"], "without a class"),
        (["--objective", "max throughput", "--task", "ocr"], "--task is that of --data"),
    ],
)
def test_a_mistake_says_what_to_write(run: Run, words: list[str], told: str) -> None:
    Path("empty").mkdir()
    Path("flat").mkdir()
    next(Path("photos").rglob("*.png")).rename("flat/one.png")
    status, _, errors = run("zoo", *words)
    assert status == 2
    assert told in errors


def test_without_manifests_the_folder_manifests_or_the_projects_is_the_zoo(run: Run) -> None:
    status, _, errors = run("--data", "photos")
    assert status == 2
    assert "there is no folder manifests" in errors
    Path("pytest.ini").write_text("[pytest]\nmlms_manifests = zoo\n")
    assert "is the only model" in run("--data", "photos")[1]
    assert "name manifests, or --data FOLDER" in run("--objective", "max throughput")[2]


def write_detector(name: str, box: list[float], steps: list[dict[str, Any]]) -> None:
    """Write a model that finds the same object in every picture, and its manifest."""
    from onnx import TensorProto, helper

    found = np.array([[[*box, 0.9, 0]]], np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1, 2], keepdims=0),  # N x 3
        helper.make_node("Slice", ["mean", "zero", "one", "one"], ["first"]),
        helper.make_node("Unsqueeze", ["first", "one"], ["row"]),  # N x 1 x 1
        helper.make_node("Mul", ["row", "none"], ["empty"]),
        helper.make_node("Add", ["empty", "found"], ["y"]),
    ]
    values = {"zero": np.array([0]), "one": np.array([1]), "none": np.float32(0), "found": found}
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 8, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1, 6])],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in values.items()],
    )
    opset = [helper.make_opsetid("", 13)]
    data = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    Path(f"zoo/{name}.onnx").write_bytes(data)
    columns = {"names": ["x1", "y1", "x2", "y2", "score", "class"], "units": "relative"}
    manifest = {
        "name": name,
        "version": "1.0.0",
        "task": "object-detection",
        "license": "MIT",
        "models": [{"framework": "onnxruntime", "graph": f"{name}.onnx", "sha256": sha256(data)}],
        "inputs": [
            {
                "name": "x",
                "type": "image",
                "element_type": "float32",
                "layout": "NHWC",
                "steps": [{"decode": {"color": "RGB"}}, {"resize": {"size": [8, 8]}}],
            }
        ],
        "outputs": [{"name": "y", "type": "boxes", "steps": [{"columns": columns}, *steps]}],
    }
    Path(f"zoo/{name}.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


def test_objects_of_a_coco_file_are_for_detectors_whose_classes_have_its_names(run: Run) -> None:
    from PIL import Image

    images = []
    objects = []
    Path("street").mkdir()
    for number in range(60):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(f"street/{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 16, "width": 16})
        objects.append({"image_id": number, "category_id": 3, "bbox": [0, 0, 8, 8]})
    content = {"images": images, "annotations": objects, "categories": [{"id": 3, "name": "car"}]}
    Path("street/labels.json").write_text(json.dumps(content))
    write_detector("left", [0, 0, 0.5, 0.5], [{"classes": {"names": ["car"]}}])
    write_detector("right", [0.5, 0, 1, 0.5], [{"classes": {"names": ["car"]}}])
    write_detector("dogs", [0, 0, 0.5, 0.5], [{"classes": {"names": ["dog"]}}])
    write_detector("numbers", [0, 0, 0.5, 0.5], [])
    status, output, errors = run("zoo", "--data", "street")
    assert status == 0, output + errors
    assert "left onnxruntime b1 is the best of those that answer: each" in output
    assert "dogs" in output
    assert "1 categories, car" in output
    assert "refused: numbers (zoo/numbers.yaml): " in output
    assert "the model's classes have no names here" in output


def test_what_cannot_be_read_or_has_too_large_a_number_is_told(run: Run) -> None:
    write("nameless", outputs=outputs(None))
    Path("photos/7").rename("photos/12")
    status, output, _ = run("zoo/nameless.yaml", "--data", "photos")
    assert status == 1
    assert "12" in output
    assert "no model answers for this data" in output
    Path("one/3").mkdir(parents=True)
    next(Path("photos/3").iterdir()).rename("one/3/one.png")
    write("twin")
    status, output, _ = run("zoo/digits.yaml", "zoo/twin.yaml", "--data", "one")
    assert status == 0
    assert "1 input doesn't tell these apart" in output
