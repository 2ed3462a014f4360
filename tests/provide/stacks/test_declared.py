"""Declared stacks, and the meaning of the values of --mlms-stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from pytest_mlms.core.errors import ManifestError, StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.declared import (
    HERE,
    NOT_COLLECTED,
    _split,
    check_labels,
    choose,
    declared_stacks,
    resolve,
    stacks_for,
)

KNOWN = {"onnxruntime", "pytorch", "opencv", "caffe", "theirs"}


def declare(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "stacks.yaml").write_text(text)


@pytest.fixture
def declared(tmp_path: Path) -> dict[str, Stack]:
    text = "one: {framework: pytorch, requirements: [torch]}\ntwo: {interpreter: current}\n"
    declare(tmp_path, text)
    return declared_stacks(tmp_path)


def test_a_name_in_two_files_is_an_error_that_names_both(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        declare(tmp_path / folder, "same: {interpreter: current}")
    message = r"b/stacks\.yaml:1: stack 'same' is also in .*a/stacks\.yaml:1; rename one"
    with pytest.raises(ManifestError, match=message):
        declared_stacks(tmp_path / "a", [tmp_path / "b"])


def test_a_stack_that_two_folders_below_declare_alike_is_one(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        declare(tmp_path / folder, "same: {interpreter: current}")
    assert set(declared_stacks(tmp_path, [tmp_path])) == {"here", "same"}
    declare(tmp_path / "b", "same: {interpreter: current, env: {A: b}}")
    with pytest.raises(ManifestError, match=r"stack 'same' is also in .*a/stacks\.yaml:1"):
        declared_stacks(tmp_path, [tmp_path])


@pytest.mark.parametrize("name", ["build", "dist", "node_modules", "venv", "x.egg", ".tox", "env"])
def test_files_in_folders_that_pytest_does_not_collect_are_of_others(
    name: str, tmp_path: Path
) -> None:
    declare(tmp_path / name, "stacks: [theirs]")
    if name == "env":
        (tmp_path / name / "pyvenv.cfg").touch()
    assert set(declared_stacks(tmp_path, [tmp_path])) == {"here"}


def test_the_folders_that_are_not_searched_are_those_of_pytest(pytestconfig: pytest.Config) -> None:
    defaults = pytestconfig._parser._inidict["norecursedirs"][2]
    assert set(NOT_COLLECTED) == set(defaults)


@pytest.mark.parametrize("pattern", ["old*", "models/old", "*/models/old"])
def test_folders_in_norecursedirs_are_not_searched_and_others_are(
    pattern: str, tmp_path: Path
) -> None:
    declare(tmp_path / "build", "built: {interpreter: current}")
    (tmp_path / "models").mkdir()
    declare(tmp_path / "models" / "old", "stacks: [theirs]")
    assert set(declared_stacks(tmp_path, [tmp_path], [pattern])) == {"here", "built"}


def test_a_file_that_is_found_twice_is_read_once(tmp_path: Path) -> None:
    declare(tmp_path / "a", "same: {interpreter: current}")
    stacks = declared_stacks(tmp_path / "a", [tmp_path / "b" / ".." / "a"])
    assert set(stacks) == {"here", "same"}


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """A manifest in a folder of a folder, each with a stack that is named after its place."""
    root = tmp_path / "root"
    root.mkdir()
    folder = root / "manifests" / "digits"
    declare(tmp_path, "above: {interpreter: current}")
    declare(folder.parent, "between: {interpreter: current}")
    declare(folder, "beside: {interpreter: current}")
    manifest = folder / "digits.yaml"
    manifest.touch()
    return manifest


def test_files_between_a_manifest_and_the_root_count(nested: Path, tmp_path: Path) -> None:
    expected = {"here", "between", "beside"}
    assert set(declared_stacks(tmp_path / "root", [nested])) == expected
    assert set(declared_stacks(tmp_path / "root", [nested.parent])) == expected


def test_a_manifest_outside_of_the_root_has_the_files_beside_it(
    nested: Path, tmp_path: Path
) -> None:
    assert set(declared_stacks(tmp_path / "elsewhere", [nested])) == {"here", "beside"}


def test_here_needs_no_declaration(tmp_path: Path) -> None:
    assert declared_stacks(tmp_path) == {"here": HERE}


def test_here_may_be_declared_otherwise(tmp_path: Path) -> None:
    declare(tmp_path, "here: {interpreter: current, threads: 1}")
    assert declared_stacks(tmp_path)["here"].threads == 1


def test_all_means_every_declared_stack_and_each_is_chosen_once(
    declared: dict[str, Stack],
) -> None:
    chosen = choose(["all", "one", "here"], declared, KNOWN)
    assert [stack.name for stack in chosen] == ["one", "two", "here"]


def test_all_of_nothing_is_an_error() -> None:
    message = r"--mlms-stack: no stack is declared; write a stacks\.yaml"
    with pytest.raises(StackError, match=message):
        choose(["all"], {"here": HERE}, KNOWN)


def test_several_requirements_are_one_stack_of_the_first_one_s_framework() -> None:
    stack = resolve("torch==2.13.0, numpy>=1.24,<2,six[extra,more]", {}, KNOWN)
    assert stack.framework == "pytorch"
    assert stack.name == "torch==2.13.0,numpy<2,>=1.24,six[extra,more]"
    assert stack.requirements == ("torch==2.13.0", "numpy<2,>=1.24", "six[extra,more]")


@pytest.mark.parametrize(
    "value",
    [
        "torch==2.13.0 numpy<2",
        "  torch == 2.13.0  numpy < 2 ",
        "torch==2.13.0, numpy<2",
        "torch==2.13.0 ,numpy<2",
    ],
)
def test_requirements_are_joined_by_blanks_or_commas(value: str) -> None:
    stack = resolve(value, {}, KNOWN)
    assert stack.name == "torch==2.13.0,numpy<2"
    assert stack.requirements == ("torch==2.13.0", "numpy<2")


def test_blanks_within_a_requirement_do_not_end_it() -> None:
    marker = "os_name == 'posix' or os_name == 'nt'"
    url = "https://a.b/six.zip"
    value = f"torch >=2, <3 six[extra, more] @ {url} numpy; {marker}, attrs"
    stack = resolve(value, {}, KNOWN)
    assert [Requirement(text) for text in stack.requirements] == [
        Requirement("torch>=2,<3"),
        Requirement(f"six[extra,more] @ {url}"),
        Requirement(f"numpy; {marker}"),
        Requirement("attrs"),
    ]


@pytest.mark.parametrize(
    ("requirement", "framework"),
    [
        ("opencv-python-headless==4.14.0.94", "opencv"),
        ("ONNXRuntime_GPU", "onnxruntime"),
        ("theirs>=2", "theirs"),
    ],
)
def test_a_distribution_s_framework_is_known(requirement: str, framework: str) -> None:
    assert resolve(requirement, {}, KNOWN).framework == framework


def test_a_path_is_an_interpreter() -> None:
    stack = resolve("./venv/bin/python", {}, KNOWN)
    assert stack.interpreter == str(Path.cwd() / "venv/bin/python")
    assert stack.framework == ""


@pytest.mark.parametrize("path", ["/opt/py@3.12/bin/python", "py@3.12/bin/python", "./a@b/python"])
def test_a_path_with_an_at_sign_is_an_interpreter(path: str) -> None:
    assert resolve(path, {}, KNOWN).interpreter == str(Path.cwd() / path)


@pytest.mark.parametrize("sign", [" @ ", "@"])
@pytest.mark.parametrize("place", ["https://a.example/source.zip", "file:///source", "./source"])
def test_a_name_with_a_place_is_a_requirement(sign: str, place: str) -> None:
    stack = resolve(f"onnxruntime{sign}{place}", {}, KNOWN)
    assert stack.requirements == (str(Requirement(f"onnxruntime @ {place}")), "numpy")
    beside = resolve(f"onnxruntime==1.30.0 scipy{sign}{place}", {}, KNOWN)
    assert beside.requirements[1] == str(Requirement(f"scipy @ {place}"))


def test_an_ad_hoc_stack_gets_numpy_which_is_not_in_its_name() -> None:
    stack = resolve("torch==2.13.0", {}, KNOWN)
    assert stack.name == "torch==2.13.0"
    assert stack.requirements == ("torch==2.13.0", "numpy")


def test_an_ad_hoc_stack_keeps_its_own_numpy() -> None:
    stack = resolve("torch==2.13.0,NumPy<2", {}, KNOWN)
    assert stack.requirements == ("torch==2.13.0", "NumPy<2")


@pytest.mark.parametrize("value", ["tow", "six==1", "==1", "", "a b c"])
def test_an_unknown_name_is_an_error_that_lists_the_declared_stacks(
    declared: dict[str, Stack], value: str
) -> None:
    message = r"--mlms-stack: .* is neither a stack nor a requirement.*(one, two|'two')"
    with pytest.raises(StackError, match=message):
        choose([value], declared, KNOWN)


def test_a_stack_without_a_predictor_is_an_error_only_if_it_is_chosen(tmp_path: Path) -> None:
    text = "fine: {interpreter: current}\nodd: {framework: pytroch, requirements: [six]}\n"
    declare(tmp_path, text)
    declared = declared_stacks(tmp_path)
    assert choose(["fine"], declared, KNOWN)
    message = r"stacks\.yaml:2: no predictor for 'pytroch'; did you mean 'pytorch'"
    with pytest.raises(StackError, match=message):
        choose(["odd"], declared, KNOWN)


@pytest.mark.parametrize("value", ["onnxruntime=1.30.0", "torch=2.13"])
def test_a_version_with_one_equals_sign_is_an_error(value: str) -> None:
    name, version = value.split("=")
    message = f"{value} would be a label of hosts; for a version write {name}=={version}"
    with pytest.raises(StackError, match=message):
        check_labels([value], KNOWN)


def test_labels_of_hosts_are_no_error() -> None:
    check_labels(["gpu=new-driver", "rack=3"], KNOWN)


@pytest.mark.parametrize("order", [1, -1])
def test_a_stack_called_after_its_framework_runs_it_in_place_of_here(order: int) -> None:
    caffe = Stack("caffe", "caffe", requirements=("caffe",))
    chosen = [caffe, HERE][::order]
    (found,) = stacks_for("caffe", chosen, {"caffe", "onnxruntime"})
    assert found.name == "caffe"
    (found,) = stacks_for("onnxruntime", chosen, {"caffe", "onnxruntime"})
    assert found.name == "here"


def test_a_requirement_runs_beside_the_same_framework_here() -> None:
    older = Stack("onnxruntime==1.20", "onnxruntime", requirements=("onnxruntime==1.20",))
    found = stacks_for("onnxruntime", [HERE, older], {"onnxruntime"})
    assert [stack.label for stack in found] == ["onnxruntime", "onnxruntime==1.20"]


def labels_for(framework: str, chosen: list[Stack], offered: set[str]) -> list[str]:
    return [stack.label for stack in stacks_for(framework, chosen, offered)]


@pytest.mark.parametrize(
    ("framework", "offered", "labels"),
    [
        ("onnxruntime", {"onnxruntime", "caffe"}, ["onnxruntime"]),
        ("caffe", {"onnxruntime", "caffe"}, []),
        ("caffe", {"caffe"}, ["caffe"]),
    ],
)
def test_without_a_choice_it_is_onnxruntime_here_or_every_framework_here(
    framework: str, offered: set[str], labels: list[str]
) -> None:
    assert labels_for(framework, [], offered) == labels


MADE = Stack("mine", "caffe", requirements=("x",))
INTERPRETER = Stack("python", "", interpreter="/p")


def test_a_chosen_stack_runs_its_own_framework_only() -> None:
    assert labels_for("caffe", [MADE], {"caffe"}) == ["mine"]
    assert labels_for("pytorch", [MADE], {"pytorch"}) == []


def test_a_chosen_interpreter_runs_every_framework() -> None:
    assert labels_for("caffe", [INTERPRETER], {"caffe"}) == ["python-caffe"]
    assert labels_for("pytorch", [INTERPRETER], {"pytorch"}) == ["python-pytorch"]


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}(\[[a-z]{1,3}(,[a-z]{1,3})?\])?", fullmatch=True)
VERSION = st.from_regex(r"(==|>=|<|!=|~=)[0-9]\.[0-9]", fullmatch=True)
VERSIONS = st.lists(VERSION, max_size=3).map(",".join)
REQUIREMENTS = st.tuples(NAMES, VERSIONS).map("".join)


@given(st.lists(REQUIREMENTS, min_size=1, max_size=4))
def test_requirements_joined_by_commas_are_the_same_requirements(parts: list[str]) -> None:
    split = [Requirement(part) for part in _split(",".join(parts))]
    assert split == [Requirement(part) for part in parts]


@given(st.lists(REQUIREMENTS, min_size=1, max_size=4))
def test_requirements_joined_by_blanks_are_the_same_requirements(parts: list[str]) -> None:
    split = [Requirement(part) for part in _split(" ".join(parts))]
    assert split == [Requirement(part) for part in parts]
