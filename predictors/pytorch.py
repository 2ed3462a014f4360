"""PyTorch: ``graph`` is a torch.export .pt2, a TorchScript .pt, or a .py file with a module.

A .py file needs a state dict as ``weights``.

Versions: 2.6 and later; tested with 2.13.

Devices: cpu, and cuda:N as torch.cuda counts them.

Synchronises: outputs are copied to host memory. For layers torch.cuda.synchronize is called before
and after each. Instances beside the first one have a stream each, which is that of their
thread; the first one uses the default stream.

Options: ``mode``: eager (the default), or compile, reduce-overhead or max-autotune by
torch.compile. ``inputs`` and ``outputs`` declare the signature of TorchScript and modules, in the
order of the call: ``image float32[?,1,8,8]; mask int64[?]``. ``class``, and ``arguments`` as JSON,
are for a .py file. That is code, and needs ``--mlms-allow-code``. ``tf32``: whether a GPU may use
TF32. ``cuda_graph``: whether a call of an eager model on a GPU is one launch of a CUDA graph.
``compile_backend``, ``compile_dynamic`` and ``compile_fullgraph`` are arguments of
torch.compile, ``inductor.NAME`` settings of inductor. ``matmul_precision``: highest, high or
medium. The others set the flags of PyTorch that are named so; those of cudnn, mkldnn and sdp are of
torch.backends.

Layer times: for a .pt2 each operator of its graph, as torch.fx.Interpreter runs it. For a module
its innermost modules, by forward hooks. For TorchScript and compiled models the operators in
torch.profiler that no other operator called; on a GPU one takes as long as its kernels, and those
of inductor and of CUDA graphs are layers, too, which on a CPU are not seen. Inner outputs: the same
operators and modules; for TorchScript the tensors of its frozen graph.
"""

import functools
import os
import statistics
import threading
import time
from typing import Any, Dict, List, NamedTuple

import numpy
import torch
from mlms_predictors import (
    Arrays,
    Call,
    CountedBytes,
    Devices,
    EventTimes,
    InnerOutputs,
    Layer,
    Load,
    Loaded,
    Outputs,
    Profile,
    Shapes,
    Structure,
    Versions,
)
from mlms_predictors._pytorch_files import read_model
from mlms_predictors._pytorch_layers import inner_of_script, profiled, run_by_layer
from mlms_predictors._run.checks import in_order, read_tensors, refuse_unknown
from mlms_predictors._run.gpus import gpu_devices
from mlms_predictors._run.options import within
from mlms_predictors._run.protocol import KEPT_STATE
from torch.torch_version import TorchVersion

OPTIONS = {
    "mode": ("eager", "compile", "reduce-overhead", "max-autotune"),
    "inputs": "text",
    "outputs": "text",
    "class": "text",
    "arguments": "text",
    "tf32": "bool",
    "matmul_precision": ("highest", "high", "medium"),
    "cuda_graph": "bool",
    "compile_backend": "text",
    "compile_dynamic": "bool",
    "compile_fullgraph": "bool",
    "inductor.*": "any",
    "inter_op_threads": "int",
    "deterministic": "bool",
    "flush_denormal": "bool",
    "cudnn": "bool",
    "cudnn_benchmark": "bool",
    "cudnn_deterministic": "bool",
    "mkldnn": "bool",
    "quantized_engine": "text",
    "flash_sdp": "bool",
    "math_sdp": "bool",
    "mem_efficient_sdp": "bool",
}
CACHES = {
    "env": {
        "TORCHINDUCTOR_CACHE_DIR": "{caches}/inductor",
        "TRITON_CACHE_DIR": "{caches}/triton",
    }
}
_MODES = {
    "compile": "default",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
}


_OBSERVED = 4  # calls of a model, which tell up to three buffers that take turns
_OBSERVED_LARGE = 2  # where what they return would take much memory
_LARGE = 64 << 20  # bytes
_TIMED_BY_EVENTS = 5  # calls, or as many as begin within these seconds
_EVENTS_SECONDS = 0.2
_BEFORE_CAPTURE = 3  # calls, as PyTorch's documentation has it
_HEAD_STARTS = (1 << 18, 1 << 21, 1 << 24, 1 << 27)  # cycles of a GPU: 0.1 ms to 0.1 s
_CYCLE = 0.5e-9  # seconds
_OF_PROFILES = {"DISABLE_CUPTI_LAZY_REINIT": "1", "TEARDOWN_CUPTI": "0"}
"""Variables without which torch.profiler may crash the second time that it sees CUDA graphs, before
CUDA 12.6. It sets them itself only where inductor's own setting asks for graphs."""


