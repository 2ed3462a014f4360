"""Variables of stacks beside the threads that a manifest or a stack asks for."""

from __future__ import annotations

import pytest

from tests.support.project import Project


@pytest.fixture
def one_thread(project: Project) -> Project:
    """A project whose manifest asks for one thread."""
    project.edit("evaluate:\n", "evaluate:\n  threads: 1\n")
    return project


def warnings_of(project: Project, *options: str) -> list[str]:
    result = project.run("--collect-only", *options)
    assert result.ret == 0
    return [line for line in result.outlines if "is asked of the framework" in line]


def test_a_variable_that_says_another_number_than_the_manifest_is_warned_of_once(
    one_thread: Project,
) -> None:
    (found,) = warnings_of(one_thread, "--mlms-stack=here+OMP_NUM_THREADS=4")
    assert "manifests/digits.yaml:" in found
    assert "'threads: 1' is asked of the framework, so that OMP_NUM_THREADS=4 of stack" in found
    sides = ("--mlms-stack=here", "--mlms-against=here+OMP_NUM_THREADS=4")
    assert len(warnings_of(one_thread, *sides)) == 1


def test_a_variable_that_says_the_same_or_beside_no_threads_is_no_matter(
    one_thread: Project,
) -> None:
    assert not warnings_of(one_thread, "--mlms-stack=here+OMP_NUM_THREADS=1")
    assert not warnings_of(one_thread, "--mlms-stack=here+KMP_BLOCKTIME=1")
    one_thread.edit("  threads: 1\n", "")
    assert not warnings_of(one_thread, "--mlms-stack=here+OMP_NUM_THREADS=4")


def test_threads_of_a_stack_beside_its_own_variable_are_warned_of_at_the_stack(
    project: Project,
) -> None:
    (project.folder / "stacks.yaml").write_text(
        "two: {framework: onnxruntime, interpreter: current, threads: 2, env: {OMP_NUM_THREADS: '4'}}"
    )
    (found,) = warnings_of(project, "--mlms-stack=two")
    assert "stacks.yaml:1: " in found
