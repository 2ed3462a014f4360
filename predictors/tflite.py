"""TensorFlow Lite (LiteRT): ``graph`` is a .tflite file.

Versions: ai-edge-litert 2, or the interpreter inside tensorflow 2.

Devices: cpu.

Synchronises: ``invoke`` returns when the outputs are written.

Options: ``xnnpack``: whether the XNNPACK delegate runs the operators that it supports (the
default), or the builtin kernels run all. ``kernels``: optimized (the default), or reference, which
are without XNNPACK. ``delegate``: the shared library of an external delegate, which is code and
needs ``--mlms-allow-code``; ``delegate.NAME`` are its options. ``signature``: one of several
signatures of the file's first graph, the only one that runs. A batch of another size resizes the
inputs once. Operators of TensorFlow in a file (Flex), which the package tensorflow runs, may reach
files and need ``--mlms-allow-code``.

Layer times: the profiler of LiteRT's C API (ai-edge-litert 2.2 and later, on Linux), in
microseconds. The model is compiled a second time for it, with the same threads and kernels.
Operators have the name of their first output. Those that XNNPACK runs have the names of its kernels
and no start times, so they are placed one after another. Inner outputs: by an interpreter without
delegates that keeps all tensors.
"""

import collections
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy

try:
    import ai_edge_litert as package
    from ai_edge_litert import interpreter as litert
except ImportError:
    import tensorflow as package
    from tensorflow.lite.python import interpreter as litert
from mlms_predictors import (
    Arrays,
    Call,
    Devices,
    InnerOutputs,
    Layer,
    Load,
    Loaded,
    Outputs,
    Profile,
    Shapes,
    Structure,
    Tensor,
    Versions,
    _tflite_profiler,
)
from mlms_predictors._run.checks import check, name_of_type, refuse_code, refuse_gpu, refuse_unknown
from mlms_predictors._run.options import within
from mlms_predictors._run.products import prod
from mlms_predictors._run.protocol import KEPT_STATE
from mlms_predictors._run.shapes import shape_of
from mlms_predictors._tflite_files import check_operators, keeps_state

OPTIONS = {
    "xnnpack": "bool",
    "kernels": ("optimized", "reference"),
    "signature": "text",
    "delegate": "text",
    "delegate.*": "any",
}


class _Settings(NamedTuple):
    """Arguments of an interpreter; ``signature`` is None for the file's first one."""

    path: str
    threads: Optional[int]
    signature: Optional[str]
    xnnpack: bool
    kernels: str = "optimized"
    delegate: Optional[str] = None
    delegate_options: Tuple[Tuple[str, Any], ...] = ()


class _Port(NamedTuple):
    """An input or output: its name, its tensor's number, and the interpreter's details of that."""

    name: str
    number: int
    details: Dict[str, Any]


class _Model:
    """An interpreter, and its inputs and outputs.

    ``place`` is the position of the signature in the file; ``shapes`` are those of the inputs
    that memory is allocated for.
    """

    def __init__(self, settings, keeps_all_tensors=False):
        facts: Dict[str, Any] = {}
        if keeps_all_tensors:
            facts["experimental_preserve_all_tensors"] = True
        if settings.kernels == "reference":
            facts["experimental_op_resolver_type"] = litert.OpResolverType.BUILTIN_REF
        elif not settings.xnnpack:
            resolver = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            facts["experimental_op_resolver_type"] = resolver
        if settings.delegate is not None:
            options = dict(settings.delegate_options)
            facts["experimental_delegates"] = [litert.load_delegate(settings.delegate, options)]
        self.settings = settings
        self.interpreter = litert.Interpreter(
            settings.path,
            num_threads=settings.threads,
            **facts,
        )
        signatures = self.interpreter._get_full_signature_list()
        name = _chosen(self.interpreter, signatures, settings.signature)
        signature = None
        self.place = 0
        if name is not None:
            signature = signatures[name]
            self.place = list(signatures).index(name)
        self.inputs = _ports(self.interpreter.get_input_details(), signature, "inputs")
        self.outputs = _ports(self.interpreter.get_output_details(), signature, "outputs")
        self.shapes = None
        try:
            self.interpreter.allocate_tensors()
        except RuntimeError as error:
            if "unresolved" in str(error) or not _has_free_axes(self.inputs):
                raise  # else a call tells the sizes: of 1, a window of sound may be longer

    def fit(self, arrays):
        """Resize the inputs for these arrays, if they are of another size than the last."""
        shapes = [arrays[port.name].shape for port in self.inputs]
        if shapes != self.shapes:
            self.shapes = None
            for port, shape in zip(self.inputs, shapes):
                self.interpreter.resize_tensor_input(port.number, shape)
            self.interpreter.allocate_tensors()
            self.shapes = shapes


