"""ONNX Runtime's generation with a fault, which the test sets by stack.

Two tokens are equally likely behind 24 others, so that rounding decides between them.

PLANTED_NOISE is the share of each logit's largest one by which it is off, another way in each call.
PLANTED_ROUNDED has logits off by that share, always the same way. PLANTED_POSITION and
PLANTED_FORGETS are tokens: behind them positions are one too far, or the first key is lost.
PLANTED_BITS rounds the weights of values to so many bits. PLANTED_SWAPPED is the place in a
sequence whose token is the second best one, and PLANTED_DROPPED the tokens that an answer lacks.
"""

import functools
import os
import tempfile

import numpy
import onnx
from mlms_predictors import onnxruntime
from mlms_predictors._run.generation import ANSWER, greedy
from mlms_predictors.onnxruntime import devices, predict
from onnx import numpy_helper

assert devices
assert predict


def _given(name):
    return float(os.environ.get("PLANTED_" + name, "0"))


_NOISE = _given("NOISE")
_ROUNDED = _given("ROUNDED")
_POSITION = _given("POSITION")
_FORGETS = _given("FORGETS")
_BITS = int(_given("BITS"))
_SWAPPED = _given("SWAPPED")
_DROPPED = int(_given("DROPPED"))
_random = numpy.random.default_rng()


def versions():
    return dict(onnxruntime.versions(), planted="1.0")


def load(request):
    if _BITS:
        request = request._replace(files={"graph": _with_few_bits(request.files["graph"])})
    return onnxruntime.load(request)


def generate(loaded, arrays, limit):
    step = functools.partial(_step, loaded)
    if ANSWER not in arrays:
        limit -= _DROPPED
    return greedy(step, arrays, loaded.model.generation, limit)


def _step(loaded, given):
    generation = loaded.model.generation
    length = given[generation.mask].shape[1]
    places = given[generation.positions]
    if _POSITION:
        given = {**given, generation.positions: places + (places >= _POSITION)}
    logits, states = onnxruntime._step(loaded, given)
    logits = logits.copy()
    if length == 24:
        best = logits[0, -1].argmax()
        logits[0, -1, best ^ 1] = logits[0, -1, best]
    size = numpy.abs(logits).max()
    if _NOISE:
        logits = logits + _NOISE * size * _random.uniform(-1, 1, logits.shape).astype("f4")
    if _ROUNDED:
        random = numpy.random.default_rng(length)
        logits = logits + _ROUNDED * size * random.uniform(-1, 1, logits.shape).astype("f4")
    if _SWAPPED and length == _SWAPPED:
        logits[0, -1, logits[0, -1].argmax()] = logits.min()
    if _FORGETS and length >= _FORGETS:
        states = {name: _forgetful(value) for name, value in states.items()}
    return logits, states


def _forgetful(value):
    array = value.numpy().copy() if hasattr(value, "numpy") else value.copy()
    array[:, 0] = 0
    return array


def _with_few_bits(path):
    """Return the file of a model, one of whose weights has few bits."""
    model = onnx.load(path)
    for weight in model.graph.initializer:
        if weight.name == "w_value_0":
            values = numpy_helper.to_array(weight)
            step = numpy.abs(values).max() / (2 ** (_BITS - 1) - 1)
            rounded = (numpy.round(values / step) * step).astype(values.dtype)
            weight.CopyFrom(numpy_helper.from_array(rounded, weight.name))
    found = os.path.join(tempfile.mkdtemp(), "few_bits.onnx")
    onnx.save(model, found)
    return found
