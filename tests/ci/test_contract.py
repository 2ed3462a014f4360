"""ci/stacks: which frameworks it runs, and what it says of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT


def contract(*names: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "ci" / "contract.py"), *names]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=3600
    )


def test_a_framework_that_has_no_stack_is_refused_with_those_that_have() -> None:
    done = contract("caffe", "cafe")
    assert done.returncode == 2
    assert re.fullmatch(
        r"no stack 'cafe'; manifests/stacks\.yaml has onnxruntime, .*cntk.*\n", done.stderr
    )


@pytest.mark.slow
def test_a_table_says_what_held_and_a_broken_contract_fails(tmp_path: Path) -> None:
    done = contract("onnxruntime", MLMS_CACHE=str(tmp_path))
    assert re.search(
        r"^onnxruntime +1\.31\.1 .* [1-9]\d* passed, 0 failed, \d skipped$",
        done.stdout,
        re.MULTILINE,
    ), done.stdout
    assert done.returncode == 0
    broken = contract(
        "onnxruntime",
        MLMS_CACHE=str(tmp_path),
        PYTEST_ADDOPTS="--deselect tests -p no:cacheprovider",
    )
    assert broken.returncode == 1
    assert "the contract doesn't hold" in broken.stdout
