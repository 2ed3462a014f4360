"""``mlms predict`` on pictures, texts, boxes and numbers, and what can't be used."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from PIL import Image

from pytest_mlms.cli.main import main
from pytest_mlms.cli.predict import _lines_of
from tests.support.fileserver import serving
from tests.support.project import DIGITS, HANG_GUARD, copy_digits, sha256
from tests.support.used_models import write_box_model, write_sum_model, write_text_model
from tests.support.waiting import wait_until

Run = Callable[..., tuple[int, str, str]]
DATA = np.load(DIGITS / "digits_test.npz")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs ``mlms predict`` in a folder with pictures of digits, 0.png and on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    copy_digits(tmp_path / "m")
    for number in range(3):
        Image.fromarray(DATA["image"][number]).save(f"{number}.png")

    def predict(*words: object) -> tuple[int, str, str]:
        status = main(["predict", *map(str, words)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return predict


def test_the_first_screen_is_the_time_of_a_call_and_the_ranked_labels(run: Run) -> None:
    status, output, errors = run("m/digits.yaml", "0.png", "1.png")
    assert (status, errors) == (0, "")
    name, header, seconds, *ranked = output.splitlines()[:8]
    assert name == "0.png: digits-cnn"
    assert re.fullmatch(r"here \(onnxruntime [\d.]+, cpu\)", header)
    assert re.fullmatch(r"[\d.]+ (µs|ms) a call", seconds)
    assert re.fullmatch(rf"{DATA['label'][0]} +\d+\.\d %", ranked[0])
    assert len(ranked) == 5
    assert output.splitlines()[8] == "1.png: digits-cnn"


def test_an_element_of_the_dataset_is_what_its_file_is(run: Run) -> None:
    status, output, errors = run("m/digits.yaml", "2.png", "--element", 0, "--element", 2)
    assert (status, errors) == (0, "")
    of_file, of_first, of_third = output.split(": digits-cnn")[1:]
    assert answers_in(of_file) == answers_in(of_third) != answers_in(of_first)
    count = len(DATA["image"])
    for number in (-1, count):
        status, output, errors = run("m/digits.yaml", "--element", number)
        assert (status, output) == (2, "")
        assert re.search(rf"digits\.yaml:\d+: .*; write a number from 0 to {count - 1}\n", errors)
    status, _, errors = run("m/digits.yaml")
    assert (status, errors.count("\n")) == (2, 1)
    assert "there is no input; name a file or a text, or an --element" in errors


def answers_in(output: str) -> list[str]:
    return re.findall(r"\S+ +\d+\.\d %", output)


def test_the_name_of_the_only_input_may_be_before_it(run: Run) -> None:
    Path("image=1.png").write_bytes(Path("1.png").read_bytes())
    status, output, errors = run("m/digits.yaml", "0.png", "image=0.png", "image=1.png", "1.png")
    assert (status, errors) == (0, "")
    of_file, of_named, other, same = map(answers_in, output.split(": digits-cnn")[1:])
    assert of_file == of_named != other == same


def test_answers_of_several_stacks_stand_side_by_side_with_their_times(run: Run) -> None:
    words = ("m/digits.yaml", "0.png", "--stack", "here", "--stack", "here+FAST=1")
    status, output, _ = run(*words)
    title, header, seconds, best, *_ = output.splitlines()
    assert (status, title) == (0, "0.png: digits-cnn")
    assert re.findall(r"(\S+) \(", header) == ["here", "here+FAST=1"]
    assert seconds.count("a call") == 2
    one, other, _ = map(str.strip, best.split("%"))
    assert one == other


def test_json_layers_and_saved_arrays_have_what_the_screen_has(run: Run) -> None:
    status, output, _ = run("m/digits.yaml", "0.png", "--json", "--layers", "--save", "o.npz")
    line = json.loads(output)
    assert (status, line["input"], line["device"], line["batch_size"]) == (0, "0.png", "cpu", 1)
    assert line["latency"] > 0
    best = line["answers"]["logits"][0]
    assert best["label"] == str(DATA["label"][0])
    assert {"Conv"} <= {layer["type"] for layer in line["layers"]}
    (logits,) = np.load("o.npz").values()
    assert logits.argmax() == best["index"]


def test_a_model_of_texts_takes_texts_files_and_standard_input(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = write_text_model(Path())
    Path("note.txt").write_text("the mat\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"where the cat sat ?")))
    status, output, _ = run(manifest, "the cat sat", "note.txt", "-")
    assert status == 0
    found = [" ".join(line.split()) for line in output.splitlines() if line.endswith("%")]
    of_cat = ["about a cat 88.1 %", "about a mat 11.9 %"]
    assert found == [*of_cat, "about a mat 88.1 %", "about a cat 11.9 %", *of_cat]


def test_boxes_are_rows_in_pixels_of_the_picture(run: Run) -> None:
    Image.new("RGB", (200, 100)).save("wide.png")
    status, output, _ = run(write_box_model(Path()), "wide.png")
    assert status == 0
    assert output.splitlines()[3:] == ["plate  0.750  50 50 - 150 100"]


def test_numbers_of_a_model_without_a_task_are_shown_as_an_array(run: Run) -> None:
    np.save("a.npy", np.arange(3, dtype=np.float32))
    manifest = write_sum_model(Path())
    status, output, _ = run(manifest, "a=a.npy", "b=1 2 3.5")
    assert status == 0
    assert output.splitlines()[3:] == ["float32 3: 1 3 5.5"]
    np.savez("both.npz", a=np.ones(3, np.float32), b=np.ones(3, np.float32))
    assert run(manifest, "both.npz")[1].splitlines()[3:] == ["float32 3: 2 2 2"]
    place = r"made\.yaml:\d+: "
    for words, problem in [
        (["a=1 2 3"], "write each of a, b as often as the others"),
        (["1 2 3"], "'1 2 3' names no input; write a=INPUT b=INPUT"),
    ]:
        with_place = re.compile(place + re.escape(problem))
        status, _, errors = run(manifest, *words)
        assert status == 2
        assert with_place.search(errors), errors


def test_an_array_is_shown_by_its_type_and_its_first_values() -> None:
    assert _lines_of(np.array("a cat")) == ["string: a cat"]
    assert _lines_of(np.array(0.5, np.float32)) == ["float32: 0.5"]
    assert _lines_of(np.arange(8).reshape(2, 4)) == ["int64 2 x 4: 0 1 2 3 4 5 …"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a=1 2", "b=1 2 3"], "2 numbers, and 'a' takes 3; write as many"),
        (["a=a.npy", "b=1 2 3"], "input 'a': the manifest's steps make float32"),
        (["a=c.npy", "b=1 2 3"], "is an array of complex64, not of real numbers"),
        (["a=text.txt", "b=1 2 3"], "4 bytes, beginning b'what', are no array; save it by numpy"),
        (["a=none.npy", "b=1 2 3"], "none.npy can't be read: No such file or directory; name a"),
    ],
)
def test_arrays_that_do_not_fit_are_told_with_the_line_of_the_manifest(
    run: Run, words: list[str], problem: str
) -> None:
    np.save("a.npy", np.zeros((2, 2), np.float32))
    np.save("c.npy", np.zeros(3, np.complex64))
    Path("text.txt").write_text("what")
    status, _, errors = run(write_sum_model(Path()), *words)
    assert status == 1
    assert re.match(r"mlms: made\.yaml:\d+: ", errors)
    assert problem in errors


def test_a_file_that_is_no_picture_leaves_the_others(run: Run) -> None:
    Path("text.png").write_text("no picture")
    Path("empty.png").touch()
    Image.new("1", (15000, 15000)).save("huge.png")
    status, output, errors = run("m/digits.yaml", "text.png", "empty.png", "huge.png", "0.png", ".")
    assert (status, output.count("a call")) == (1, 1)
    text, empty, huge, folder = errors.splitlines()
    assert re.match(r"mlms: m/digits\.yaml:\d+: text\.png: .*are not an image of ", text)
    assert "empty.png: step 1 of input 'image', decode: 0 bytes" in empty
    assert "pixels; make the picture smaller" in huge
    assert re.search(r"yaml:\d+: \. can't be read: it is a folder", folder)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["none.yaml", "0.png"], "none.yaml:1: can't be read: No such file or directory"),
        (
            ["m/digits.yaml", "-", "-", "--stack", "a", "--stack", "b"],
            "'-' is standard input, which can be read once",
        ),
        (["m/digits.yaml", "0.png", "--stack", "nothing"], "'nothing' is neither a stack nor a"),
        (["m/digits.yaml", "0.png", "--device", "cuda:7"], "no device cuda:7: onnxruntime"),
        (["m/digits.yaml", "0.png", "--save", "o.txt"], "arrays are kept in an .npz file; name"),
        (
            ["none.yaml", "0.png", "--save", "no/o.npz"],
            "--save: there is no folder no; make it, or",
        ),
        (["m/digits.yaml", "picture=0.png"], "names no input; write image=INPUT, or INPUT alone"),
        (["m/digits.yaml", "https://a.example/b.png"], "has no digest; write https://a.example"),
        (["m/digits.yaml", f"https://a.example/b.png#sha256=md5:{'0' * 32}"], "has no digest; "),
        (["m/digits.yaml", "https://a.example/b.png#sha256=../../../x"], "has no digest; write "),
    ],
)
def test_what_can_not_be_asked_is_one_line(run: Run, words: list[str], problem: str) -> None:
    status, output, errors = run(*words)
    assert (status, output) == (2, "")
    assert problem in errors
    assert errors.count("\n") == 1


def test_an_address_is_fetched_by_its_digest(run: Run) -> None:
    with serving() as server:
        server.files["/7.png"] = Path("0.png").read_bytes()
        address = server.url("/7.png")
        digest = sha256(Path("0.png").read_bytes())
        status, output, _ = run("m/digits.yaml", f"{address}#sha256={digest}")
        assert status == 0
        assert output.splitlines()[3].startswith(str(DATA["label"][0]))
        status, _, errors = run("m/digits.yaml", f"{address}#sha256={'0' * 64}")
        assert status == 2
        assert re.match(r"mlms: m/digits\.yaml:\d+: ", errors)
        np.savez("both.npz", a=np.ones(3, np.float32), b=np.ones(3, np.float32))
        server.files["/both.npz"] = Path("both.npz").read_bytes()
        address = server.url("/both.npz")
        digest = sha256(Path("both.npz").read_bytes())
        status, output, _ = run(write_sum_model(Path()), f"{address}#sha256={digest}")
        assert (status, output.splitlines()[3:]) == (0, ["float32 3: 2 2 2"])


def test_a_reader_that_ends_early_is_no_error(run: Run) -> None:
    command = f"{sys.executable} -m pytest_mlms predict m/digits.yaml {'0.png ' * 8} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("0.png: ")
    assert done.stderr == ""


def test_ctrl_c_leaves_no_agent(run: Run, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ["m/digits.yaml", *["0.png"] * 1000]
    command = [sys.executable, "-m", "pytest_mlms", "predict", *words]
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        started = psutil.Process(program.pid)
        wait_until(lambda: len(started.children(recursive=True)) > 1)
        agents = started.children(recursive=True)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=HANG_GUARD)
    assert (program.returncode, errors) == (130, "mlms: interrupted\n")
    assert list(temporary.iterdir()) == []
    assert psutil.wait_procs(agents, timeout=HANG_GUARD)[1] == []
