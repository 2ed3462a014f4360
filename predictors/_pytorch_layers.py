"""Times and outputs of the layers of a PyTorch model; pytorch.py says which layers those are."""

import collections
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from mlms_predictors import Layer, Loaded, Profile
from mlms_predictors._run.steps import between
from mlms_predictors._run.timeline import in_queue

_MICROSECONDS = 1e6
_OPERATORS = "aten::"


class LayerRun(NamedTuple):
    """One layer as it ran, and what ``observe`` returned for its output; times are seconds."""

    name: str
    type: str
    start: float
    end: float
    observed: Any


class ModelRun(NamedTuple):
    """One call of the model, layer by layer, and what the model returned."""

    start: float
    end: float
    layers: List[LayerRun]
    result: Any


def run_by_layer(
    loaded: Loaded,
    tensors: List[Any],
    observe: Callable[[Any], Any],
) -> ModelRun:
    """Run once, layer by layer; ``observe`` is called with each layer's output, untimed."""
    if loaded.model.kind == "export":
        return _run_graph(loaded, tensors, observe)
    return _run_modules(loaded, tensors, observe)


def _run_graph(loaded, tensors, observe):
    interpreter = _TimedInterpreter(loaded, observe)
    start = _clock(loaded.device)
    result = interpreter.run(*tensors)
    end = _clock(loaded.device)
    if interpreter.computes_since is not None:
        start = interpreter.computes_since
    return ModelRun(start, end, interpreter.layers, result)


class _TimedInterpreter(torch.fx.Interpreter):
    """Runs an exported graph node by node, and times the nodes that are layers.

    ``computes_since`` is when the first operator began. Before that the interpreter fetches the
    weights one by one, which a call of the module does not do.
    """

    def __init__(self, loaded, observe):
        super().__init__(loaded.model.module)
        self.layers: List[LayerRun] = []
        self.computes_since: Optional[float] = None
        self._device = loaded.device
        self._layer_names = _layer_names(loaded.model.module.graph)
        self._observe = observe

    def run_node(self, node):
        if self.computes_since is None and node.op.startswith("call_"):
            self.computes_since = _clock(self._device)
        if node not in self._layer_names:
            return super().run_node(node)
        between()
        start = _clock(self._device)
        output = super().run_node(node)
        end = _clock(self._device)
        between()
        name = self._layer_names[node]
        observed = self._observe(output)
        self.layers.append(LayerRun(name, str(node.target), start, end, observed))
        return output


def _layer_names(graph):
    """Name each operator by the module that it comes from, if it is that module's only one.

    Other operators have their own names.
    """
    paths = {}
    for node in graph.nodes:
        if node.op == "call_function" and "built-in" not in str(node.target):
            paths[node] = _module_path(node)
    count = collections.Counter(paths.values())
    names = {}
    for node, path in paths.items():
        is_only = path != "" and count[path] == 1
        names[node] = path if is_only else node.name
    return names


def _module_path(node):
    """Return the path of the innermost module that an operator comes from; empty for the model."""
    places = list((node.meta.get("nn_module_stack") or {}).values())
    if not places:
        return ""
    return places[-1][0]


def _run_modules(loaded, tensors, observe):
    """Run a module with hooks on the modules inside it that have none inside themselves."""
    hooks = _Hooks(loaded.device, observe)
    try:
        for name, module in loaded.model.module.named_modules():
            if not list(module.children()):
                hooks.register(name, module)
        start = _clock(loaded.device)
        result = loaded.model.module(*tensors)
        end = _clock(loaded.device)
    finally:
        hooks.remove()
    return ModelRun(start, end, hooks.layers, result)


