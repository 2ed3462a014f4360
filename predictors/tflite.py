"""TensorFlow Lite (LiteRT): ``graph`` is a .tflite file.

Versions: ai-edge-litert 2, or the interpreter inside tensorflow 2. Devices: cpu. Synchronises:
invoke returns when the outputs are written.

Options: ``xnnpack``: whether the XNNPACK delegate takes what it can (the default), or the plain
kernels all. ``signature``: the one to use where the file's first graph, which is what runs, has
several. A batch of another size resizes the inputs, once.

Layer times: by the profiler of LiteRT's C API (ai-edge-litert 2.2 and later, on Linux), in
microseconds, of calls of the model compiled once more with the same threads and kernels. Operators
have the name of their first output, but for those that XNNPACK runs: it names them by their
kernels, and doesn't say when they began; they are laid one after another. Inner outputs: by a
second interpreter without delegates, which keeps all tensors.
"""

import collections

import numpy

try:
    import ai_edge_litert as package
    from ai_edge_litert import interpreter as litert
except ImportError:
    import tensorflow as package
    from tensorflow.lite.python import interpreter as litert
from mlms_predictors import Layer, Loaded, Profile, Tensor, _tflite_profiler
from mlms_predictors._run.checks import check, refuse_gpu, refuse_unknown

_OPTIONS = ("xnnpack", "signature")


class _Model:
    """An interpreter, and the indices of its inputs and outputs.

    ``shapes`` is what it is allocated for.
    """

    def __init__(self, path, threads, signature, xnnpack, **facts):
        if not xnnpack:
            facts["experimental_op_resolver_type"] = (
                litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            )
        self.interpreter = litert.Interpreter(path, num_threads=threads, **facts)
        self.path, self.threads, self.signature, self.xnnpack = path, threads, signature, xnnpack
        known = self.interpreter._get_full_signature_list()
        name = _chosen(self.interpreter, known, signature)
        self.place, chosen = list(known).index(name) if name else 0, known.get(name)
        inputs, outputs = (
            self.interpreter.get_input_details(),
            self.interpreter.get_output_details(),
        )
        self.inputs, self.outputs = (
            _named(inputs, chosen, "inputs"),
            _named(outputs, chosen, "outputs"),
        )
        self.shapes = None
        self.interpreter.allocate_tensors()

    def fit(self, arrays):
        """Resize the inputs for these arrays, if they are of another size than the last."""
        shapes = [arrays[name].shape for name, _ in self.inputs]
        if shapes != self.shapes:
            self.shapes = None
            for (_, facts), shape in zip(self.inputs, shapes):
                self.interpreter.resize_tensor_input(facts["index"], shape)
            self.interpreter.allocate_tensors()
            self.shapes = shapes


