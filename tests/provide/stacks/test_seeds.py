"""Seeds of real interpreters, and the environments that are copied from them."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from pytest_mlms.provide.stacks.interpreters import probe
from pytest_mlms.provide.stacks.seeds import copy_seed, provide_seed

PYTHON = probe(sys.executable)


def make_environment(folder: Path) -> None:
    venv.create(folder, with_pip=True, symlinks=True)


def make_small(folder: Path) -> None:
    scripts = folder / "bin"
    scripts.mkdir(parents=True)
    (scripts / "pip").write_text(f"#!{scripts}/python\nprint('pip')\n")
    (scripts / "activate").write_text(f"VIRTUAL_ENV={folder}\n")


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.slow
def test_a_copy_has_the_files_of_an_environment_with_pip_and_runs_its_own(tmp_path: Path) -> None:
    seed = provide_seed(PYTHON, "", tmp_path / "seeds", make_environment)
    copy = tmp_path / "copy"
    venv.create(copy, with_pip=False, symlinks=True)
    copy_seed(seed, copy)
    assert files_of(copy) == files_of(seed)
    for command in ([copy / "bin" / "pip"], [copy / "bin" / "python", "-m", "pip"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert str(copy) in done.stdout
    for name in ("pip", "activate"):
        text = (copy / "bin" / name).read_text()
        assert str(copy) in text
        assert str(seed) not in text


def test_a_seed_is_made_once_for_an_interpreter_and_a_pip(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        make_small(folder)

    first = provide_seed(PYTHON, "", tmp_path, make)
    assert provide_seed(PYTHON, "", tmp_path, make) == first
    newer = provide_seed(PYTHON, "pip==24.0", tmp_path, make)
    other = provide_seed(PYTHON._replace(version="3.6.15"), "", tmp_path, make)
    assert len({first, newer, other}) == len(made) == 3
    assert (first / "bin" / "pip").read_text().startswith(f"#!{first}/bin/python")


def test_a_seed_that_could_not_be_made_leaves_nothing_and_is_made_the_next_time(
    tmp_path: Path,
) -> None:
    def fail(folder: Path) -> None:
        make_small(folder)
        raise RuntimeError("no pip here")

    with pytest.raises(RuntimeError, match="no pip here"):
        provide_seed(PYTHON, "", tmp_path, fail)
    assert not any(path.is_dir() for path in tmp_path.iterdir())
    assert (provide_seed(PYTHON, "", tmp_path, make_small) / "bin" / "pip").exists()


def test_files_that_the_environment_has_are_kept(tmp_path: Path) -> None:
    seed = provide_seed(PYTHON, "", tmp_path / "seeds", make_small)
    copy = tmp_path / "copy"
    (copy / "bin").mkdir(parents=True)
    (copy / "bin" / "activate").write_text("its own")
    copy_seed(seed, copy)
    assert (copy / "bin" / "activate").read_text() == "its own"
    assert (copy / "bin" / "pip").read_text().startswith(f"#!{copy}/bin/python")


def test_the_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    seed = provide_seed(PYTHON, "", tmp_path, make_small)
    seed.rename(seed.with_name(f"{seed.name}-1234.new"))
    provide_seed(PYTHON, "", tmp_path, make_small)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {seed.name}
