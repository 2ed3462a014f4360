"""stacks.yaml, pyproject.toml, and what the words of --mlms-stack mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from pytest_mlms.agent.registry import find_predictors
from pytest_mlms.errors import ManifestError, StackError
from pytest_mlms.records import Library, Stack
from pytest_mlms.stacks.declared import HERE, _split, choose, declared_stacks, resolve, stacks_for
from pytest_mlms.stacks.schema import load_stacks
from tests.support.project import ROOT

KNOWN = {"onnxruntime", "pytorch", "opencv", "caffe", "theirs"}


def write(folder: Path, text: str, name: str = "stacks.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def faults(path: Path) -> list[str]:
    with pytest.raises(ManifestError) as raised:
        load_stacks(path)
    return [line.partition(f"{path.name}:")[2] for line in str(raised.value).splitlines()]


def test_a_stack_has_all_that_its_file_says(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
mxnet-1.9:
  framework: mxnet
  python: "3.11"
  requirements: [mxnet==1.9.1, "numpy < 2", wheels/own.whl]
  installer: uv
  pip_options: [--no-deps, --find-links=wheels]
  lock: mxnet.lock
  libraries: {libmpi.so.12: {library: libmpi.so.40, package: libopenmpi3}}
  env: {A: "{stack}/b"}
  threads: 2
  cores: [0, 1]
other: {interpreter: venv/bin/python}
named: {interpreter: python3.11}
boxed: {framework: caffe, container: caffe:1.0}
""",
    )
    found = load_stacks(path)
    assert found["mxnet-1.9"] == Stack(
        "mxnet-1.9",
        "mxnet",
        python="3.11",
        requirements=("mxnet==1.9.1", "numpy<2", str(tmp_path / "wheels" / "own.whl")),
        installer="uv",
        options=("--no-deps", f"--find-links={tmp_path / 'wheels'}"),
        lock=tmp_path / "mxnet.lock",
        libraries=(Library("libmpi.so.12", "libmpi.so.40", "libopenmpi3"),),
        env=(("A", "{stack}/b"),),
        threads=2,
        cores=(0, 1),
        place=found["mxnet-1.9"].place,
    )
    assert str(found["mxnet-1.9"].place).endswith("stacks.yaml:2")
    assert found["other"].interpreter == str(tmp_path / "venv/bin/python")
    assert (found["named"].interpreter, found["named"].framework) == ("python3.11", "")
    assert found["boxed"].container == "caffe:1.0"


def test_pyproject_declares_stacks_too_with_their_lines(tmp_path: Path) -> None:
    text = """[project]
name = "x"
[tool.mlms.stacks.one]
framework = "onnxruntime"
requirements = ["onnxruntime==1.30.0"]
[tool.mlms.stacks]
two = {interpreter = "current", threads = 1}
"""
    found = load_stacks(write(tmp_path, text, "pyproject.toml"))
    assert {name: stack.place and stack.place.line for name, stack in found.items()} == {
        "one": 3,
        "two": 7,
    }
    assert found["two"].threads == 1
    wrong = write(tmp_path, text.replace("threads = 1", "threats = 1"), "pyproject.toml")
    assert faults(wrong) == ["7: two: unknown key 'threats'; did you mean 'threads'?"]


@pytest.mark.parametrize("text", ["[project", "[tool.mlms]\nstacks = 3\n", "\x00"])
def test_a_pyproject_that_is_none_is_a_fault(tmp_path: Path, text: str) -> None:
    assert len(faults(write(tmp_path, text, "pyproject.toml"))) == 1