def _has_free_axes(ports):
    return any(-1 in port.details["shape_signature"] for port in ports)


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"tflite": package.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Read the file and allocate its tensors; raises ValueError where it isn't one."""
    options = refuse_unknown(request.options, OPTIONS)
    if "delegate" in options:
        refuse_code("delegate", request.allow_code)
    refuse_gpu(request.device, "TensorFlow Lite")
    if package.__name__ == "tensorflow" and not request.allow_code:
        check_operators(request.files["graph"])
    settings = _Settings(
        path=request.files["graph"],
        threads=request.threads,
        signature=options.get("signature"),
        xnnpack=options.get("xnnpack", options.get("kernels") != "reference"),
        kernels=options.get("kernels", "optimized"),
        delegate=options.get("delegate"),
        delegate_options=tuple(within("delegate.", options).items()),
    )
    model = _Model(settings)
    return Loaded(
        model=model,
        device="cpu",
        threads=request.threads,
        inputs=_tensors(model.inputs),
        outputs=_tensors(model.outputs),
        device_facts={KEPT_STATE: "variables"} if keeps_state(settings.path) else None,
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    check(loaded.inputs, arrays)
    model = loaded.model
    feeds = [(port.number, arrays[port.name]) for port in model.inputs]
    fetches = [port.number for port in model.outputs]
    shapes = [array.shape for _, array in feeds]
    put = model.interpreter.set_tensor
    invoke = model.interpreter.invoke
    get = model.interpreter.get_tensor

    def call():
        if model.shapes != shapes:
            model.fit(arrays)
        for index, array in feeds:
            put(index, array)
        invoke()
        return [get(index) for index in fetches]

    return call


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch and return when each operator ran."""
    return profiles(loaded, arrays, 1)[0]


def profiles(loaded: Loaded, arrays: Arrays, count: int) -> List[Profile]:
    """Run one batch ``count`` times under LiteRT's profiler; return when operators ran.

    It is warmed up by one call that is not among them.
    """
    library = _tflite_profiler.library_of(package)
    model = loaded.model
    compilation = _tflite_profiler.Compilation(
        path=model.settings.path,
        signature=model.place,
        threads=model.settings.threads or 1,
        xnnpack=model.settings.xnnpack,
        inputs=[arrays[port.name] for port in model.inputs],
        outputs=predict(loaded, arrays),
    )
    with _tflite_profiler.compiled(library, compilation) as call:
        call()
        return [_profile(model.interpreter, call()) for _ in range(count)]


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch and return what each operator gave, by the names of the tensors in the file."""
    check(loaded.inputs, arrays)
    plain = loaded.model.settings._replace(xnnpack=False, delegate=None)
    model = _Model(plain, keeps_all_tensors=True)
    model.fit(arrays)
    interpreter = model.interpreter
    for port in model.inputs:
        interpreter.set_tensor(port.number, arrays[port.name])
    interpreter.invoke()
    names = {}
    for facts in interpreter.get_tensor_details():
        names[facts["index"]] = facts["name"]
    found = []
    for operator in interpreter._get_ops_details():
        for index in operator["outputs"]:
            if names.get(index):
                found.append((names[index], interpreter.get_tensor(index)))
    return found


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the file's graph for inputs of these shapes, without XNNPACK.

    Operations are counted by ``products``. A second interpreter runs the graph once on zeros, as
    some shapes are known only then.
    """
    from mlms_predictors._tflite_structure import Graph
    from mlms_predictors._tflite_structure import structure as describe

    model = _Model(loaded.model.settings._replace(xnnpack=False, delegate=None))
    zero = numpy.float32(0)
    zeros = {}
    for name, shape in shapes.items():
        zeros[name] = numpy.broadcast_to(zero, shape)
    model.fit(zeros)
    for port in model.inputs:
        model.interpreter.tensor(port.number)().fill(0)
    model.interpreter.invoke()
    graph = Graph(
        operators=model.interpreter._get_ops_details(),
        tensors=model.interpreter.get_tensor_details(),
        inputs=[port.number for port in model.inputs],
        outputs=[port.number for port in model.outputs],
    )
    counter = "the shapes of the tensors of tflite %s" % package.__version__
    return describe(graph, _distinct, counter)


def _profile(interpreter, call):
    """Return a profiled call as a Profile."""
    tensors = {facts["index"]: facts for facts in interpreter.get_tensor_details()}
    in_file = interpreter._get_ops_details()
    outputs = [_first_output(operator, in_file, tensors) for operator in call.operators]
    names = []
    for operator, facts in zip(call.operators, outputs):
        names.append(facts.get("name") or operator.kind)
    found = []
    for name, operator, facts in zip(_distinct(names), call.operators, outputs):
        layer = Layer(
            name=name,
            type=operator.kind,
            start=operator.start,
            end=operator.end,
            bytes=_bytes(facts),
            shape=_shape(facts),
        )
        found.append(layer)
    return Profile(call.start, call.end, found)


def _first_output(operator, in_file, tensors):
    """Return the details of an operator's first output; none for an operator of XNNPACK's."""
    place = operator.place
    if place is None or place >= len(in_file):
        return {}
    facts = in_file[place]
    outputs = facts["outputs"]
    if facts["op_name"] != operator.kind or not len(outputs):
        return {}
    return tensors.get(outputs[0], {})


def _shape(facts):
    if not facts:
        return None
    return tuple(int(size) for size in facts["shape"])


def _bytes(facts):
    if not facts:
        return None
    itemsize = numpy.dtype(facts["dtype"]).itemsize
    return itemsize * prod(_shape(facts))


def _distinct(names: Iterable[str]) -> List[str]:
    """Return distinct names: a name that occurs again gets a number."""
    count: Dict[str, int] = collections.Counter()
    found = []
    for name in names:
        count[name] += 1
        if count[name] > 1:
            found.append("%s %d" % (name, count[name]))
        else:
            found.append(name)
    return found


def _chosen(interpreter, signatures, name):
    """Return the name of the signature to use, None where the file has none.

    Raises ValueError for one of a graph that invoke doesn't run.
    """
    usable = []
    for known in signatures:
        if interpreter.get_signature_runner(known)._subgraph_index == 0:
            usable.append(known)
    if name is None:
        return next(iter(usable), None)
    if name not in signatures:
        there = ", ".join(signatures) or "none"
        raise ValueError("no signature %r; the file has %s" % (name, there))
    if name not in usable:
        there = ", ".join(usable) or "none"
        text = "signature %r is not of the file's first graph, which is what runs; of that is %s"
        raise ValueError(text % (name, there))
    return name


def _ports(details, signature, side):
    """Return inputs or outputs under the signature's names, without one under the tensors' own."""
    if signature is None:
        return [_Port(facts["name"], facts["index"], facts) for facts in details]
    names = {index: name for name, index in signature[side].items()}
    found = []
    for facts in details:
        index = facts["index"]
        if index in names:
            found.append(_Port(names[index], index, facts))
    return found


def _tensors(ports):
    found = []
    for port in ports:
        sizes = port.details["shape_signature"]
        if not len(sizes):
            sizes = port.details["shape"]
        dtype = numpy.dtype(port.details["dtype"])
        found.append(Tensor(port.name, name_of_type(dtype), shape_of(sizes)))
    return found