class _Model(NamedTuple):
    """A model that ``call`` runs; ``module`` is what it was made of.

    ``kind`` is that of the files: export, script or module. ``events`` are two of CUDA's, around
    the last call on a GPU. ``habits`` are what was seen of it on the CPU. ``most`` are the outputs
    that the options name, None where they name none.
    """

    call: Any
    module: Any
    kind: str
    events: Any
    habits: "_Habits"
    most: Any


class _Habits:
    """A model's use of memory that it shares on the CPU, as its first calls show.

    ``writes``: it changes its inputs. ``keeps``: it returns the same memory again, as buffers that
    take turns. ``unseen`` are the calls that are still to be observed; until then ``held`` has the
    outputs of those before.
    """

    def __init__(self):
        self.unseen = _OBSERVED
        self.writes = False
        self.keeps = False
        self.held = []

    def observe(self, run, tensors):
        """Make one of the first calls; return what may be kept of its outputs."""
        given = [tensor.clone() for tensor in tensors]
        outputs = list(run(given))
        if not all(map(_same_bytes, given, tensors)):
            self.writes = True
        inputs = set(map(_memory, given))
        memory = set(map(_memory, outputs)) - inputs
        if memory & set(map(_memory, self.held)):
            self.keeps = True
        if sum(each.numel() * each.element_size() for each in outputs) > _LARGE:
            self.unseen = min(self.unseen, _OBSERVED_LARGE)
        self.unseen -= 1
        self.held = self.held + outputs if self.unseen else []
        return [tensor.clone() for tensor in outputs]


