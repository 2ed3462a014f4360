"""Only the user lets a model's files run code: not its manifest."""

from __future__ import annotations

import pytest

from tests.support.project import Project


@pytest.mark.parametrize(
    ("options", "said"), [((), "code is forbidden"), (("--mlms-allow-code",), "code is allowed")]
)
def test_a_predictor_is_told_what_the_command_line_says(
    project: Project, options: tuple[str, ...], said: str
) -> None:
    project.edit("onnxruntime >=1.17", "teller")
    project.set_thresholds()
    result = project.run("-k", "accuracy", *options)
    result.stdout.fnmatch_lines([f"*{said}*"])


def test_a_manifest_can_not_allow_it(project: Project) -> None:
    project.edit("onnxruntime >=1.17", "teller")
    project.edit(
        "models:\n  - framework", "models:\n  - options: {allow_code: true}\n    framework"
    )
    project.set_thresholds()
    result = project.run("-k", "accuracy")
    result.stdout.fnmatch_lines(["*code is forbidden*"])


PLAIN = """models:
  - framework: plain
    graph: digits_cnn.onnx
    sha256: 237cb7d43b2c3390032ae68b3c9f9d5f570a7620e6614908a597254d68566f63
"""


@pytest.mark.parametrize(
    "options",
    [("-k", "agreement"), ("-k", "b8", "--mlms-aa", "--mlms-budget=0")],
    ids=["reference", "upgrade"],
)
def test_what_a_model_is_compared_with_is_told_the_same(
    project: Project, options: tuple[str, ...]
) -> None:
    project.edit("onnxruntime >=1.17", "teller")
    project.edit("models:\n", PLAIN)
    project.set_thresholds("  agreement: {reference: teller}")
    for extra, said in (((), "code is forbidden"), (("--mlms-allow-code",), "code is allowed")):
        project.run(*options, *extra).stdout.fnmatch_lines([f"*{said}*"])
