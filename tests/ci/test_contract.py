"""ci/stacks: which frameworks it runs, and what its table says of them."""

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
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=900,
    )


def test_a_framework_without_a_stack_is_refused_with_the_stacks_there_are() -> None:
    done = contract("caffe", "cafe")
    assert done.returncode == 2
    known = r"no stack 'cafe'; manifests/stacks\.yaml has onnxruntime, .*cntk.*\n"
    assert re.fullmatch(known, done.stderr)


@pytest.mark.slow
def test_the_table_says_what_passed(tmp_path: Path) -> None:
    done = contract("onnxruntime", MLMS_CACHE=str(tmp_path))
    row = r"^onnxruntime +1\.31\.1 .* [1-9]\d* passed, 0 failed, \d skipped$"
    assert re.search(row, done.stdout, re.MULTILINE), done.stdout
    assert done.returncode == 0


@pytest.mark.slow
def test_a_run_in_which_no_test_passes_is_a_failure(tmp_path: Path) -> None:
    options = "--deselect tests -p no:cacheprovider"
    done = contract("onnxruntime", MLMS_CACHE=str(tmp_path), PYTEST_ADDOPTS=options)
    assert done.returncode == 1
    assert "the contract doesn't hold" in done.stdout
