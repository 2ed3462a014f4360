"""Python of an unknown form in original manifests, which agents run where the user allows it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator

import pytest

from tests.support.fileserver import serving
from tests.support.original_digits import (
    accuracy_of_script,
    serve_network_with_code,
    write_dataset,
)
from tests.support.project import Project, Ran, SharedRuns

PREPROCESS = """\
import os
import sys

import numpy as np
from PIL import Image

assert "pytest" not in sys.modules


def preprocess(ctx, data):
    print("a line on stdout")
    with Image.open(dataset[int(data)]) as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=np.float32)
    return (pixels / 240).transpose(2, 0, 1)
"""

POSTPROCESS = """\
def postprocess(ctx, data):
    powers = np.exp(data[0] - data[0].max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).tolist()
"""

Write = Callable[..., Project]


@pytest.fixture
def write(project: Project) -> Iterator[Write]:
    """A function that makes a project with an original that has this code."""
    project.drop()
    write_dataset(project.folder)
    with serving() as server:

        def written(preprocess: str = PREPROCESS, postprocess: str = POSTPROCESS) -> Project:
            text = serve_network_with_code(server, preprocess, postprocess)
            (project.folder / "digits.yml").write_text(text)
            return project

        yield written


def line_of(project: Project, part: str, name: str = "digits.yml") -> int:
    """Return the number of the first line of a manifest that has a part."""
    lines = (project.folder / name).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if part in line)


def returning(code: str) -> str:
    return f"import os\nimport numpy as np\ndef preprocess(ctx, data):\n    {code}\n"


def scoring(code: str) -> str:
    return f"def postprocess(ctx, data):\n    {code}\n"


WRONG_CODE = {
    "import": (PREPROCESS.replace("import os", "import cv3"), POSTPROCESS),
    "name": (PREPROCESS.replace("(pixels / 240)", "(unknown / 240)"), POSTPROCESS),
    "syntax": (PREPROCESS.replace("(ctx, data):", "(ctx data):"), POSTPROCESS),
    "tuple": (returning("return np.zeros((3, 8, 8), 'f'), np.zeros(1)"), POSTPROCESS),
    "size": (returning("return np.zeros((3, 9, 8), 'f')"), POSTPROCESS),
    "exit": (returning("os._exit(3)"), POSTPROCESS),
    "shape": (PREPROCESS, scoring("return 3")),
    "class": (PREPROCESS, scoring("return data[0].argmax(axis=1) + 12")),
}
"""Name of an original -> its code."""


def run_wrong_code(project: Project) -> pytest.RunResult:
    project.drop()
    write_dataset(project.folder)
    with serving() as server:
        for name, code in WRONG_CODE.items():
            text = serve_network_with_code(server, *code)
            (project.folder / f"{name}.yml").write_text(text)
        return project.run("--mlms-allow-code", "-k", "accuracy")


@pytest.fixture
def wrong(project: Project, shared_runs: SharedRuns) -> Ran:
    """A run of each of WRONG_CODE, which tests only read."""
    ran = shared_runs.of(run_wrong_code, project)
    assert ran.result.ret == 1
    assert "Traceback" not in ran.result.stdout.str()
    return ran


def check_error(wrong: Ran, name: str, problem: str) -> None:
    """Check that an original's item is an error, whose message has a line like ``problem``."""
    nodeid = f"manifests/{name}.yml::"
    (item,) = [item for item in wrong.project.items() if item["nodeid"].startswith(nodeid)]
    assert item["verdict"] == "ERROR"
    lines = item["message"].splitlines()
    assert fnmatch.filter(lines, problem)
    assert set(lines) <= set(wrong.result.outlines)


def test_unknown_code_is_refused(write: Write) -> None:
    project = write()
    result = project.run("--collect-only")
    line = line_of(project, "preprocess: |")
    result.stdout.fnmatch_lines(
        [
            f"manifests/digits.yml:{line}: preprocess is Python of an unknown form;*--mlms-allow-code*"
        ]
    )


@pytest.mark.slow
def test_code_runs_in_an_agent(write: Write) -> None:
    project = write()
    result = project.run("--mlms-allow-code")
    result.assert_outcomes(passed=2)
    items = {item["kind"]: item for item in project.items()}
    top1 = items["accuracy"]["estimates"]["top1"]["value"]
    assert top1 == accuracy_of_script()
    result.stdout.fnmatch_lines(["*preprocess is Python of an unknown form, which agents run*"])


@pytest.mark.slow
def test_classes_alone_are_scored(write: Write) -> None:
    project = write(postprocess="def postprocess(ctx, data):\n    return data[0].argmax(axis=1)\n")
    project.run("--mlms-allow-code", "-k", "accuracy").assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["estimates"]["top1"]["value"] == accuracy_of_script()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part", "problem"),
    [
        ("import", "import cv3", "ModuleNotFoundError: *'cv3'*; add it to the stack here"),
        ("name", "(unknown / 240)", "NameError: *'unknown'*"),
        ("syntax", "def preprocess(ctx data):", "SyntaxError: *"),
    ],
)
def test_an_error_of_the_code_names_its_line(
    wrong: Ran, name: str, part: str, problem: str
) -> None:
    line = line_of(wrong.project, part, f"{name}.yml")
    wrong.result.stdout.fnmatch_lines(
        [f"manifests/{name}.yml:{line}: Digits onnxruntime-cpu: {problem}*"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tuple", "*preprocess returns 2 arrays*"),
        ("size", "*float32 1 x 3 x 9 x 8*the model takes*"),
        ("exit", "manifests/exit.yml:*: *agent*exit*3*"),
    ],
)
def test_wrong_returns_are_errors(wrong: Ran, name: str, problem: str) -> None:
    check_error(wrong, name, problem)


@pytest.mark.slow
def test_an_endless_loop_is_ended(write: Write) -> None:
    loop = "def preprocess(ctx, data):\n    while True:\n        pass\n"
    project = write(loop)
    result = project.run("--mlms-allow-code", "-k", "accuracy", "--mlms-timeout=5")
    line = line_of(project, "preprocess: |")
    result.stdout.fnmatch_lines(
        [f"manifests/digits.yml:{line}: *gave no reply to 'preprocess' in 5 s and was killed*"]
    )
    assert result.ret == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("shape", "*postprocess returns ()*expected inputs x classes*"),
        ("class", "*class that is none of 10*"),
    ],
)
def test_wrong_scores_are_errors(wrong: Ran, name: str, problem: str) -> None:
    check_error(wrong, name, problem)
