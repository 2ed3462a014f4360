"""The structure of a PyTorch model, from one run on tensors without data.

Every operator is recorded. FLOPs are torch.utils.flop_counter's. pytorch.py says which operators
make up a layer.
"""

import contextlib
import re
from typing import Any, Dict, List

import torch
from mlms_predictors import Loaded, Operation, Shapes, Structure, Tensor
from mlms_predictors._pytorch_layers import run_by_layer
from mlms_predictors._run.shapes import shape_of
from mlms_predictors._run.steps import observed_by
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

_OPAQUE = re.compile("attention|gru|lstm|mkldnn|rnn")
"""Operators that compute in a kernel of their own, maybe without a formula."""
_NAMESPACES = ("aten", "prims", "prim")


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the Structure of a loaded model for inputs of these shapes."""
    recorder = _OperatorRecorder()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        tensors = []
        for tensor in loaded.inputs:
            tensors.append(_empty(tensor, shapes[tensor.name], loaded.device))
        inputs = [recorder.name(tensor) for tensor in tensors]
        stack.enter_context(recorder.counter)
        stack.enter_context(recorder)
        if loaded.model.kind == "script":
            result = loaded.model.module(*tensors)
            layers = recorder.recorded()
        else:
            layers, result = _run_layers(loaded, tensors, recorder)
    recorder.add_buffers(loaded.model.module.buffers())
    return Structure(
        layers=layers,
        tensors=recorder.tensors,
        inputs=inputs,
        outputs=[recorder.name(tensor) for tensor in _tensors_in(result)],
        counter="FlopCounterMode of PyTorch %s" % torch.__version__,
        buffers=recorder.buffers,
    )


def _empty(tensor, shape, device):
    dtype = getattr(torch, tensor.dtype)
    return torch.empty(shape, dtype=dtype, device=device)


def _run_layers(loaded, tensors, recorder):
    """Return the layers, and what the model returns.

    Operators between layers are layers of their own.
    """
    with observed_by(recorder.end_part):
        run = run_by_layer(loaded, tensors, recorder.part_before)
    recorder.end_part()
    by_part = {layer.observed: layer for layer in run.layers}
    layers: List[Operation] = []
    for number, operations in enumerate(recorder.parts):
        if operations and number in by_part:
            layer = by_part[number]
            layers.append(_merged(layer.name, layer.type, operations))
        else:
            layers += operations
    return layers, run.result


def _merged(name, kind, operations):
    """Return the operators of a layer as one, without the tensors that are only between them."""
    flops = [operation.flops for operation in operations]
    reads: List[str] = []
    written = set()
    for operation in operations:
        reads += [read for read in operation.reads if read not in written]
        written.update(operation.writes)
    writes: List[str] = []
    for operation in reversed(operations):
        writes += operation.writes
    total = None if None in flops else sum(flops)
    return Operation(name, kind, total, reads, writes)


class _OperatorRecorder(TorchDispatchMode):
    """Records each operator that runs, in parts that ``end_part`` ends."""

    def __init__(self):
        super().__init__()
        self.counter = FlopCounterMode(display=False)
        self.tensors: List[Tensor] = []
        self.parts: List[List[Operation]] = []
        self.buffers: List[str] = []
        self._part: List[Operation] = []
        self._names: Dict[int, str] = {}
        self._alive: List[Any] = []
        self._count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = self.counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        flops = self.counter.get_total_flops() - before
        written = _tensors_in(result)
        if written:
            self._record(func, flops, _tensors_in((args, kwargs)), written)
        return result

    def end_part(self):
        """End a part: the operators since the last call are one."""
        self.parts.append(self._part)
        self._part = []

    def part_before(self, output):
        """Return the number of the part that ended last: the layer that gave this output."""
        return len(self.parts) - 1

    def recorded(self):
        """Return all operators."""
        found = []
        for part in [*self.parts, self._part]:
            found += part
        return found

    def name(self, tensor):
        """Return a tensor's name; the tensor is kept, since Python reuses identities."""
        key = id(tensor)
        if key not in self._names:
            self._alive.append(tensor)
            name = "t%d" % len(self._alive)
            dtype = str(tensor.dtype).replace("torch.", "")
            self._names[key] = name
            self.tensors.append(Tensor(name, dtype, shape_of(tensor.shape)))
        return self._names[key]

    def add_buffers(self, buffers):
        """Add to ``buffers`` those of a module that were read, once all operators are recorded."""
        for buffer in buffers:
            if id(buffer) in self._names:
                self.buffers.append(self._names[id(buffer)])

    def _record(self, func, flops, read, written):
        kind = func._schema.name.replace("::", ".")
        short = kind.split(".")[1].lstrip("_")
        is_known = func.namespace in _NAMESPACES and not _OPAQUE.search(kind)
        operation = Operation(
            name="%s_%d" % (short, self._count),
            type=kind,
            flops=flops if flops or is_known else None,
            reads=[self.name(tensor) for tensor in read],
            writes=[self.name(tensor) for tensor in written],
        )
        self._count += 1
        self._part.append(operation)
        if not operation.reads:  # made by torch.zeros and the like
            self.buffers += operation.writes


def _tensors_in(values):
    leaves = tree_leaves(values)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
