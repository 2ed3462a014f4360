"""What a PyTorch model is made of: run once on tensors without data, every operator written down.

FLOPs are torch.utils.flop_counter's; see pytorch.py for which layers those are.
"""

import contextlib
import re

import torch
from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._pytorch_layers import watch
from mlms_predictors._run.steps import watched_by
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

_OPAQUE = re.compile(
    "attention|gru|lstm|mkldnn|rnn"
)  # computes in a kernel of its own, maybe without a formula


def structure(loaded, shapes):
    """Return the Structure of a loaded model for inputs of these shapes."""
    ledger = _Ledger()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        tensors = [_empty(tensor, shapes[tensor.name], loaded.device) for tensor in loaded.inputs]
        inputs = [ledger.name(tensor) for tensor in tensors]
        stack.enter_context(ledger.counter)
        stack.enter_context(ledger)
        layers, result = _run(loaded, tensors, ledger)
    outputs = [ledger.name(tensor) for tensor in _tensors(result)]
    counter = "FlopCounterMode of PyTorch %s" % torch.__version__
    return Structure(layers, ledger.tensors, inputs, outputs, counter)


def _empty(tensor, shape, device):
    return torch.empty(shape, dtype=getattr(torch, tensor.dtype), device=device)


def _run(loaded, tensors, ledger):
    """Return the layers, and what the model returns.

    Operators between layers are layers of their own.
    """
    if loaded.model.kind == "script":
        result = loaded.model.module(*tensors)
        return [layer for part in ledger.parts + [ledger.part] for layer in part], result
    results = []
    with watched_by(ledger.cut):
        seen = watch(loaded, tensors, lambda output: len(ledger.parts) - 1, results.append)[2]
    ledger.cut()
    named = {layer.noted: layer for layer in seen}
    layers = []
    for number, part in enumerate(ledger.parts):
        if number in named and part:
            layers.append(_merged(named[number], part))
        else:
            layers += part
    return layers, results


def _merged(seen, part):
    """Return the operators of a layer as one; what they leave to each other is nobody else's."""
    counts, made, reads = [one.flops for one in part], set(), []
    for one in part:
        reads += [name for name in one.reads if name not in made]
        made.update(one.writes)
    return Operation(
        seen.name,
        seen.type,
        None if None in counts else sum(counts),
        reads,
        [name for one in part[::-1] for name in one.writes],
    )


class _Ledger(TorchDispatchMode):
    """Writes down each operator that runs, in parts that ``cut`` ends."""

    def __init__(self):
        super().__init__()
        self.counter = FlopCounterMode(display=False)
        self.tensors, self.parts, self.part = [], [], []
        self._names, self._alive, self._count = {}, [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = self.counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        flops = self.counter.get_total_flops() - before
        read, written = _tensors((args, kwargs)), _tensors(result)
        if written:
            kind = func._schema.name.replace("::", ".")
            opaque = not flops and (
                func.namespace not in ("aten", "prims", "prim") or _OPAQUE.search(kind)
            )
            name = "%s_%d" % (kind.split(".")[1].lstrip("_"), self._count)
            self._count += 1
            names = [[self.name(tensor) for tensor in tensors] for tensors in (read, written)]
            self.part.append(Operation(name, kind, None if opaque else flops, *names))
        return result

    def cut(self):
        """End a part: the operators since the last call are one."""
        self.parts.append(self.part)
        self.part = []

    def name(self, tensor):
        """Return a tensor's name, one for as long as the ledger lives, for which it keeps the
        tensor.
        """
        if id(tensor) not in self._names:
            self._alive.append(tensor)
            self._names[id(tensor)] = name = "t%d" % len(self._alive)
            self.tensors.append(
                Tensor(name, str(tensor.dtype).replace("torch.", ""), _shape(tensor))
            )
        return self._names[id(tensor)]


def _shape(tensor):
    return tuple(size if isinstance(size, int) else None for size in tensor.shape)


def _tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
