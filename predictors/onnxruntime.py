"""ONNX Runtime: ``graph`` is an ONNX file. Its inputs and outputs may be texts.

Versions: 1.17 and later.

Devices: cpu, and cuda:N where this build has the CUDA execution provider and the driver lists a
GPU.

Libraries of CUDA that pip installed are loaded from where they are, by 1.21 and later; for earlier
versions name their folders in LD_LIBRARY_PATH.

Synchronises: ``session.run`` returns when its outputs are in host memory.

Options: ``provider``: the default is that of the device. A session without it is refused, and one
whose provider takes none of the model's nodes, which 1.24 and later tell. ``provider.NAME`` are
options of it. ``cuda_graph``: whether a call on a GPU is one launch of a CUDA graph, which is
captured once for the shapes of its inputs, and by TensorRT for one shape; 1.18 and later do so.
``optimization``: all (the default), extended, basic or none. ``tf32``: whether a GPU may use TF32.
``cache``: a folder where TensorRT keeps engines and timings. ``execution_mode``,
``inter_op_threads`` and the others are those of SessionOptions, and ``config.KEY`` its config
entries. ``free_dimension.NAME`` sets a free axis.

Layer times: ONNX Runtime's own profiler in a second session, for its runs from the second one on.
Layers are the nodes that remain after the optimization, inside the profiler's ``model_run``. On a
GPU a node takes as long as its kernels, where this build profiles them (--enable_cuda_profiling);
else it has the time of its launches, each of which is waited for under CUDA_LAUNCH_BLOCKING=1. The
second session uses no CUDA graph, whose launch has no nodes. Inner outputs: a second session, also
without one, whose outputs are those of all nodes of the file.

Generates: greedy tokens of a decoder whose past is inputs and outputs. The past stays where ONNX
Runtime has it (IO binding); the logits are copied to the host.
"""

import contextlib
import functools
import io
import json
import os
import re
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy
import onnxruntime
from mlms_predictors import (
    Arrays,
    Call,
    Devices,
    Generation,
    InnerOutputs,
    Layer,
    Load,
    Loaded,
    Outputs,
    Profile,
    Tensor,
    Token,
    Versions,
)
from mlms_predictors._onnxruntime_graph import with_all_outputs
from mlms_predictors._run.checks import read_list, refuse_code, refuse_unknown
from mlms_predictors._run.generation import greedy
from mlms_predictors._run.gpus import count_gpus, gpu_devices
from mlms_predictors._run.options import within
from mlms_predictors._run.shapes import shape_of
from mlms_predictors._run.timeline import in_queue

OPTIONS = {
    "provider": (
        "cpu",
        "cuda",
        "tensorrt",
        "acl",
        "armnn",
        "coreml",
        "dnnl",
        "nnapi",
        "openvino",
        "qnn",
        "vitisai",
        "webgpu",
        "xnnpack",
    ),
    "provider.*": "any",
    "optimization": ("all", "extended", "basic", "none"),
    "tf32": "bool",
    "cuda_graph": "bool",
    "cache": "text",
    "execution_mode": ("sequential", "parallel"),
    "execution_order": ("default", "priority_based", "memory_efficient"),
    "inter_op_threads": "int",
    "mem_pattern": "bool",
    "mem_reuse": "bool",
    "cpu_mem_arena": "bool",
    "deterministic": "bool",
    "disabled_optimizers": "text",
    "log_severity": "int",
    "config.*": "any",
    "free_dimension.*": "int",
}
CACHES = {"options": {"cache": "{caches}"}}
LAYERS = {"env": {"CUDA_LAUNCH_BLOCKING": "1"}}
_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_TENSORRT = "TensorrtExecutionProvider"
_PROVIDERS = {
    "acl": "ACLExecutionProvider",
    "armnn": "ArmNNExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "cpu": _CPU,
    "cuda": _CUDA,
    "dnnl": "DnnlExecutionProvider",
    "nnapi": "NnapiExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "tensorrt": _TENSORRT,
    "vitisai": "VitisAIExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
}
_OF_GPUS = ("cuda", "tensorrt")
_SESSION = {
    "inter_op_threads": "inter_op_num_threads",
    "mem_pattern": "enable_mem_pattern",
    "mem_reuse": "enable_mem_reuse",
    "cpu_mem_arena": "enable_cpu_mem_arena",
    "deterministic": "use_deterministic_compute",
    "log_severity": "log_severity_level",
}
"""Options, and the attributes of SessionOptions that they set."""
_MODES = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}
_LOADS_CODE = re.compile(r"lib(rary)?_?paths?|custom_op|plugin|backend_path")
"""Names of entries and of providers' options by which a library is loaded."""
_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
_FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"
_RECORDS_PROVIDERS = "session.record_ep_graph_assignment_info"
_DTYPES = {"float": "float32", "double": "float64"}
_KERNEL = "_kernel_time"
"""Suffixes that the profiler adds to the name of a node."""
_MICROSECONDS = 1e6

