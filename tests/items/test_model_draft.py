"""--mlms-model: a model that has no manifest."""

from __future__ import annotations

import shutil

import pytest

from tests.support.project import DIGITS, QUICK, TWIN, copy_digits


def test_a_model_without_a_manifest_has_items(pytester: pytest.Pytester) -> None:
    shutil.copy(DIGITS / "digits_cnn.onnx", pytester.path / "model.onnx")
    run = pytester.runpytest_subprocess("--mlms-model=model.onnx", "--collect-only", "-q")
    run.stdout.no_fnmatch_line("*no item was finished*")
    run.stdout.fnmatch_lines(
        [
            "model.yaml::test_performance[[]onnxruntime-cpu-b1-single_stream]",
            "model.yaml::test_performance[[]onnxruntime-cpu-b8-single_stream]",
        ]
    )


def test_a_file_that_is_no_model_is_an_error_of_usage(pytester: pytest.Pytester) -> None:
    run = pytester.runpytest_subprocess("--mlms-model=model.onnx")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(["ERROR: --mlms-model: there is no model.onnx; name the file of a *"])
    assert not (pytester.path / "mlms-results").exists()


@pytest.mark.slow  # 6 s
def test_a_model_without_limits_is_measured_also_by_workers(pytester: pytest.Pytester) -> None:
    shutil.copy(DIGITS / "digits_cnn.onnx", pytester.path / "model.onnx")
    run = pytester.runpytest_subprocess("--mlms-model=model.onnx", "-n2", "--mlms-strict", *QUICK)
    run.assert_outcomes(passed=2)
    run.stdout.fnmatch_lines(["mlms: model.onnx: onnxruntime *", "mlms: drafted *model.yaml, *"])


def test_several_models_are_run_and_compared_with_the_first_one(pytester: pytest.Pytester) -> None:
    shutil.copy(DIGITS / "digits_cnn.onnx", pytester.path / "model.onnx")
    models = ("--mlms-model=model.onnx", "--mlms-model=twin=model.onnx")
    pytester.mkdir("twins").joinpath("twin.py").write_text(TWIN)
    run = pytester.runpytest_subprocess(
        *models, "--mlms-predictors=twins", "-kagreement", "--mlms-strict", *QUICK
    )
    run.assert_outcomes(passed=1, deselected=4)
    run.stdout.fnmatch_lines(["PASSED *model *twin-cpu*"])


@pytest.mark.parametrize("typed", ["--mlms-model=model.onnx", "--mlms-manifests=models"])
def test_what_is_typed_is_collected_in_place_of_what_addopts_name(
    pytester: pytest.Pytester, typed: str
) -> None:
    copy_digits(pytester.path / "models")
    shutil.copy(DIGITS / "digits_cnn.onnx", pytester.path / "model.onnx")
    pytester.makeini("[pytest]\naddopts = tests\n")
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_own(): pass\n")
    run = pytester.runpytest_subprocess(typed, "--collect-only", "-q")
    run.stdout.fnmatch_lines(["*.yaml::test_performance[[]onnxruntime-cpu-b1-single_stream]"])
    run.stdout.no_fnmatch_line("*test_own*")
    run = pytester.runpytest_subprocess("tests", typed, "--collect-only", "-q")
    if typed.startswith("--mlms-model"):
        run.stderr.fnmatch_lines(["ERROR: --mlms-model: only tests is collected; leave one of *"])
    else:
        run.stdout.fnmatch_lines(["tests/test_own.py::test_own"])
