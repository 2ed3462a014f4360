"""A plain loop over a model: ``PYTHON ci/known_bare.py FRAMEWORK MODEL BATCH [HIGHEST]``.

The truth of cases whose kernels depend on the processor. ci/known_regressions.py runs it with the
interpreters of both stacks, in turns. Prints the mean seconds of a call. An input of integers has
values from 0 to HIGHEST. A process takes eight inputs in turn, as predictors of branches learn one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

INPUTS = 8
WARM_UP = 300
CALLS = 1500


def onnxruntime(model: str, batch: int, highest: int) -> list[Callable[[], Any]]:
    """Return a call for each input."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    source = session.get_inputs()[0]
    shape = [batch, *[size if isinstance(size, int) else 1 for size in source.shape[1:]]]
    rng = np.random.default_rng(1)

    def call() -> Callable[[], Any]:
        values = rng.integers(0, highest + 1, shape) if highest else rng.standard_normal(shape)
        is_whole = source.type == "tensor(int64)"
        array = values.astype(np.int64 if is_whole else np.float32)
        return lambda: session.run(None, {source.name: array})

    return [call() for _ in range(INPUTS)]


def jax(model: str, batch: int, highest: int) -> list[Callable[[], Any]]:
    """See onnxruntime; the shape is the file's."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    from jax import export

    with open(model, "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    compiled = jax.jit(exported.call)
    rng = np.random.default_rng(1)

    def call() -> Callable[[], Any]:
        drawn = [rng.standard_normal(one.shape).astype(one.dtype) for one in exported.in_avals]
        args, named = jax.tree.unflatten(exported.in_tree, drawn)
        return lambda: [np.asarray(one) for one in jax.tree.leaves(compiled(*args, **named))]

    return [call() for _ in range(INPUTS)]


def main(framework: str, model: str, batch: str, highest: str = "0") -> None:
    """Print the mean seconds of a call, on one core, as a side of one thread has."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    calls = {"onnxruntime": onnxruntime, "jax": jax}[framework](model, int(batch), int(highest))
    for number in range(WARM_UP):
        calls[number % INPUTS]()
    began = time.perf_counter()
    for number in range(CALLS):
        calls[number % INPUTS]()
    print((time.perf_counter() - began) / CALLS)


if __name__ == "__main__":
    main(*sys.argv[1:])
