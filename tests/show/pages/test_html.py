"""Sections of accuracy and of traces, from the files of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.results.line import EstimateRecord
from pytest_mlms.measure.evaluate.tasks.task import BoxMark
from pytest_mlms.measure.trace.storage import save_trace
from pytest_mlms.show.pages.examples import WORST, Example, Examples, Waveform
from pytest_mlms.show.pages.html import sections_of
from pytest_mlms.show.pages.item import ItemView
from tests.show.pages.test_mistakes import item_with
from tests.show.pages.test_traces import three_calls
from tests.support.report_runs import write_lines
from tests.support.result_lines import HOSTILE, line_of


def shown(item: ItemView) -> dict[str, str]:
    return {title: str(content) for title, content in sections_of(item)}


def accuracy_item(folder: Path, **columns: str) -> ItemView:
    """Return an item with predictions, one worst input and its picture."""
    Image.new("RGB", (8, 8)).save(folder / "worst-01.png")
    box = BoxMark("wrong", HOSTILE, 0.5, (0, 0, 1, 1))
    example = Example(0, HOSTILE, 1.0, columns, "worst-01.png", boxes=(box,), texts={"x": HOSTILE})
    (folder / WORST).write_text(json.dumps(to_plain(Examples(9, 1, (example,)))))
    item = item_with(folder, "input,label,class_1\n0,a,b\n1,a,a")
    artifacts = {**item.artifacts, WORST: WORST, "worst-01.png": "worst-01.png"}
    estimates = {"top1": EstimateRecord(0.5, 0.1, 0.9, unit="fraction")}
    return replace(item, artifacts=artifacts, estimates=estimates)


def test_an_item_of_accuracy_shows_its_limits_worst_inputs_and_mistakes(tmp_path: Path) -> None:
    sections = shown(accuracy_item(tmp_path, label="a", class_1="b", probability_1="0.912345"))
    assert list(sections) == ["Accuracy against its limits", "Worst inputs", "Mistakes by class"]
    worst = sections["Worst inputs"]
    assert "1 of 9 inputs are not fully right" in worst
    assert "label a, predicted b (0.912)" in worst
    assert "data:image/png;base64," in worst
    assert "<script>" not in "".join(sections.values())


def test_a_picture_that_is_gone_leaves_the_name_and_the_text(tmp_path: Path) -> None:
    item = accuracy_item(tmp_path, objects="2", found="0", wrong="3", missed="2", detections="")
    (tmp_path / "worst-01.png").unlink()
    worst = shown(item)["Worst inputs"]
    assert "<svg" not in worst
    assert "2 objects: 2 missed, 3 wrong" in worst


def test_a_worst_input_that_is_a_sound_shows_its_waveform(tmp_path: Path) -> None:
    item = accuracy_item(tmp_path, label="a", class_1="b")
    example = Example(0, "a.wav", 1.0, {}, waveform=Waveform(2.0, (-0.5, 0.0), (0.5, 0.1)))
    (tmp_path / WORST).write_text(json.dumps(to_plain(Examples(9, 1, (example,)))))
    worst = shown(item)["Worst inputs"]
    assert "<svg" in worst
    assert "2.00 s, loudest 0.5" in worst


def test_a_trace_shows_its_timelines_and_layers(tmp_path: Path) -> None:
    save_trace(three_calls().build(), tmp_path / "t.npz")
    item = replace(item_with(tmp_path, ""), kind="trace", artifacts={"trace.npz": "t.npz"})
    content = shown(item)["Where the time went"]
    assert content.count("<figure>") == 6
    assert "a call, at level layer: 20.0 µs, the median of 3 traced" in content
    assert "2 layers in the order in which they run; the slowest is second, 5.00 µs" in content


def test_a_trace_of_a_gpu_shows_kernels_and_the_shares_of_gpu_and_cpu(tmp_path: Path) -> None:
    writer = three_calls()
    run = writer.run("library", calls=1)
    run.predict(0, 10_000)
    run.layer("first", 1000, 6000)
    run.launch(1500, 1600, correlation=7)
    run = writer.run("kernel", calls=1)
    run.predict(0, 10_000)
    run.layer("first", 1000, 4000)
    run.launch(1500, 1600, correlation=7)
    run.kernel("gemm", 2000, 4000, correlation=7)
    run.kernel("memcpy DtoH", 3000, 5000, type="memcpy")
    save_trace(writer.build(), tmp_path / "t.npz")
    item = replace(item_with(tmp_path, ""), kind="trace", artifacts={"trace.npz": "t.npz"})
    content = shown(item)["Where the time went"]
    assert "a call, at level kernel" in content
    assert "gemm: 2.00 µs from 2.00 µs, kernel" in content
    parts = "GPU, kernels 20 %, GPU, copies alone 10 %, GPU idle 70 %"
    assert f"where the time of a call goes: {parts}" in content


def test_items_without_files_have_no_sections(tmp_path: Path) -> None:
    item = replace(item_with(tmp_path, ""), artifacts={})
    assert shown(item) == {}
    assert shown(replace(item, kind="trace")) == {}


REPORT_AND_PRINT_IMPORTED = """
import sys
from pathlib import Path
from pytest_mlms.show.pages.report import render_report
from pytest_mlms.show.pages.run import read_run
assert "Latency" in render_report([read_run(Path(sys.argv[1]))])
print(*sys.modules)
"""


def test_a_report_of_calls_imports_no_code_of_traces_upgrades_and_mistakes(tmp_path: Path) -> None:
    run = write_lines(tmp_path, [line_of()])
    command = [sys.executable, "-c", REPORT_AND_PRINT_IMPORTED, str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    parts = ("traces", "layers", "structure", "upgrade", "mistakes", "worst_inputs", "series")
    others = {f"pytest_mlms.show.pages.{part}" for part in parts}
    assert "pytest_mlms.show.pages.estimates" in done.stdout.split()
    assert not others & set(done.stdout.split())