_Providers = List[Tuple[str, Dict[str, str]]]


class _Node(NamedTuple):
    """An event of the profiler for a node's run, and the seconds of each of its kernels."""

    event: Dict[str, Any]
    kernels: List[float]


class _Model(NamedTuple):
    """A session, the file that it is of, and a call that opens another session.

    That takes a path or a model's bytes, and optionally where to write a profile. ``outputs`` are
    the names of the outputs that are arrays, None if all are: lists and maps are not returned.
    ``graphs`` are CUDA's by the shapes of inputs, None where calls don't use them.
    """

    session: Any
    path: str
    outputs: Optional[List[str]]
    open: Callable[..., Any]
    graphs: Optional[Dict[Any, "_Graph"]]
    generation: Optional[Generation] = None


class _Graph(NamedTuple):
    """A CUDA graph: what runs it, and the values on the GPU that it reads and writes."""

    run: Call
    inputs: Dict[str, Any]
    outputs: List[Any]


class _Session(onnxruntime.InferenceSession):
    """A session without a fallback, neither in calls nor when it is made.

    Where a provider refuses its options or the model, another session would take its place, without
    the options: on CUDA's first GPU, and in 1.18 for any session of CUDA.
    """

    _enable_fallback = property(lambda self: False, lambda self, value: None)


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"onnxruntime": onnxruntime.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    count = 0
    is_for_cuda = getattr(onnxruntime, "cuda_version", "")  # its provider may be a plugin
    if is_for_cuda or _CUDA in onnxruntime.get_available_providers():
        count = count_gpus()
    return ["cpu", *gpu_devices(count)]


