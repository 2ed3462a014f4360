"""Speech recognition as pytest items: sounds that spell words, a network that hears their tones."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.language import encoded, tone
from tests.support.project import Project, sha256

LETTERS = {"a": 680.0, "b": 1500.0, " ": 3000.0}  # Hz
INPUTS = 40

PREDICTOR = '''
"""The energy in the bands of the letters; a is as likely as b, but for a little, where b sounds."""
import os

import numpy

from mlms_predictors import Loaded, Tensor

NAME = __name__.rpartition(".")[2]
SHIFT = float(os.environ.get("SPELLER_SHIFT", "0"))

def versions():
    return {NAME: "1.0"}

def devices():
    return ["cpu"]

def load(request):
    inputs = [Tensor("x", "float32", (None, None, 8))]
    outputs = [Tensor("y", "float32", (None, None, 4))]
    return Loaded(None, "cpu", request.threads, inputs, outputs)

def predict(loaded, arrays):
    x = arrays["x"]
    a, b, space = x[..., 1], x[..., 3], x[..., 5]
    a = numpy.maximum(a, b - 0.05) + SHIFT
    blank = numpy.full_like(a, -2)
    return [numpy.stack([blank, a, b, space], axis=-1).astype("float32")]
'''

MANIFEST = """\
name: speller
version: 1.0.0
task: speech-recognition
models: [{{framework: speller, graph: g, sha256: {graph}}}]
inputs:
  - name: x
    type: audio
    element_type: float32
    sample_rate: 16000
    steps:
      - mono
      - resample
      - fix_length: {{size: 16000}}
      - mel: {{fft: 400, hop: 160, bands: 8}}
      - log: {{base: "10"}}
      - transpose
outputs:
  - name: y
    type: text
    steps:
      - ctc: {{file: letters.txt, sha256: {letters}, delimiter: "|"}}
      - normalize_text: {{case: lower}}
dataset: {{name: spelled, version: 1.0.0, source: sounds.zip, sha256: {sounds}}}
evaluate: {{batch_sizes: [8]}}
thresholds:
  wer: {{max: 20 %}}
  upgrade: {{}}
"""

STACKS = """
before: {framework: speller, interpreter: current}
after: {framework: speller, interpreter: current, env: {SPELLER_SHIFT: "0.08"}}
"""


def spell(text: str, rate: int) -> Any:
    """Return the sound of a text, a tone for each letter with a pause behind it."""
    parts = [np.zeros(rate // 50, np.float32)]
    for letter in text:
        parts += [tone(0.06, rate, LETTERS[letter]), np.zeros(rate // 25, np.float32)]
    return np.concatenate(parts)


def write_sounds(path: Path) -> None:
    """Write mono and stereo sounds at two rates, one of nothing, with transcripts in capitals."""
    drawn = random.Random(0)
    rows = ["file,label"]
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(INPUTS):
            words = ["".join(drawn.choices("ab", k=2)) for _ in range(number % 4)]
            text = " ".join(words)
            rate = 22050 if number % 3 else 16000
            sound = spell(text, rate)
            samples = np.stack([sound, sound], axis=1) if number % 2 else sound
            archive.writestr(f"{number}.flac", encoded(samples, rate, "FLAC"))
            rows.append(f"{number}.flac,{text.upper()}")
        archive.writestr("labels.csv", "\n".join(rows))


@pytest.fixture
def speller(project: Project) -> Project:
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "speller.py").write_text(PREDICTOR)
    project.drop()
    write_sounds(project.folder / "sounds.zip")
    (project.folder / "letters.txt").write_text("a\nb\n|\n")
    (project.folder / "g").write_bytes(b"g")
    (project.folder / "stacks.yaml").write_text(STACKS)
    digests = {
        "graph": sha256(b"g"),
        "letters": sha256(b"a\nb\n|\n"),
        "sounds": sha256((project.folder / "sounds.zip").read_bytes()),
    }
    project.manifest = project.folder / "speller.yaml"
    project.manifest.write_text(MANIFEST.format(**digests))
    return project


def run(project: Project, *options: str) -> list[dict[str, Any]]:
    folder = project.path / "predictors"
    project.run(f"--mlms-predictors={folder}", *options)
    return project.items()


@pytest.mark.slow
def test_words_are_heard_unless_a_step_is_wrong(speller: Project) -> None:
    options = ("-k", "accuracy", "--mlms-stack=before")
    (item,) = run(speller, *options)
    assert item["verdict"] == "PASSED"
    assert item["estimates"]["wer"]["value"] == 0
    assert item["estimates"]["exact_match"]["value"] == 1
    speller.edit("sample_rate: 16000", "sample_rate: 8000")
    (item,) = run(speller, *options)
    assert item["verdict"] == "FAILED"
    assert item["estimates"]["wer"]["low"] > 0.5


@pytest.mark.slow
def test_a_candidate_that_hears_other_words_has_regressed(speller: Project) -> None:
    (item,) = run(speller, "--mlms-against=before", "--mlms-stack=after")
    assert item["verdict"] == "REGRESSED"
    verdicts = {found["quantity"]: found["verdict"] for found in item["comparisons"]}
    assert verdicts["agreement"] == "REGRESSED"  # of all inputs, also those that aren't timed
    assert verdicts["wer"] == verdicts["cer"] == verdicts["exact_match"] == "REGRESSED"
