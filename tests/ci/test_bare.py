"""The plain loops that ci/bench compares agents with."""

from __future__ import annotations

import subprocess
import sys

from tests.support.project import DIGITS, ROOT

BARE = ROOT / "ci" / "bare.py"


def test_a_loop_answers_each_number_of_calls_with_a_p50() -> None:
    command = [sys.executable, str(BARE), "onnxruntime", "4", str(DIGITS / "digits_cnn.onnx")]
    done = subprocess.run(
        command,
        input="3\n5\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    ready, *answers = done.stdout.split()
    assert ready == "ready"
    assert len(answers) == 2
    assert all(float(answer) > 0 for answer in answers)


def test_there_is_a_loop_for_each_framework_that_runs_on_the_cpu() -> None:
    predictors = {path.stem for path in (ROOT / "predictors").glob("[a-z]*.py")}
    program = (
        f"import sys; sys.path.insert(0, {str(BARE.parent)!r}); import bare; print(*bare.LOOPS)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert set(done.stdout.split()) == predictors - {"oip", "openai", "tensorrt"}
