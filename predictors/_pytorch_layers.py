"""When the layers of a PyTorch model ran, and what they gave.

See pytorch.py for which layers those are.
"""

import collections
import time
from typing import Any, NamedTuple

import torch
from mlms_predictors import Layer, Profile
from mlms_predictors._run.steps import between


class Seen(NamedTuple):
    """One layer as it ran, and what was noted of its output."""

    name: str
    type: str
    start: float
    end: float
    noted: Any


def watch(loaded, tensors, note, keep=lambda result: None):
    """Run once, layer by layer; return begin, end and what was seen, with ``note`` of each output.

    ``keep`` is given what the model returns.
    """
    seen = []
    prepare = _watch_graph if loaded.model.kind == "export" else _watch_leaves
    run, undo, began = prepare(loaded, lambda *facts: seen.append(Seen(*facts)), note)
    try:
        start = _clock(loaded.device)
        keep(run(*tensors))
        return (began or [start])[0], _clock(loaded.device), seen
    finally:
        undo()


def _watch_graph(loaded, add, note):
    """Return a call that runs the graph node by node, nothing to undo, and a list that gets when it
    began to compute.

    Before that the interpreter fetches the weights one by one, which a call of the module doesn't
    do.
    """
    names, began = _names(loaded.model.module.graph), []

    class Watched(torch.fx.Interpreter):
        def run_node(self, node):
            if not began and node.op.startswith("call_"):
                began.append(_clock(loaded.device))
            if node not in names:
                return super().run_node(node)
            between()
            start = _clock(loaded.device)
            output = super().run_node(node)
            end = _clock(loaded.device)
            between()
            add(names[node], str(node.target), start, end, note(output))
            return output

    return Watched(loaded.model.module).run, lambda: None, began


def _names(graph):
    """Name each operator by the module that it comes from, if it is that module's only one.

    Else by its own name.
    """
    nodes = [
        node
        for node in graph.nodes
        if node.op == "call_function" and "built-in" not in str(node.target)
    ]
    paths = {
        node: [place[0] for place in (node.meta.get("nn_module_stack") or {}).values()][-1:]
        for node in nodes
    }
    count = collections.Counter(path[0] for path in paths.values() if path and path[0])
    return {
        node: path[0] if path and count[path[0]] == 1 else node.name for node, path in paths.items()
    }


def _watch_leaves(loaded, add, note):
    """Hang hooks on the modules that have none inside.

    Return the call, how to take them off, and no other begin.
    """
    starts, handles, module = {}, [], loaded.model.module
    for name, leaf in module.named_modules():
        if not list(leaf.children()):
            begin = _beginner(starts, loaded.device)
            done = _adder(name or type(leaf).__name__, starts, add, note, loaded.device)
            handles += [leaf.register_forward_pre_hook(begin), leaf.register_forward_hook(done)]
    return module, lambda: [handle.remove() for handle in handles], []


def _beginner(starts, device):
    def begin(leaf, _):
        between()
        starts[leaf] = _clock(device)

    return begin


def _adder(name, starts, add, note, device):
    def done(leaf, _, output):
        end = _clock(device)
        between()
        add(name, type(leaf).__name__, starts[leaf], end, note(output))

    return done


def profiled(loaded, tensors):
    """Run once under torch.profiler.

    Its microseconds are brought to perf_counter by a region of ours.
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
    origin = next(event for event in events if event.name == "mlms").time_range.start
    tops = [
        event for event in events if event.name.startswith("aten::") and not _under_operator(event)
    ]
    return Profile(
        start,
        end,
        [_layer(event, number, start - origin / 1e6) for number, event in enumerate(tops)],
    )


def _under_operator(event):
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith("aten::"):
            return True
        parent = parent.cpu_parent
    return False


def _layer(event, number, offset):
    begin, end = event.time_range.start / 1e6, event.time_range.end / 1e6
    on_device = getattr(event, "device_time_total", 0) / 1e6
    memory = event.cpu_memory_usage + getattr(event, "device_memory_usage", 0)  # less what it freed
    name = "%s_%d" % (event.name[len("aten::") :], number)
    end = begin + on_device if on_device else end
    return Layer(
        name, event.name, begin + offset, end + offset, memory if memory > 0 else None, None
    )


def inner_of_script(module, tensors, note):
    """Give every tensor of the frozen graph out, and run that."""
    graph = torch.jit.freeze(module.eval()).graph.copy()
    nodes = [node for node in graph.nodes() if node.kind() != "prim::Constant"]
    values = [out for node in nodes for out in node.outputs() if out.type().kind() == "TensorType"]
    for _ in list(graph.outputs()):
        graph.eraseOutput(0)
    for value in values:
        graph.registerOutput(value)
    graph.makeMultiOutputIntoTuple()
    function = torch._C._create_function_from_graph("inner", graph)
    outputs = function(module, *tensors)
    return [(value.debugName(), note(out)) for value, out in zip(values, outputs)]


def _synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize(device)


def _clock(device):
    _synchronize(device)
    return time.perf_counter()