class _Hooks:
    """Forward hooks that time modules."""

    def __init__(self, device, observe):
        self.layers: List[LayerRun] = []
        self._device = device
        self._observe = observe
        self._starts: Dict[Any, float] = {}
        self._handles: List[Any] = []

    def register(self, name, module):
        """Time a module under its name, or its type where it is the whole model."""
        kind = type(module).__name__
        after = self._after(name or kind, kind)
        self._handles.append(module.register_forward_pre_hook(self._before))
        self._handles.append(module.register_forward_hook(after))

    def remove(self):
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _before(self, module, _):
        between()
        self._starts[module] = _clock(self._device)

    def _after(self, name, kind):
        def after(module, _, output):
            end = _clock(self._device)
            between()
            start = self._starts[module]
            observed = self._observe(output)
            self.layers.append(LayerRun(name, kind, start, end, observed))

        return after


def profiled(loaded: Loaded, tensors: List[Any]) -> Profile:
    """Run once under torch.profiler.

    A region of ours brings its microseconds to the clock of perf_counter.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if loaded.device != "cpu":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        start = _clock(loaded.device)
        with torch.profiler.record_function("mlms"):
            loaded.model.call(*tensors)
        end = _clock(loaded.device)
    events = sorted(profiler.events(), key=lambda event: event.time_range.start)
    region = next(event for event in events if event.name == "mlms")
    offset = start - region.time_range.start / _MICROSECONDS
    return Profile(start, end, layers_of(events, offset, loaded.device != "cpu"))


def layers_of(events: List[Any], offset: float, on_gpu: bool) -> List[Layer]:
    """Return the operators that no operator called, and kernels that none launched.

    Those are of inductor or of a CUDA graph. ``events`` are in the order of their starts.
    """
    lone = set(_lone_kernels(events))
    layers: List[Layer] = []
    free = 0.0
    for event in events:
        if event in lone:
            on_device = event.time_range.elapsed_us()
        elif _is_inside_operator(event):
            continue
        elif event.name.startswith(_OPERATORS):
            on_device = event.device_time_total
        elif event.kernels:
            on_device = sum(kernel.duration for kernel in event.kernels)
        else:
            continue
        layer = _layer(event, len(layers), offset)
        if on_gpu:
            layer = in_queue(layer, on_device / _MICROSECONDS or None, free)
            free = layer.end
        layers.append(layer)
    return layers


def _lone_kernels(events):
    """Yield the kernels and copies on a GPU that no event of the host launched."""
    launched = collections.Counter(
        (kernel.name, kernel.duration) for event in events for kernel in event.kernels
    )
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CPU or event.is_user_annotation:
            continue
        key = event.name, event.time_range.elapsed_us()
        if launched[key] > 0:
            launched[key] -= 1
        else:
            yield event


def _is_inside_operator(event):
    """True if another operator called this one."""
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith(_OPERATORS):
            return True
        parent = parent.cpu_parent
    return False


def _layer(event, number, offset):
    """Return an operator as a Layer, with its times on the host."""
    name = "%s_%d" % (event.name.replace(_OPERATORS, ""), number)
    start = event.time_range.start / _MICROSECONDS + offset
    end = event.time_range.end / _MICROSECONDS + offset
    memory = event.cpu_memory_usage + getattr(event, "device_memory_usage", 0)
    size = memory if memory > 0 else None  # below zero where it freed more
    return Layer(name, event.name, start, end, size, None)


def inner_of_script(
    module: Any,
    tensors: List[Any],
    observe: Callable[[Any], Any],
) -> List[Tuple[str, Any]]:
    """Run the frozen graph of a TorchScript module with every tensor in it as an output."""
    graph = torch.jit.freeze(module.eval()).graph.copy()
    values = _tensors_of(graph)
    for _ in list(graph.outputs()):
        graph.eraseOutput(0)
    for value in values:
        graph.registerOutput(value)
    graph.makeMultiOutputIntoTuple()
    function = torch._C._create_function_from_graph("inner", graph)
    found = []
    for value, output in zip(values, function(module, *tensors)):
        found.append((value.debugName(), observe(output)))
    return found


def _tensors_of(graph):
    """Return the tensors that the nodes of a graph compute."""
    found = []
    for node in graph.nodes():
        if node.kind() == "prim::Constant":
            continue
        for output in node.outputs():
            if output.type().kind() == "TensorType":
                found.append(output)
    return found


def _clock(device):
    """Return the time after the device has finished its queue."""
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter()