def test_a_pyproject_without_stacks_declares_none(tmp_path: Path) -> None:
    assert load_stacks(write(tmp_path, "[project]\nname = 'x'\n", "pyproject.toml")) == {}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            "{framework: onnxruntime}",
            "has nothing to run in; write 'requirements: […]', 'interpreter: …'",
        ),
        ("{requirements: [six]}", "'framework' is missing; write 'framework: …'"),
        (
            "{framework: a, python: 3.11, requirements: [six]}",
            "found 3.11; write a version in quotes, as in '3.11'",
        ),
        ("{framework: a, requirements: [six], container: b}", "a container has its own packages"),
        (
            "{framework: a, requirements: [six], interpreter: b}",
            "an environment is made with 'python'",
        ),
        (
            "{interpreter: current, lock: x}",
            "'lock' is for an environment; write its 'requirements'",
        ),
        (
            "{framework: a, requirements: ['six = 1']}",
            "'six = 1' is not a requirement; write one as for pip",
        ),
        (
            "{framework: a, requirements: [six], pip_options: [--target=/]}",
            "'--target=/' is not an option that",
        ),
        (
            "{framework: a, requirements: [six], pip_options: [--index-url]}",
            "'--index-url' is not an option that",
        ),
        (
            "{framework: a, requirements: [six], pip_options: [--no-deps=1]}",
            "'--no-deps=1' is not an option that",
        ),
        ("{interpreter: current, threads: 0}", "found 0; write"),
        ("{interpreter: current, cores: [-1]}", "found -1; write"),
        ("{interpreter: current, env: {A: 1}}", "found 1; write text"),
        (
            "{interpreter: current, libraries: {a/b: {library: c, package: d}}}",
            "found 'a/b'; write",
        ),
        ("{interpreter: current, installer: conda}", "'conda' is not known; write one of pip, uv"),
        ("{interpreter: current, nonsense: 1}", "unknown key 'nonsense'; write one of"),
        ("just text", "found 'just text'; write keys and values"),
    ],
)
def test_a_fault_names_its_line_and_what_to_write(tmp_path: Path, entry: str, says: str) -> None:
    (fault,) = faults(write(tmp_path, f"# a comment\nmine: {entry}\n"))
    assert fault.startswith("2: ")
    assert says in fault


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "all: {interpreter: current}\n'a b': {interpreter: current}\nc: {interpreter: ''}\n",
    )
    assert [fault[:2] for fault in faults(path)] == ["1:", "2:", "3:"]


def test_a_file_that_is_no_mapping_is_a_fault(tmp_path: Path) -> None:
    assert faults(write(tmp_path, "- a\n")) == [
        "1: holds a list, not keys and values; a stack begins with 'name: {framework: …}'"
    ]


def test_a_name_in_two_files_is_a_fault_that_names_both(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, "same: {interpreter: current}")
    with pytest.raises(
        ManifestError, match="stack 'same' is also in .*a/stacks.yaml:1; rename one"
    ):
        declared_stacks(tmp_path / "a", [tmp_path / "b"])
    assert set(declared_stacks(tmp_path / "a", [tmp_path / "b" / ".." / "a"])) == {"here", "same"}