class _Graphs:
    """A module whose calls on a GPU are launches of CUDA graphs, one for the shapes of each call.

    A graph reads and writes where it was captured, so inputs are copied there.
    """

    _capturing = threading.Lock()

    def __init__(self, module):
        self._module = module
        self._captured = {}

    def __call__(self, *tensors):
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._captured:
            with self._capturing, torch.cuda.device(tensors[0].device):
                self._captured[shapes] = self._capture(tensors)
        graph, inputs, result = self._captured[shapes]
        for target, source in zip(inputs, tensors):
            target.copy_(source)
        graph.replay()
        return result

    def _capture(self, tensors):
        """Capture a call, after calls on the same stream in which libraries choose kernels."""
        inputs = [tensor.clone() for tensor in tensors]
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_BEFORE_CAPTURE):
                self._module(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = self._module(*inputs)
        return graph, inputs, result


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    found = {"pytorch": torch.__version__, "numpy": numpy.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu", *gpu_devices(torch.cuda.device_count())]


def load(request: Load) -> Loaded:
    """Load a model for inference.

    Raises RuntimeError where it can't be had as asked, or would run code.
    """
    options = refuse_unknown(request.options, OPTIONS)
    if request.device != "cpu" and threading.current_thread() is not threading.main_thread():
        torch.cuda.set_stream(torch.cuda.Stream(request.device))  # that of this thread alone
    mode = options.get("mode", "eager")
    _configure(request)
    if request.device != "cpu" and torch.cuda.is_initialized():  # by a model before this one
        torch.cuda.reset_peak_memory_stats(request.device)
    read = read_model(request, torch.device(request.device))
    call = read.module
    if mode != "eager":
        call = _compiled(read, options)
    if options.get("cuda_graph"):
        if mode != "eager" or request.device == "cpu":
            advice = "write mode: reduce-overhead for a compiled model, and leave it out on the CPU"
            raise ValueError("cuda_graph is for mode eager on a GPU; " + advice)
        call = _Graphs(read.module)
    device = _device_of(read.module, request.device)
    inputs = read.inputs
    outputs = read.outputs
    most = None
    if "inputs" in options:
        inputs = read_tensors(options["inputs"])
    if "outputs" in options:
        outputs = read_tensors(options["outputs"])
        most = len(outputs)
    model = _Model(call, read.module, read.kind, _events(device), _Habits(), most)
    facts = {KEPT_STATE: ", ".join(read.states)} if read.states else None
    threads = torch.get_num_threads()
    return Loaded(model, device, threads, inputs, outputs, device_facts=facts)


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop.

    On the CPU the model has the arrays themselves, and the outputs are its own, unless its first
    calls show that it changes the former or returns the same memory again.
    """
    tensors = _tensors(loaded, arrays)
    names = [tensor.name for tensor in loaded.outputs]
    flat = functools.partial(_flat, names=names, most=loaded.model.most)
    if loaded.device != "cpu":
        return lambda: [out.cpu().numpy() for out in flat(_between_events(loaded, tensors))]
    model = loaded.model.call
    habits = loaded.model.habits

    def call():
        if habits.unseen:
            outputs = habits.observe(lambda given: flat(model(*given)), tensors)
        elif habits.writes:
            outputs = flat(model(*[tensor.clone() for tensor in tensors]))
        else:
            outputs = flat(model(*tensors))
        if habits.keeps:
            return [out.clone().numpy() for out in outputs]
        return [out.numpy() for out in outputs]

    return call


def device_seconds(loaded: Loaded) -> float:
    """Return the seconds of the last call on the GPU, between an event before and one after it.

    They do not include the copies.
    """
    before, after = loaded.model.events
    after.synchronize()
    milliseconds = before.elapsed_time(after)
    return milliseconds * 1e-3


def event_times(loaded: Loaded, arrays: Arrays) -> EventTimes:
    """Return the seconds between the events of a call: by itself, and with a head start.

    Launches that are slower than the kernels are in the former. For the latter a kernel spins
    meanwhile; it is None where launches wait for the GPU, or for room among those that it has.
    """
    tensors = _tensors(loaded, arrays)
    alone = _seconds_between_events(loaded, tensors)
    if not hasattr(torch.cuda, "_sleep"):
        return alone, None
    # One that is short beside the call is likely over before the last launch.
    starts = [each for each in _HEAD_STARTS if each * _CYCLE > alone / 4] or _HEAD_STARTS[-1:]
    tries = (_seconds_between_events(loaded, tensors, start) for start in starts)
    return alone, next(filter(None, tries), None)


def device_memory(loaded: Loaded) -> CountedBytes:
    """Return the peak of what PyTorch's pool took from the GPU, whether tensors used it or not."""
    if loaded.device == "cpu":
        return {}
    return {"torch.cuda.max_memory_reserved": torch.cuda.max_memory_reserved(loaded.device)}


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch, the second time, and return when each layer ran."""
    loaded.model.call(*_moved(_tensors(loaded, arrays), loaded.device))
    tensors = _moved(_tensors(loaded, arrays), loaded.device)
    if _is_profiled(loaded):
        return profiled(loaded, tensors)
    run = run_by_layer(loaded, tensors, _size_and_shape)
    found = []
    for name, kind, start, end, (size, shape) in run.layers:
        found.append(Layer(name, kind, start, end, size, shape))
    return Profile(run.start, run.end, found)


def takes_cupti(loaded: Loaded) -> bool:
    """Return whether layers are read by CUPTI: on a GPU torch.profiler does."""
    return loaded.device != "cpu" and _is_profiled(loaded)


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch and return what each layer gave; layers that give no tensor are left out."""
    tensors = _moved(_tensors(loaded, arrays), loaded.device)
    if loaded.model.kind == "script":
        return inner_of_script(loaded.model.module, tensors, _to_host)
    run = run_by_layer(loaded, tensors, _to_host)
    found = []
    for layer in run.layers:
        if layer.observed is not None:
            found.append((layer.name, layer.observed))
    return found


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the model as a graph, for inputs of these shapes; nothing is computed."""
    from mlms_predictors._pytorch_structure import structure as describe

    return describe(loaded, shapes)


def close(loaded: Loaded) -> None:
    """Free the GPU's memory that the allocator caches; weights are freed with ``loaded``."""
    if loaded.device != "cpu":
        torch.cuda.empty_cache()


def _is_profiled(loaded):
    """Return whether layers are those of torch.profiler, as they can't be run one by one."""
    return loaded.model.call is not loaded.model.module or loaded.model.kind == "script"


def _configure(request):
    """Apply the settings that PyTorch has for the whole process."""
    torch.set_grad_enabled(False)
    if request.threads:
        torch.set_num_threads(request.threads)
    for name, value in request.options.items():
        if name in _FLAGS:
            _FLAGS[name](value)
    mode = request.options.get("mode")
    has_graphs = request.options.get("cuda_graph") or mode in ("reduce-overhead", "max-autotune")
    if has_graphs and TorchVersion(torch.version.cuda or "13") < "12.6":
        os.environ.update(_OF_PROFILES)


def _set_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


_FLAGS = {
    "tf32": _set_tf32,
    "matmul_precision": torch.set_float32_matmul_precision,
    "inter_op_threads": torch.set_num_interop_threads,
    "deterministic": torch.use_deterministic_algorithms,
    "flush_denormal": torch.set_flush_denormal,
    "cudnn": functools.partial(setattr, torch.backends.cudnn, "enabled"),
    "cudnn_benchmark": functools.partial(setattr, torch.backends.cudnn, "benchmark"),
    "cudnn_deterministic": functools.partial(setattr, torch.backends.cudnn, "deterministic"),
    "mkldnn": functools.partial(setattr, torch.backends.mkldnn, "enabled"),
    "quantized_engine": functools.partial(setattr, torch.backends.quantized, "engine"),
    "flash_sdp": torch.backends.cuda.enable_flash_sdp,
    "math_sdp": torch.backends.cuda.enable_math_sdp,
    "mem_efficient_sdp": torch.backends.cuda.enable_mem_efficient_sdp,
}
"""Options that PyTorch has for the whole process, and how each is set."""


def _compiled(read, options):
    if read.kind == "script":
        advice = "write mode: eager, or export the model as .pt2"
        raise ValueError("torch.compile takes no TorchScript; " + advice)
    own = within("inductor.", options)
    facts: Dict[str, Any] = {"mode": _MODES[options["mode"]]}
    if own:  # torch.compile takes one of them
        from torch._inductor import list_mode_options

        facts = {"options": dict(list_mode_options(facts["mode"]), **own)}
    return torch.compile(
        read.module,
        backend=options.get("compile_backend", "inductor"),
        dynamic=options.get("compile_dynamic"),
        fullgraph=options.get("compile_fullgraph", False),
        **facts,
    )


def _device_of(module, asked):
    """Return the device of the weights, or for a model without weights the one asked for."""
    if not callable(getattr(module, "parameters", None)):
        return asked
    weights = list(module.parameters()) + list(module.buffers())
    if not weights:
        return asked
    device = weights[0].device
    if device.type == "cpu":
        return "cpu"
    return "%s:%d" % (device.type, device.index or 0)


def _events(device):
    """Return the events around a call on a GPU; on the CPU there are none."""
    if device == "cpu":
        return None
    return [torch.cuda.Event(enable_timing=True) for _ in range(2)]


def _between_events(loaded, tensors, head_start=0):
    """Run a call on a GPU between its two events, after it spun for ``head_start`` cycles."""
    before, after = loaded.model.events
    stream = torch.cuda.current_stream(torch.device(loaded.device))
    moved = _moved(tensors, loaded.device)
    if head_start:
        with torch.cuda.device(loaded.device):
            torch.cuda._sleep(head_start)
    before.record(stream)
    result = loaded.model.call(*moved)
    after.record(stream)
    return result


def _seconds_between_events(loaded, tensors, head_start=0):
    """Return the median seconds of a few calls; None where a head start was over too early."""
    timed: List[float] = []
    end = time.monotonic() + _EVENTS_SECONDS
    while not timed or (len(timed) < _TIMED_BY_EVENTS and time.monotonic() < end):
        _between_events(loaded, tensors, head_start)
        if head_start and loaded.model.events[0].query():  # the GPU began before the last launch
            return None
        timed.append(device_seconds(loaded))
    return statistics.median(timed)


def _flat(result, names, most):
    """Return what a model returned as a list in the order of its outputs, ``most`` of them."""
    if isinstance(result, dict):
        try:
            return [result[name] for name in names]
        except KeyError:
            problem = "the model returns a dict of %s" % ", ".join(map(str, result))
            advice = "name its keys by the option outputs=%s" % "; ".join(map(str, result))
            raise ValueError("%s; %s" % (problem, advice)) from None
    return [result] if isinstance(result, torch.Tensor) else result[:most]


def _tensors(loaded, arrays):
    """Return tensors on the memory of the arrays, in the order of the call."""
    return [torch.from_numpy(array) for array in in_order(loaded.inputs, arrays)]


def _moved(tensors, device):
    """Return copies on a device, which a model may change."""
    return [tensor.to(device, copy=True) for tensor in tensors]


def _memory(tensor):
    """Return where the memory of a tensor begins."""
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _same_bytes(one, other):
    """Return whether tensors of a shape and type are equal to the last bit, NaN too."""
    return one.numpy().tobytes() == other.numpy().tobytes()


def _size_and_shape(output):
    """Return the bytes of a layer's outputs and the shape of the first, None where it has none."""
    outputs = output if isinstance(output, (tuple, list)) else [output]
    tensors = [value for value in outputs if isinstance(value, torch.Tensor)]
    if not tensors:
        return None, None
    size = sum(tensor.nbytes for tensor in tensors)
    return size, tuple(tensors[0].shape)


def _to_host(output):
    """Return a layer's first output as an array, copied as a later layer may write in place."""
    first = output
    if isinstance(output, (tuple, list)) and output:
        first = output[0]
    if not isinstance(first, torch.Tensor):
        return None
    return first.detach().cpu().numpy().copy()