def versions():
    """Return the versions of what computes."""
    return {"tflite": package.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"]


def load(request):
    """Read the file and allocate its tensors; raises ValueError where it isn't one."""
    options = refuse_unknown(request.options, _OPTIONS)
    refuse_gpu(request.device, "TensorFlow Lite")
    model = _Model(
        request.files["graph"],
        request.threads,
        options.get("signature"),
        options.get("xnnpack", True),
    )
    return Loaded(model, "cpu", request.threads, _tensors(model.inputs), _tensors(model.outputs))


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    check(loaded.inputs, arrays)
    model = loaded.model
    feeds = [(facts["index"], arrays[name]) for name, facts in model.inputs]
    fetches = [facts["index"] for _, facts in model.outputs]
    put, invoke, get = (
        model.interpreter.set_tensor,
        model.interpreter.invoke,
        model.interpreter.get_tensor,
    )
    shapes = [array.shape for _, array in feeds]

    def call():
        if model.shapes != shapes:
            model.fit(arrays)
        for index, array in feeds:
            put(index, array)
        invoke()
        return [get(index) for index in fetches]

    return call


def layers(loaded, arrays):
    """Run one batch and return when each operator ran."""
    return profiles(loaded, arrays, 1)[0]


def profiles(loaded, arrays, count):
    """Run one batch ``count`` times under LiteRT's profiler, warmed up, and return of each when its
    operators ran.
    """
    library, model = _tflite_profiler.library_of(package), loaded.model
    inputs, outputs = [arrays[name] for name, _ in model.inputs], predict(loaded, arrays)
    session = (model.path, model.place, model.threads or 1, model.xnnpack, inputs, outputs)
    with _tflite_profiler.opened(library, *session) as call:
        call()
        return [_profile(model.interpreter, *call()) for _ in range(count)]


def inner(loaded, arrays):
    """Run one batch and return what each operator gave, by the names of the tensors in the file."""
    check(loaded.inputs, arrays)
    used = loaded.model
    model = _Model(
        used.path,
        used.threads,
        used.signature,
        xnnpack=False,
        experimental_preserve_all_tensors=True,
    )
    model.fit(arrays)
    for name, details in model.inputs:
        model.interpreter.set_tensor(details["index"], arrays[name])
    model.interpreter.invoke()
    names = {facts["index"]: facts["name"] for facts in model.interpreter.get_tensor_details()}
    order = [
        index for operator in model.interpreter._get_ops_details() for index in operator["outputs"]
    ]
    return [
        (names[index], model.interpreter.get_tensor(index)) for index in order if names.get(index)
    ]


def structure(loaded, shapes):
    """Return the file's graph for inputs of these shapes, as it is before XNNPACK takes parts of
    it; counts are ours.

    A second interpreter runs it once on zeros, as some shapes are known only then.
    """
    from mlms_predictors._tflite_structure import structure as write_down

    used = loaded.model
    model = _Model(used.path, used.threads, used.signature, xnnpack=False)
    model.fit({name: numpy.broadcast_to(numpy.float32(0), shape) for name, shape in shapes.items()})
    for _, facts in model.inputs:
        model.interpreter.tensor(facts["index"])().fill(0)
    model.interpreter.invoke()
    inputs, outputs = (
        [facts["index"] for _, facts in named] for named in (model.inputs, model.outputs)
    )
    counter = "the shapes of the tensors of tflite %s" % package.__version__
    return write_down(model.interpreter, _numbered, inputs, outputs, counter)


def _profile(interpreter, start, end, operators):
    """Return a call's Profile."""
    tensors = {facts["index"]: facts for facts in interpreter.get_tensor_details()}
    file, found = interpreter._get_ops_details(), []
    outputs = [_output(operator, file, tensors) for operator in operators]
    names = _numbered((facts and facts["name"]) or op.kind for op, facts in zip(operators, outputs))
    for name, operator, facts in zip(names, operators, outputs):
        shape = tuple(int(size) for size in facts["shape"]) if facts else None
        size = int(numpy.prod(shape)) * numpy.dtype(facts["dtype"]).itemsize if facts else None
        found.append(Layer(name, operator.kind, operator.start, operator.end, size, shape))
    return Profile(start, end, found)


def _numbered(names):
    """Return names that are distinct: of those that are the same all but the first get a number."""
    seen, found = collections.Counter(), []
    for name in names:
        seen[name] += 1
        found.append("%s %d" % (name, seen[name]) if seen[name] > 1 else name)
    return found


def _output(operator, file, tensors):
    """Return what is known of an operator's first output; nothing of one that isn't the file's."""
    if (
        operator.index is None
        or operator.index >= len(file)
        or file[operator.index]["op_name"] != operator.kind
    ):
        return None
    outputs = file[operator.index]["outputs"]
    return tensors.get(outputs[0]) if len(outputs) else None


def _chosen(interpreter, known, signature):
    """Return the name of the signature to use.

    Raises ValueError for one of a graph that invoke doesn't run.
    """
    if signature is not None and signature not in known:
        raise ValueError(
            "no signature %r; the file has %s" % (signature, ", ".join(known) or "none")
        )
    usable = [name for name in known if not interpreter.get_signature_runner(name)._subgraph_index]
    if signature is not None and signature not in usable:
        there = ", ".join(usable) or "none"
        raise ValueError(
            "signature %r is not of the file's first graph, which is what runs; of that is %s"
            % (signature, there)
        )
    return signature or next(iter(usable), None)


def _named(details, signature, kind):
    """Return (name, details) pairs, by the signature's names, else by the tensors' own."""
    if signature is None:
        return [(facts["name"], facts) for facts in details]
    names = {index: name for name, index in signature[kind].items()}
    return [(names[facts["index"]], facts) for facts in details if facts["index"] in names]


def _tensors(named):
    return [
        Tensor(
            name,
            numpy.dtype(facts["dtype"]).name,
            tuple(None if size < 0 else int(size) for size in _shape(facts)),
        )
        for name, facts in named
    ]


def _shape(facts):
    return facts["shape_signature"] if len(facts["shape_signature"]) else facts["shape"]
