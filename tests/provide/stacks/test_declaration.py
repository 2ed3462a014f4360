"""The keys that declare a stack, read back from a stacks.yaml that has them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.declaration import declaration_of
from pytest_mlms.provide.stacks.schema import load_stacks

STACKS = """
made:
  framework: onnxruntime
  python: "3.11"
  requirements: [onnxruntime==1.30.0, numpy, wheels/own-1.0-py3-none-any.whl]
  installer: uv
  pip_options: [--no-deps, --find-links=wheels]
  lock: made.lock
  env: {MODE: "2", HF_TOKEN: hf_abc}
  env_passthrough: [MY_*]
  libraries: {libmpi.so.1: {library: libmpi.so.40, package: libopenmpi3}}
image: {framework: mxnet, container: "python:3.11", interpreter: python3}
there: {interpreter: bin/python}
own: {framework: onnxruntime, agent: {command: [./agent, --fast]}}
"""


def loaded(folder: Path, text: str) -> dict[str, Stack]:
    path = folder / "stacks.yaml"
    path.write_text(text)
    return load_stacks(path)


def test_what_declares_a_stack_declares_it_again_elsewhere(tmp_path: Path) -> None:
    stacks = loaded(tmp_path, STACKS.replace(", HF_TOKEN: hf_abc", ""))
    entries = {}
    for name, stack in stacks.items():
        entry = declaration_of(stack)
        if stack.framework:
            entry["framework"] = stack.framework
        entries[name] = entry
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = loaded(elsewhere, json.dumps(entries))
    for name, stack in stacks.items():
        assert replace(again[name], place=None) == replace(stack, place=None)


def test_the_value_of_a_secret_is_hidden(tmp_path: Path) -> None:
    declared = declaration_of(loaded(tmp_path, STACKS)["made"])
    assert declared["env"] == {"MODE": "2", "HF_TOKEN": "***"}
    assert "hf_abc" not in json.dumps(declared)
