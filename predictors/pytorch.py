"""PyTorch: ``graph`` is a torch.export .pt2, a TorchScript .pt, or a .py with a module whose state
dict is ``weights``.

Versions: 2.6 and later; tried with 2.13. Devices: cpu, and cuda:N as torch.cuda counts them.
Synchronises: outputs are copied to host memory; for layers torch.cuda.synchronize before and after
each.

Options: ``mode``: eager (the default), or compile, reduce-overhead, max-autotune by torch.compile.
``inputs`` and ``outputs`` say what TorchScript and modules don't, in the order of the call: ``image
float32[?,1,8,8]; mask int64[?]``. ``class``, and ``arguments`` as JSON, are for a .py file, which
is code: it runs where the command line allows that (``--mlms-allow-code``). ``tf32``: whether a GPU
may round to it.

Layer times: for a .pt2 each operator of its graph as torch.fx.Interpreter runs it; for a module its
leaves, by forward hooks; for TorchScript and what is compiled torch.profiler's operators that no
operator called (kernels that inductor wrote are none), on a GPU as long as their kernels took.
Inner outputs: the same operators and leaves; for TorchScript the tensors of its frozen graph.
"""

from typing import Any, NamedTuple

import numpy
import torch
from mlms_predictors import Layer, Loaded, Profile
from mlms_predictors._pytorch_files import read_model
from mlms_predictors._pytorch_layers import inner_of_script, profiled, watch
from mlms_predictors._run.checks import check, read_tensors, refuse_unknown

_OPTIONS = ("mode", "inputs", "outputs", "class", "arguments", "tf32")
_MODES = {
    "eager": None,
    "compile": "default",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
}


class _Model(NamedTuple):
    """``call`` runs it; ``module`` is what it was made of, and ``kind`` that: export, script or
    module.

    ``events`` are two of CUDA's, around the last call on a GPU.
    """

    call: Any
    module: Any
    kind: str
    events: Any


def versions():
    """Return the versions of what computes."""
    found = {"pytorch": torch.__version__, "numpy": numpy.__version__}
    if torch.version.cuda:
        found.update(cuda=torch.version.cuda, cudnn=str(torch.backends.cudnn.version()))
    return found


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"] + ["cuda:%d" % index for index in range(torch.cuda.device_count())]


def load(request):
    """Load a model for inference.

    Raises RuntimeError where it can't be had as asked, or would run code.
    """
    options = refuse_unknown(request.options, _OPTIONS)
    mode = options.get("mode", "eager")
    if mode not in _MODES:
        raise ValueError("mode is %r; write one of %s" % (mode, ", ".join(_MODES)))
    torch.set_grad_enabled(False)
    if request.threads:
        torch.set_num_threads(request.threads)
    if "tf32" in options:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(
            options["tf32"]
        )
    kind, module, inputs, outputs = read_model(request, torch.device(request.device))
    if "inputs" in options:
        inputs = read_tensors(options["inputs"])
    if "outputs" in options:
        outputs = read_tensors(options["outputs"])
    if mode != "eager" and kind == "script":
        raise ValueError(
            "torch.compile takes no TorchScript; write mode: eager, or export the model as .pt2"
        )
    call = module if mode == "eager" else torch.compile(module, mode=_MODES[mode])
    device = _device_of(module, request.device)
    events = None if device == "cpu" else [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    model = _Model(call, module, kind, events)
    return Loaded(model, device, torch.get_num_threads(), inputs, outputs)


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    check(loaded.inputs, arrays)
    tensors = [torch.from_numpy(arrays[tensor.name]) for tensor in loaded.inputs]
    call, names = loaded.model.call, [tensor.name for tensor in loaded.outputs]
    if loaded.device != "cpu":
        return lambda: [out.cpu().numpy() for out in _flat(_between_events(loaded, tensors), names)]
    if len(tensors) == 1:
        only = tensors[0]
        return lambda: [out.numpy() for out in _flat(call(only), names)]
    return lambda: [out.numpy() for out in _flat(call(*tensors), names)]


def device_seconds(loaded):
    """Return how long the last call took on the GPU, from the event before it to that behind.

    The copies aren't in.
    """
    before, after = loaded.model.events
    after.synchronize()
    return before.elapsed_time(after) * 1e-3


def _between_events(loaded, tensors):
    (before, after), stream = (
        loaded.model.events,
        torch.cuda.current_stream(torch.device(loaded.device)),
    )
    moved = _moved(tensors, loaded.device)
    before.record(stream)
    result = loaded.model.call(*moved)
    after.record(stream)
    return result


def layers(loaded, arrays):
    """Run one batch, the second time, and return when each layer ran."""
    tensors = _tensors(loaded, arrays)
    loaded.model.call(*tensors)
    if loaded.model.kind == "script" or loaded.model.call is not loaded.model.module:
        return profiled(loaded, tensors)
    start, end, seen = watch(loaded, tensors, _size)
    return Profile(start, end, [Layer(*layer[:4], *layer.noted) for layer in seen])


def inner(loaded, arrays):
    """Run one batch and return what each layer gave; layers that give no tensor are left out."""
    tensors = _tensors(loaded, arrays)
    if loaded.model.kind == "script":
        return inner_of_script(loaded.model.module, tensors, _to_host)
    seen = watch(loaded, tensors, _to_host)[2]
    return [(layer.name, layer.noted) for layer in seen if layer.noted is not None]


def structure(loaded, shapes):
    """Return the model as a graph, for inputs of these shapes; nothing is computed."""
    from mlms_predictors._pytorch_structure import structure as write_down

    return write_down(loaded, shapes)


def close(loaded):
    """Give back the GPU's memory that the allocator keeps."""
    if loaded.device != "cpu":
        torch.cuda.empty_cache()


def _device_of(module, asked):
    """Return where the weights really are; a model without any is where its inputs are sent."""
    if callable(getattr(module, "parameters", None)):
        for value in list(module.parameters()) + list(module.buffers()):
            return (
                "cpu"
                if value.device.type == "cpu"
                else "%s:%d" % (value.device.type, value.device.index or 0)
            )
    return asked


def _flat(result, names):
    if isinstance(result, dict):
        return [result[name] for name in names]
    return [result] if isinstance(result, torch.Tensor) else result


def _tensors(loaded, arrays):
    check(loaded.inputs, arrays)
    return _moved(
        [torch.from_numpy(arrays[tensor.name]) for tensor in loaded.inputs], loaded.device
    )


def _moved(tensors, device):
    return [tensor.to(device) for tensor in tensors]


def _size(output):
    """Note bytes and shape of a layer's first output."""
    tensors = [
        out
        for out in (output if isinstance(output, (tuple, list)) else [output])
        if _is_tensor(out)
    ]
    total = sum(out.numel() * out.element_size() for out in tensors)
    return (total, tuple(tensors[0].shape)) if tensors else (None, None)


def _to_host(output):
    first = output[0] if isinstance(output, (tuple, list)) and output else output
    return (
        first.detach().cpu().numpy().copy() if _is_tensor(first) else None
    )  # a later layer may write in place


def _is_tensor(value):
    return isinstance(value, torch.Tensor)