def load(request: Load) -> Loaded:
    """Open a session on the device asked for.

    Raises RuntimeError where ONNX Runtime would fall back to another.
    """
    options = refuse_unknown(request.options, OPTIONS)
    for name in options:
        if "." in name and _LOADS_CODE.search(name):
            refuse_code(name, request.allow_code)
    missing = "" if request.device == "cpu" else _load_libraries()
    providers = _providers(request.device, options)
    path = request.files["graph"]
    make = functools.partial(_open, request, providers)
    try:
        session = make(path)
        facts = _check_provider(session, providers[0][0])
    except RuntimeError as error:
        if not missing:
            raise
        raise RuntimeError("%s; %s" % (str(error).strip(), missing)) from error
    threads = session.get_session_options().intra_op_num_threads or None  # 0 is its own choice
    outputs = _tensors(session.get_outputs())
    numbers = [tensor for tensor in outputs if _is_of_numbers(tensor)]
    texts = [tensor for tensor in outputs if tensor.dtype == "string"]
    arrays = numbers + texts
    others = [tensor for tensor in outputs if tensor not in arrays]
    if not arrays:
        found = ", ".join("%s: %s" % (tensor.name, tensor.dtype) for tensor in others)
        advice = "add one to the model"
        if "seq(map(" in found:
            advice = "export its scores as one: to_onnx(model, X, options={'zipmap': False})"
        raise ValueError("no output is an array of numbers or texts (%s); %s" % (found, advice))
    names = None if arrays == outputs else [tensor.name for tensor in arrays]
    graphs: Optional[Dict[Any, _Graph]] = {} if options.get("cuda_graph") else None
    if graphs is not None and request.generation is not None:
        raise ValueError("a CUDA graph has fixed shapes, and a past grows; leave cuda_graph out")
    return Loaded(
        model=_Model(session, path, names, make, graphs, request.generation),
        device=request.device,
        threads=threads,
        inputs=_tensors(session.get_inputs()),
        outputs=arrays + others,
        device_facts=facts,
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    if loaded.model.graphs is not None:
        return _graph_call(loaded, arrays)
    return functools.partial(loaded.model.session.run, loaded.model.outputs, arrays)


def generate(loaded: Loaded, arrays: Arrays, limit: int) -> Iterator[Token]:
    """Yield the greedy tokens after a prompt: ``limit`` of them at most."""
    step = functools.partial(_step, loaded)
    return greedy(step, arrays, loaded.model.generation, limit)


def _step(loaded, given):
    """Run the decoder once; return the logits, and the states by input name."""
    generation = loaded.model.generation
    kind, _, index = loaded.device.partition(":")
    binding = loaded.model.session.io_binding()
    for name, value in given.items():
        is_array = isinstance(value, numpy.ndarray)
        place = onnxruntime.OrtValue.ortvalue_from_numpy(value) if is_array else value
        binding.bind_ortvalue_input(name, place)
    binding.bind_output(generation.logits)
    for output in generation.states.values():
        binding.bind_output(output, kind, int(index or 0))
    loaded.model.session.run_with_iobinding(binding)
    logits, *states = binding.get_outputs()
    return logits.numpy(), dict(zip(generation.states, states))


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch and return when each node ran."""
    return profiles(loaded, arrays, 1)[0]


def profiles(loaded: Loaded, arrays: Arrays, count: int) -> List[Profile]:
    """Run one batch ``count`` times in one session; return when the nodes of each run ran.

    The session is warmed up by one run that is not among them.
    """
    starts = []
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "profile")
        session = loaded.model.open(loaded.model.path, prefix)
        session.run(None, arrays)
        for _ in range(count):
            starts.append(time.perf_counter())
            session.run(None, arrays)
        with open(session.end_profiling()) as file:
            events = json.load(file)
    found = _profiles(events, starts)
    if loaded.device == "cpu" or os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return found
    of_launches = not any(event.get("cat") == "Kernel" for event in events)
    return [profile._replace(of_launches=of_launches) for profile in found]


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch and return what each node gave, by the names of the values in the file."""
    with open(loaded.model.path, "rb") as file:
        model, names = with_all_outputs(file.read())
    outputs = loaded.model.open(model).run(names, arrays)
    found = []
    for name, output in zip(names, outputs):  # others are sequences, maps and texts
        if isinstance(output, numpy.ndarray) and output.dtype != object:
            found.append((name, output))
    return found


def _graph_call(loaded, arrays):
    """Return a call that copies the inputs to where a CUDA graph reads them, and launches it."""
    graphs = loaded.model.graphs
    shapes = tuple(arrays[tensor.name].shape for tensor in loaded.inputs)
    if shapes not in graphs:
        number = len(graphs) + 1
        if loaded.model.session.get_providers()[0] == _TENSORRT:
            number = 0  # the only one that this provider knows, whatever it is asked for
        if graphs and not number:
            advice = "leave out cuda_graph, or call it with one shape"
            raise ValueError("TensorRT's provider captures a graph for one shape; " + advice)
        graphs[shapes] = _graph(loaded, arrays, number)
    graph = graphs[shapes]

    def call():
        for name, value in graph.inputs.items():
            value.update_inplace(arrays[name])
        graph.run()
        return [value.numpy() for value in graph.outputs]

    return call


def _graph(loaded, arrays, number):
    """Return a graph that ONNX Runtime captures when it first runs; ``number`` tells it apart.

    It needs inputs and outputs that stay where they are. A run without it tells their shapes.
    """
    kind, _, index = loaded.device.partition(":")
    place = functools.partial(
        onnxruntime.OrtValue.ortvalue_from_numpy, device_type=kind, device_id=int(index or 0)
    )
    session = loaded.model.session
    names = loaded.model.outputs or [tensor.name for tensor in loaded.outputs]
    outputs = [place(array) for array in session.run(names, arrays, _run_options(-1))]
    inputs = {tensor.name: place(arrays[tensor.name]) for tensor in loaded.inputs}
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in zip(names, outputs):
        binding.bind_ortvalue_output(name, value)
    run = functools.partial(session.run_with_iobinding, binding, _run_options(number))
    return _Graph(run, inputs, outputs)


def _run_options(graph):
    """Return the options of a run by a graph of this number, -1 for none."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph))
    return options


def _load_libraries():
    """Load the libraries of CUDA and cuDNN that pip installed; return what to do about the others.

    Where CUDA's provider is a plugin, it is there once these are loaded.
    """
    if not hasattr(onnxruntime, "preload_dlls"):
        return ""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        onnxruntime.preload_dlls()
    sys.stderr.write(said.getvalue())
    names = ", ".join(re.findall("Failed to load (.+?): ", said.getvalue()))
    advice = "install onnxruntime-gpu[cuda,cudnn], or name their folders in LD_LIBRARY_PATH"
    return names and "these can't be loaded: %s; %s" % (names, advice)


def _check_provider(session, asked):
    """Return on which provider how many nodes run; None for the CPU's, or where it isn't told.

    Raises RuntimeError where the session is without the provider asked for, or no node runs on it.
    """
    used = session.get_providers()[0]
    if used != asked:
        text = "asked for %s, ONNX Runtime would use %s; its log says why"
        raise RuntimeError(text % (asked, used))
    if asked == _CPU or not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    nodes: Dict[str, int] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] = nodes.get(part.ep_name, 0) + len(part.get_nodes())
    told = {"nodes on %s" % name: str(count) for name, count in sorted(nodes.items())}
    if nodes and asked not in nodes:
        found = ", ".join("%s %s" % (count, name) for name, count in told.items())
        raise RuntimeError("%s takes none of the model's nodes: %s" % (asked, found))
    return told


def _open(request, providers, model, profile=None):
    """Open a session of a path or of bytes; ``profile`` is the prefix of a profile's path."""
    options = _session_options(request.options)
    if request.threads:
        options.intra_op_num_threads = request.threads
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    if providers[0][0] != _CPU:
        options.add_session_config_entry(_RECORDS_PROVIDERS, "1")
    if profile or isinstance(model, bytes):
        providers = [(name, _without_graphs(own)) for name, own in providers]
    if isinstance(model, bytes):  # weights beside the file are looked for there still
        folder = os.path.dirname(request.files["graph"])
        options.add_session_config_entry(_FOLDER_OF_WEIGHTS, folder)
    names = read_list(request.options.get("disabled_optimizers", ""))
    facts = {"disabled_optimizers": names} if names else {}
    return _Session(model, options, providers=providers, **facts)


def _session_options(asked):
    """Return SessionOptions with everything that the options ask for."""
    options = onnxruntime.SessionOptions()
    level = _LEVELS[asked.get("optimization", "all")]
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    for name, attribute in _SESSION.items():
        if name in asked:
            if not hasattr(options, attribute):
                raise ValueError("this ONNX Runtime has no option %s; leave it out" % name)
            setattr(options, attribute, asked[name])
    if "execution_mode" in asked:
        mode = _MODES[asked["execution_mode"]]
        options.execution_mode = getattr(onnxruntime.ExecutionMode, mode)
    if "execution_order" in asked:
        options.execution_order = getattr(
            onnxruntime.ExecutionOrder, asked["execution_order"].upper()
        )
    for name, value in within("config.", asked).items():
        options.add_session_config_entry(name, _entry(value))
    for name, value in within("free_dimension.", asked).items():
        options.add_free_dimension_override_by_name(name, value)
    return options


def _entry(value):
    """Return a value as ONNX Runtime's entries have it: 1 and 0 for true and false."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _providers(device, options):
    """Return the providers to ask for, in order, with their options."""
    kind, _, index = device.partition(":")
    name = options.get("provider", kind)
    if kind not in ("cpu", "cuda") or (name in _OF_GPUS) != (kind == "cuda"):
        advice = "write cpu or another one of CPUs, or on a GPU cuda or tensorrt"
        raise ValueError("provider is %r on %s; %s" % (name, device, advice))
    provider = _PROVIDERS[name]
    if provider not in onnxruntime.get_available_providers():
        there = ", ".join(onnxruntime.get_available_providers())
        advice = "install one that has it, such as onnxruntime-gpu; this one has %s" % there
        raise RuntimeError("this build of ONNX Runtime has no %s; %s" % (provider, advice))
    own = {key: _entry(value) for key, value in within("provider.", options).items()}
    if own != _without_graphs(own):
        raise ValueError("a CUDA graph needs inputs that stay in place; write cuda_graph: true")
    if kind == "cpu" and options.get("cuda_graph"):
        raise ValueError("cuda_graph is for calls on a GPU; leave it out on %s" % device)
    if kind == "cpu":
        return [(provider, own)]
    if "device_id" in own:
        raise ValueError("provider.device_id is that of the device; write devices: [cuda:N]")
    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if options.get("cuda_graph") and version < (1, 18):  # it would capture any run
        raise RuntimeError("cuda_graph needs ONNX Runtime 1.18 or later")
    providers = _gpu_providers(name, index or "0", options)
    providers[0][1].update(own)
    return providers


def _gpu_providers(name, index, options):
    """Return the providers of a GPU; CUDA runs the nodes that TensorRT can't."""
    providers: _Providers = []
    if name == "tensorrt":
        if options.get("tf32") is False:
            advice = 'write NVIDIA_TF32_OVERRIDE: "0" into env of the stack, and leave out tf32'
            raise ValueError("TensorRT's provider always uses TF32; " + advice)
        tensorrt = {"device_id": index}
        if "cache" in options:
            tensorrt["trt_engine_cache_enable"] = "1"
            tensorrt["trt_timing_cache_enable"] = "1"
            tensorrt["trt_engine_cache_path"] = options["cache"]
            tensorrt["trt_timing_cache_path"] = options["cache"]
        if options.get("cuda_graph"):
            tensorrt["trt_cuda_graph_enable"] = "1"
        providers.append((_TENSORRT, tensorrt))
    cuda = {"device_id": index}
    if "tf32" in options:
        cuda["use_tf32"] = str(int(options["tf32"]))
    if options.get("cuda_graph") and name == "cuda":
        cuda["enable_cuda_graph"] = "1"
    providers.append((_CUDA, cuda))
    return providers


def _without_graphs(options):
    return {name: value for name, value in options.items() if "cuda_graph" not in name}


def _profiles(events, starts):
    """Return the Profiles of a profile's runs from the second one on, which began at ``starts``.

    A node's kernels are listed behind it. Those behind another event are copies of inputs.
    """
    runs = [event for event in events if event.get("name") == "model_run"]
    runs.sort(key=_began)
    made = len(starts) + 1
    if len(runs) != made:  # it drops events once there are a million
        raise RuntimeError("ONNX Runtime's profile has %d of %d runs" % (len(runs), made))
    nodes: List[_Node] = []
    kernels: List[float] = []
    for event in events:
        if event.get("cat") == "Kernel":
            kernels.append(event["dur"] / _MICROSECONDS)
            continue
        kernels = []
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            nodes.append(_Node(event, kernels))
    nodes.sort(key=lambda node: _began(node.event))
    return [_profile(start, run, nodes) for start, run in zip(starts, runs[1:])]


def _began(event):
    """Return when an event began, in the profiler's microseconds."""
    return event["ts"]


def _profile(start, run, nodes):
    """Return the Profile of one run inside of ONNX Runtime; layers end with it, if rounded."""
    began = _began(run)
    ended = began + run["dur"]
    end = start + run["dur"] / _MICROSECONDS
    offset = start - began / _MICROSECONDS
    on_device = any(node.kernels for node in nodes)
    found: List[Layer] = []
    for node in nodes:
        if began <= _began(node.event) <= ended:
            layer = _layer(node.event, offset)
            if on_device:
                free = found[-1].end if found else start
                layer = in_queue(layer, sum(node.kernels) if node.kernels else None, free)
            found.append(layer._replace(end=min(layer.end, end)))
    return Profile(start, end, found)


def _layer(node, offset):
    """Return a node's run as a Layer, with its times on the host."""
    facts = node["args"]
    name = node["name"][: -len(_KERNEL)]
    start = _began(node) / _MICROSECONDS + offset
    end = start + node["dur"] / _MICROSECONDS
    size = None
    if facts.get("output_size"):
        size = int(facts["output_size"])
    return Layer(
        name=name,
        type=facts["op_name"],
        start=start,
        end=end,
        bytes=size,
        shape=_first_shape(facts),
    )


def _first_shape(facts):
    """Return the shape of a node's first output; an output is {type: shape}."""
    for output in facts.get("output_type_shape", [])[:1]:
        for shape in output.values():
            return tuple(shape)
    return None


def _tensors(values):
    found = []
    for value in values:
        dtype = _dtype(value.type)
        found.append(Tensor(value.name, dtype, shape_of(value.shape)))
    return found


def _is_of_numbers(tensor):
    """Return whether an output is an array of numbers, and not a list, a map or texts."""
    try:
        return numpy.dtype(tensor.dtype).kind in "biufc"
    except (TypeError, ValueError):
        return False


def _dtype(kind):
    """Turn ``tensor(float)`` into numpy's name."""
    name = kind
    if kind.startswith("tensor("):
        name = kind[len("tensor(") : -1]
    return _DTYPES.get(name, name)
