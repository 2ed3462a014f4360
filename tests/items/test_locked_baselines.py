"""Upgrades against a lock file, as pytest items."""

from __future__ import annotations

import pytest

from tests.support.project import Project


@pytest.fixture
def unlocked(project: Project) -> Project:
    """A project whose lock file has no item."""
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    (project.path / "mlms.lock").write_text("format = 1\n")
    return project


def test_an_item_that_is_not_locked_is_skipped_with_a_warning(unlocked: Project) -> None:
    result = unlocked.run("--mlms-against=lock", "-rs")
    result.assert_outcomes(skipped=1, warnings=1)
    text = "onnxruntime on cpu is not locked in mlms.lock; run it without --mlms-against"
    result.stdout.fnmatch_lines([f"*MlmsNotLocked: digits-cnn onnxruntime-vs-lock-cpu-b8: {text}*"])
    assert unlocked.items()[0]["against"]["name"] == "lock"


def test_an_item_that_is_not_locked_fails_under_strict(unlocked: Project) -> None:
    result = unlocked.run("--mlms-against=lock", "--mlms-strict")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*: onnxruntime on cpu is not locked in mlms.lock; run it *"])


def test_a_damaged_lock_file_is_an_error_of_usage(unlocked: Project) -> None:
    (unlocked.path / "mlms.lock").write_text("format = 1\n=======\n")
    result = unlocked.run("--mlms-against=lock")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*mlms.lock:2: has a conflict of a merge; *"])
