"""The software of items' lines, and its digest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.keep.history.stacks import Software, canonical_name, software_of
from tests.support.histories import item_line

NAMES = st.sampled_from(["numpy", "onnxruntime", "protobuf", "flatbuffers"])
VERSIONS = st.from_regex(r"[0-9]\.[0-9]{1,2}", fullmatch=True)
PACKAGES = st.dictionaries(NAMES, VERSIONS, min_size=1)


def line_with(*packages: str, **fields: Any) -> dict[str, Any]:
    launch = {"command": ["python"], "lock": [], "packages": list(packages)}
    return item_line(0, launch=launch, **fields)


def software(packages: dict[str, str], **fields: Any) -> Software:
    lines = [f"{name}=={version}" for name, version in packages.items()]
    return software_of(line_with(*lines, versions={}, **fields))


def test_the_lock_of_a_made_environment_is_the_software() -> None:
    found = software_of(item_line(0))
    assert found.packages == {"numpy": "2.4.6", "onnxruntime": "1.32.0"}
    assert (found.framework, found.python, found.driver) == ("onnxruntime", "3.11.7", None)


def test_versions_of_the_predictor_are_added_to_the_packages() -> None:
    line = line_with("torch==2.1.0", versions={"pytorch": "2.1.0", "cudnn": "8.9", "torch": "2.1"})
    assert software_of(line).packages == {"torch": "2.1.0", "pytorch": "2.1.0", "cudnn": "8.9"}


def test_a_run_without_packages_has_the_versions_of_its_predictor() -> None:
    line = item_line(0, launch={"command": ["python"], "lock": []})
    assert software_of(line).packages == {"numpy": "2.4.6", "onnxruntime": "1.32.0"}


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("Ruamel.Yaml_clib==0.2", "ruamel-yaml-clib", "0.2"),
        ("own==1.2 # editable file:///src/own", "own", "1.2"),
        ("own @ file:///w/own-1.2-py3-none-any.whl", "own", "1.2"),
        ("own @ file:///w/own-1.2%2Bcpu-1-cp311-cp311-linux_x86_64.whl", "own", "1.2+cpu"),
        ("own @ git+https://x/own@ab12", "own", "git+https://x/own@ab12"),
        ("docker.io/library/own:1 @ sha256:ab", "docker.io/library/own:1", "sha256:ab"),
    ],
)
def test_each_form_of_an_exact_package_has_a_name_and_a_version(
    text: str, name: str, version: str
) -> None:
    assert software_of(line_with(text, versions={})).packages == {name: version}


@given(PACKAGES, st.randoms())
def test_the_order_of_packages_does_not_change_the_digest(
    packages: dict[str, str], random: Any
) -> None:
    items = list(packages.items())
    random.shuffle(items)
    assert software(dict(items)).lock_sha256 == software(packages).lock_sha256


@given(PACKAGES, PACKAGES)
def test_stacks_share_a_digest_exactly_if_their_packages_are_the_same(
    some: dict[str, str], others: dict[str, str]
) -> None:
    same_digest = software(some).lock_sha256 == software(others).lock_sha256
    assert same_digest == (some == others)


def test_python_the_framework_and_the_origin_of_a_package_are_in_the_digest() -> None:
    plain = line_with("own==1")
    variants = [
        plain,
        line_with("own==1", python="3.12.1"),
        line_with("own==1", framework="pytorch"),
        line_with("own==1 # conda py311"),
        line_with("own==1 # editable file:///a"),
    ]
    assert len({software_of(line).lock_sha256 for line in variants}) == len(variants)


def test_the_folder_of_a_local_package_is_not_in_the_digest() -> None:
    one = software_of(line_with("own==1 # editable file:///builds/1/own"))
    other = software_of(line_with("own==1 # editable file:///builds/2/own"))
    assert one.lock_sha256 == other.lock_sha256


def test_the_driver_counts_on_a_gpu_only() -> None:
    machine = {**item_line(0)["machine"], "gpu_driver": "535.104"}
    assert software_of(item_line(0, machine=machine)).driver is None
    assert software_of(item_line(0, machine=machine, device="cuda:0")).driver == "535.104"
    machine["gpus"] = [{"name": "H100", "driver": "550.1"}]
    assert software_of(item_line(0, machine=machine, device="cuda")).driver == "550.1"


def test_names_are_compared_as_indexes_do() -> None:
    assert canonical_name("Zope.Interface__x") == "zope-interface-x"


@pytest.mark.parametrize(
    ("kinds", "are_alike"), [(["A100", "A100"], True), (["A100", "T4"], False)]
)
def test_the_choice_among_like_devices_is_no_other_software(
    kinds: list[str], are_alike: bool
) -> None:
    machine = {**item_line(0)["machine"], "gpus": [{"name": kind} for kind in kinds]}
    found = []
    for number in ("0", "1"):
        variables = {"CUDA_VISIBLE_DEVICES": number, "KMP_BLOCKTIME": "0"}
        launch = {"packages": [], "inherited": variables}
        found.append(software_of(item_line(0, launch=launch, machine=machine)))
    assert (found[0].lock_sha256 == found[1].lock_sha256) == are_alike
    assert found[0].packages["$KMP_BLOCKTIME"] == "0"


def test_long_variables_that_differ_at_their_ends_are_other_software() -> None:
    found = []
    for end in ("a", "b"):
        launch = {"packages": [], "inherited": {"LD_LIBRARY_PATH": "/x:" * 200 + end}}
        found.append(software_of(item_line(0, launch=launch)))
    assert found[0].packages["$LD_LIBRARY_PATH"] != found[1].packages["$LD_LIBRARY_PATH"]
    assert found[0].lock_sha256 != found[1].lock_sha256
