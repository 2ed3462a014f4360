"""Folders of results and caches that can't be written: said before the run begins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.project import Project
from tests.support.small_disk import fill, mount_small_disk


def refused(project: Project, folder: Path, *options: str) -> str:
    """Run pytest; return its error, and check that nothing was measured."""
    return error_of(project, f"--mlms-results={folder}", "-ktest_performance", *options)


def error_of(project: Project, *options: str) -> str:
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "PASSED" not in result.stdout.str()
    text = result.stdout.str() + result.stderr.str()
    (line,) = [line for line in text.splitlines() if "can't be written" in line]
    assert line.endswith("; make room or grant access, or name another folder")
    return line.partition("ERROR: ")[2]


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["alone", "xdist"])
def test_a_full_disk_is_said_before_the_run(
    workers: list[str], project: Project, tmp_path: Path
) -> None:
    with mount_small_disk(tmp_path / "disk") as disk:
        fill(disk)
        error = refused(project, disk, *workers)
        assert error.startswith(f"--mlms-results: {disk} can't be written: No space left on device")
        assert [path.name for path in disk.iterdir()] == ["filler"]


def test_a_disk_that_can_only_be_read_is_said_before_the_run(
    project: Project, tmp_path: Path
) -> None:
    with mount_small_disk(tmp_path / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        error = refused(project, disk / "mine")
        assert "mine can't be written: Read-only file system" in error


def test_a_folder_that_can_not_be_made_is_said_before_the_run(project: Project) -> None:
    (project.path / "pytest.ini").write_text("[pytest]\n")
    assert "can't be written: No such file" in refused(project, Path("/proc/nowhere/results"))


def test_a_name_that_is_too_long_is_said_before_the_run(project: Project) -> None:
    (project.path / "pytest.ini").write_text("[pytest]\n")
    assert "can't be written: File name too long" in refused(project, project.path / ("x" * 300))


def test_tests_that_measure_nothing_need_no_results(project: Project) -> None:
    option = "--mlms-results=/proc/nowhere/results"
    assert project.run(option, "--collect-only", "-q").ret == pytest.ExitCode.OK
    project.pytester.makepyfile("def test_one(): pass")
    result = project.pytester.runpytest_subprocess(option)
    result.assert_outcomes(passed=1)


def test_a_document_that_can_not_be_written_is_said_before_the_run(
    project: Project, tmp_path: Path
) -> None:
    with mount_small_disk(tmp_path / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        result = project.run(f"--mlms-report={disk / 'report.html'}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        expected = (
            f"*--mlms-report: {disk} can't be written; grant access, or name a file elsewhere"
        )
        result.stderr.fnmatch_lines([expected])


def test_a_cache_that_can_not_be_written_is_said_once_where_it_is_needed(
    project: Project, tmp_path: Path
) -> None:
    with mount_small_disk(tmp_path / "disk") as disk:
        cache, ad_hoc = f"--mlms-cache={disk}", "--mlms-stack=onnxruntime==1.31.1"
        fill(disk)
        error = error_of(project, cache, ad_hoc)
        assert error.startswith(f"--mlms-cache: {disk} can't be written: No space left on device")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert "can't be written: Read-only file system" in error_of(project, cache, ad_hoc)
        project.run(cache, "-ktest_accuracy").assert_outcomes(passed=1)
