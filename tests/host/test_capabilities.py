"""What a host is found to have."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from pytest_mlms.agent.registry import find_predictors
from pytest_mlms.host.capabilities import frameworks, labels
from pytest_mlms.host.gpus import Gpu, visible

GPUS = [Gpu("GPU-aa", "A", 1, "1"), Gpu("GPU-bb", "B", 2, "1"), Gpu("GPU-cc", "C", 3, "1")]


def test_a_framework_is_there_where_what_its_predictor_imports_is() -> None:
    found = frameworks(find_predictors())
    assert found["onnxruntime"] == version("onnxruntime")
    assert not {"mxnet", "cntk", "caffe"} & set(found)


@pytest.mark.parametrize(
    ("code", "there"),
    [
        ("import numpy, os", True),
        ("import numpy\nimport no_such_framework", False),
        (
            "import numpy\ntry:\n    import no_such_framework\nexcept ImportError:\n    import pytest",
            True,
        ),
        ("import numpy\ndef load(request):\n    import no_such_framework", False),
        ("this is no Python", True),  # the agent says what is wrong with it
    ],
)
def test_imports_are_looked_up_and_never_run(tmp_path: Path, code: str, there: bool) -> None:
    (tmp_path / "mine.py").write_text(code)
    assert ("mine" in frameworks({"mine": tmp_path / "mine.py"})) is there


def test_labels_are_read_from_the_environment_s_text() -> None:
    assert labels("gpu=new-driver, rack=3") == {"gpu": "new-driver", "rack": "3"}
    assert labels("") == {}


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        (None, "aa bb cc"),
        ("2,0", "cc aa"),
        ("GPU-b", "bb"),
        ("1,7,0", "bb"),
        ("", ""),
        ("-1", ""),
        ("0, 1", "aa bb"),
    ],
)
def test_cuda_counts_the_gpus_that_are_visible(chosen: str | None, shown: str) -> None:
    assert [gpu.uuid.removeprefix("GPU-") for gpu in visible(GPUS, chosen)] == shown.split()