def test_files_between_a_manifest_and_the_root_count_and_those_above_do_not(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "manifests" / "digits"
    folder.mkdir(parents=True)
    for place, name in ((tmp_path, "above"), (folder.parent, "between"), (folder, "beside")):
        write(place, f"{name}: {{interpreter: current}}")
    manifest = write(folder, "", "digits.yaml")
    for named in (manifest, folder):
        assert set(declared_stacks(tmp_path / "root", [named])) == {"here", "between", "beside"}
    assert set(declared_stacks(tmp_path / "elsewhere", [manifest])) == {"here", "beside"}


def test_here_needs_no_declaration_and_may_have_one(tmp_path: Path) -> None:
    assert declared_stacks(tmp_path) == {"here": HERE}
    write(tmp_path, "here: {interpreter: current, threads: 1}")
    assert declared_stacks(tmp_path)["here"].threads == 1


def test_words_mean_stacks_requirements_interpreters_or_all(tmp_path: Path) -> None:
    write(
        tmp_path, "one: {framework: pytorch, requirements: [torch]}\ntwo: {interpreter: current}\n"
    )
    declared = declared_stacks(tmp_path)
    assert [stack.name for stack in choose(["all", "one", "here"], declared, KNOWN)] == [
        "one",
        "two",
        "here",
    ]
    (adhoc,) = choose(["torch==2.13.0, numpy>=1.24,<2,six[extra,more]"], declared, KNOWN)
    assert (adhoc.framework, adhoc.name) == (
        "pytorch",
        "torch==2.13.0,numpy<2,>=1.24,six[extra,more]",
    )
    assert adhoc.requirements == ("torch==2.13.0", "numpy<2,>=1.24", "six[extra,more]")
    assert resolve("opencv-python-headless==4.14.0.94", {}, KNOWN).framework == "opencv"
    assert resolve("theirs>=2", {}, KNOWN).framework == "theirs"
    assert resolve("./venv/bin/python", {}, KNOWN).interpreter == str(
        Path.cwd() / "venv/bin/python"
    )


def test_an_ad_hoc_stack_gets_the_numpy_that_agents_need_and_keeps_the_name_that_was_written() -> (
    None
):
    stack = resolve("torch==2.13.0", {}, KNOWN)
    assert (stack.name, stack.requirements) == ("torch==2.13.0", ("torch==2.13.0", "numpy"))
    assert resolve("torch==2.13.0,NumPy<2", {}, KNOWN).requirements == ("torch==2.13.0", "NumPy<2")


@pytest.mark.parametrize("word", ["tow", "six==1", "==1", "", "a b c"])
def test_an_unknown_word_lists_what_there_is(tmp_path: Path, word: str) -> None:
    write(tmp_path, "one: {interpreter: current}\ntwo: {interpreter: current}\n")
    with pytest.raises(
        StackError, match=r"--mlms-stack: .* is neither a stack nor a requirement.*(one, two|'two')"
    ):
        choose([word], declared_stacks(tmp_path), KNOWN)


def test_all_of_nothing_is_an_error() -> None:
    with pytest.raises(StackError, match=r"no stack is declared; write a stacks\.yaml"):
        choose(["all"], {"here": HERE}, KNOWN)


def test_a_stack_for_a_framework_without_predictor_is_an_error_once_it_is_chosen(
    tmp_path: Path,
) -> None:
    write(
        tmp_path, "fine: {interpreter: current}\nodd: {framework: pytroch, requirements: [six]}\n"
    )
    declared = declared_stacks(tmp_path)
    assert choose(["fine"], declared, KNOWN)
    with pytest.raises(
        StackError, match=r"stacks\.yaml:2: no predictor for 'pytroch'; did you mean 'pytorch'"
    ):
        choose(["odd"], declared, KNOWN)


def test_without_a_choice_it_is_onnxruntime_here_or_everything_here() -> None:
    assert [stack.label for stack in stacks_for("onnxruntime", [], {"onnxruntime", "caffe"})] == [
        "onnxruntime"
    ]
    assert stacks_for("caffe", [], {"onnxruntime", "caffe"}) == []
    assert [stack.label for stack in stacks_for("caffe", [], {"caffe"})] == ["caffe"]


def test_a_chosen_stack_runs_its_own_framework_and_an_interpreter_all_of_them() -> None:
    own, open_ = Stack("mine", "caffe", requirements=("x",)), Stack("python", "", interpreter="/p")
    assert [stack.label for stack in stacks_for("caffe", [own, open_], {"caffe"})] == [
        "mine",
        "python-caffe",
    ]
    assert [stack.label for stack in stacks_for("pytorch", [own, open_], {"pytorch"})] == [
        "python-pytorch"
    ]


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}(\[[a-z]{1,3}(,[a-z]{1,3})?\])?", fullmatch=True)
VERSIONS = st.lists(st.from_regex(r"(==|>=|<|!=|~=)[0-9]\.[0-9]", fullmatch=True), max_size=3).map(
    ",".join
)


@given(st.lists(st.tuples(NAMES, VERSIONS).map("".join), min_size=1, max_size=4))
def test_requirements_joined_by_commas_are_the_same_requirements(parts: list[str]) -> None:
    assert list(map(Requirement, _split(",".join(parts)))) == list(map(Requirement, parts))


def test_the_shipped_stacks_are_one_a_framework() -> None:
    stacks = load_stacks(ROOT / "manifests" / "stacks.yaml")
    assert all(name == stack.framework and stack.requirements for name, stack in stacks.items())
    there = set(find_predictors()) & set(stacks)
    assert len(there) >= 5
