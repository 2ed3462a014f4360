"""CNTK beside the contract: its nodes as layers, and threads that stay once something ran."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.measure.agent.process import Refused
from tests.support.frameworks import (
    FIRST_BYTES,
    FIRST_SHAPE,
    Framework,
    assert_close,
    in_its_stack,
    reference,
    stack_launch,
)
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn.model"


@pytest.fixture
def cntk(tmp_path: Path) -> Iterator[Framework]:
    """A fresh agent each: CNTK keeps its threads once something ran."""
    framework = in_its_stack("cntk", tmp_path / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_its_nodes(cntk: Framework) -> None:
    cntk.load(GRAPH)
    cntk.check()
    layers = cntk.layers()
    inner = cntk.inner()
    assert [layer.name for layer in layers] == list(inner)
    first = layers[0]
    assert first.type == "Convolution"
    assert (first.bytes, first.shape) == (FIRST_BYTES, FIRST_SHAPE)
    assert_close(inner["logits"], reference())


USER_FUNCTION = """
import cntk
from cntk.ops.functions import UserFunction

class Evil(UserFunction):
    def __init__(self, argument):
        super().__init__([argument])
    def infer_outputs(self):
        given = self.inputs[0]
        return [cntk.output_variable(given.shape, given.dtype, given.dynamic_axes)]
    def serialize(self):
        return {}

Evil.__module__ = "os import path; open(%r, 'w') #"
cntk.relu(cntk.user_function(Evil(cntk.input_variable((1, 8, 8))))).save("evil.model")
"""


def test_a_function_of_the_users_is_refused_and_does_not_run(
    cntk: Framework, tmp_path: Path
) -> None:
    trace = tmp_path / "ran"
    found = stack_launch("cntk")
    script = USER_FUNCTION % str(trace)
    command = [found.command[0], "-c", script]
    subprocess.run(command, cwd=tmp_path, env=dict(found.env), check=True)
    with pytest.raises(Refused, match="is code; allow it with --mlms-allow-code"):
        cntk.load(tmp_path / "evil.model")
    assert not trace.exists()
    with pytest.raises(Refused):  # it is none of this class
        cntk.load(tmp_path / "evil.model", allow_code=True)
    assert trace.exists()


def test_threads_can_change_until_something_ran(cntk: Framework) -> None:
    for threads in (2, 1):
        assert cntk.load(GRAPH, threads=threads)["threads"] == threads
    cntk.check()
    with pytest.raises(Refused, match="CNTK has run with 1 threads here and can't change that"):
        cntk.load(GRAPH, threads=2)
    assert cntk.load(GRAPH, threads=1)["threads"] == 1
    cntk.check()
