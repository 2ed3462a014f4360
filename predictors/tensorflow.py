"""TensorFlow 2: ``graph`` is the folder of a SavedModel (ship it as .zip or .tar), a .keras file,
or a frozen TF1 .pb.

Versions: 2.16 and later; tried with 2.21 and Keras 3. Devices: cpu, and cuda:N as TensorFlow lists
GPUs. Synchronises: outputs are copied to host memory, which waits for them.

Options: ``signature`` of a SavedModel (default: serving_default). ``inputs`` and ``outputs``: for a
.pb the nodes, as ``image float32[?,1,8,8]; mask`` (default: its placeholders, and what nothing
reads); else names for outputs that have none. ``tf32``: whether a GPU may round to it. A Keras
model whose Lambda layers hold code is refused unless the command line allows that
(``--mlms-allow-code``). No file is trusted code, but a graph may read and write files: that is how
TensorFlow is.

Threads: those within an operator; operators run one at a time when they are asked for. TensorFlow
takes the number once in a process.

Layer times: the trace of a TF1 session on the same graph, its weights made constants, optimised by
grappler as ever, operators one at a time. The call is the session's up to the last operator, as
behind it the session writes down what it saw. Inner outputs: the same session, every operator's
first output.
"""

import os
from typing import Any, Callable, List, NamedTuple

import numpy
import tensorflow
from mlms_predictors import Loaded, Profile, Tensor
from mlms_predictors._run.checks import check, read_tensors, refuse_unknown
from mlms_predictors._tensorflow_graph import Frozen, freeze, read_graph

_OPTIONS = ("signature", "inputs", "outputs", "tf32")


class _Model(NamedTuple):
    """``bind(arrays)`` gives a call; ``frozen()`` the graph with its weights in it.

    ``keep`` is what must live on.
    """

    bind: Callable[..., Any]
    frozen: Callable[[], Frozen]
    keep: Any


class _Read(NamedTuple):
    model: _Model
    inputs: List[Tensor]
    outputs: List[Tensor]
    device: Any


def versions():
    """Return the versions of what computes."""
    return {"tensorflow": tensorflow.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now.

    The runtime isn't started for that.
    """
    gpus = tensorflow.config.list_physical_devices("GPU")
    return ["cpu"] + ["cuda:%d" % index for index in range(len(gpus))]


def load(request):
    """Load a model; raises RuntimeError where it isn't one, or can't be had as asked."""
    options = refuse_unknown(request.options, _OPTIONS)
    where = _start(request.device, request.threads)
    if "tf32" in options:
        tensorflow.config.experimental.enable_tensor_float_32_execution(bool(options["tf32"]))
    path = request.files["graph"]
    with tensorflow.device(where):
        if os.path.isdir(path):
            read = _read_saved_model(path, options.get("signature", "serving_default"), where)
        elif path.endswith((".keras", ".h5")):
            read = _read_keras(path, request.allow_code, where)
        elif path.endswith(".pb"):
            read = _read_frozen(path, options, where, request.threads)
        else:
            raise RuntimeError(
                "it is no model of TensorFlow: neither a SavedModel's folder nor .keras nor .pb"
            )
    threads = (
        tensorflow.config.threading.get_intra_op_parallelism_threads() or None
    )  # 0 is its own choice
    outputs = read.outputs
    if "outputs" in options:
        outputs = [
            tensor._replace(name=new.name)
            for tensor, new in zip(outputs, read_tensors(options["outputs"]))
        ]
    used = "cpu" if not read.device or "CPU" in read.device else request.device
    return Loaded(read.model, used, threads, read.inputs, outputs)


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    check(loaded.inputs, arrays)
    return loaded.model.bind(arrays)


def layers(loaded, arrays):
    """Run one batch and return when each operator ran."""
    check(loaded.inputs, arrays)
    return Profile(*loaded.model.frozen().trace([arrays[tensor.name] for tensor in loaded.inputs]))


def inner(loaded, arrays):
    """Run one batch and return what each operator gave."""
    check(loaded.inputs, arrays)
    return loaded.model.frozen().inner([arrays[tensor.name] for tensor in loaded.inputs])


def structure(loaded, shapes):
    """Return the model as a graph, for inputs of these shapes; nothing is computed."""
    return loaded.model.frozen().structure([shapes[tensor.name] for tensor in loaded.inputs])


def _start(device, threads):
    """Show TensorFlow the device alone and set its threads; return the name that it has there."""
    kind, _, index = device.partition(":")
    gpus = tensorflow.config.list_physical_devices("GPU")
    if kind == "cuda" and int(index or 0) >= len(gpus):
        raise RuntimeError("asked for %s, and TensorFlow lists %d GPUs" % (device, len(gpus)))
    settings = tensorflow.config.threading
    try:
        tensorflow.config.set_visible_devices(
            [gpus[int(index or 0)]] if kind == "cuda" else [], "GPU"
        )
        if settings.get_intra_op_parallelism_threads() != (threads or 0):
            settings.set_intra_op_parallelism_threads(threads or 0)
            settings.set_inter_op_parallelism_threads(1 if threads else 0)
    except RuntimeError as error:
        text = (
            "TensorFlow runs in this process already, with other threads or devices; use a new one"
        )
        raise RuntimeError(text) from error
    return "/GPU:0" if kind == "cuda" else "/CPU:0"


def _read_saved_model(path, name, where):
    if not os.path.exists(os.path.join(path, "saved_model.pb")):
        raise RuntimeError(
            "%s has no saved_model.pb; name the folder in the archive: model.zip#folder" % path
        )
    module = tensorflow.saved_model.load(path)
    if name not in module.signatures:
        known = ", ".join(module.signatures) or "none"
        raise ValueError("no signature %r; the model has %s" % (name, known))
    function = module.signatures[name]
    specs = function.structured_input_signature[1]
    inputs = [_tensor(key, spec) for key, spec in specs.items()]
    outputs = [_tensor(key, spec) for key, spec in function.structured_outputs.items()]
    keys, constant = [tensor.name for tensor in outputs], tensorflow.constant

    def bind_to(arrays):
        def call():
            given = function(**{name: constant(array) for name, array in arrays.items()})
            return [given[key].numpy() for key in keys]

        return call

    names = [tensor.name for tensor in inputs]
    model = _Model(bind_to, _once(lambda: freeze(function, names, where)), module)
    return _Read(
        model,
        inputs,
        outputs,
        _place_of(module.variables if hasattr(module, "variables") else [], where),
    )


def _read_keras(path, allow_code, where):
    import keras

    module = keras.models.load_model(path, compile=False, safe_mode=not allow_code)
    specs = [
        tensorflow.TensorSpec(tensor.shape, tensor.dtype, tensor.name) for tensor in module.inputs
    ]

    def run(*tensors):
        return module(tensors[0] if len(tensors) == 1 else list(tensors), training=False)

    function = tensorflow.function(run, input_signature=specs).get_concrete_function()
    inputs = [_tensor(spec.name, spec) for spec in specs]
    given = function.structured_outputs
    named = (
        given.items()
        if isinstance(given, dict)
        else zip(module.output_names, tensorflow.nest.flatten(given))
    )
    outputs = [_tensor(name, spec) for name, spec in named]
    constant, flatten = tensorflow.constant, tensorflow.nest.flatten

    def bind_to(arrays):
        feeds = [arrays[spec.name] for spec in specs]

        def call():
            return [
                value.numpy() for value in flatten(function(*[constant(array) for array in feeds]))
            ]

        return call

    frozen = _once(lambda: freeze(function, [tensor.name for tensor in inputs], where))
    return _Read(
        _Model(bind_to, frozen, module), inputs, outputs, _place_of(module.variables, where)
    )


def _read_frozen(path, options, where, threads):
    asked = [
        read_tensors(options[key]) if key in options else None for key in ("inputs", "outputs")
    ]
    frozen = read_graph(path, asked[0], asked[1], where, threads)
    return _Read(
        _Model(frozen.bind, _once(frozen.in_turn), frozen),
        frozen.tensors(0),
        frozen.tensors(1),
        where,
    )


def _once(make):
    made = []
    return lambda: made[0] if made else made.append(make()) or made[0]


def _tensor(name, spec):
    shape = tuple(spec.shape.as_list()) if spec.shape.rank is not None else ()
    return Tensor(name, spec.dtype.name, shape)


def _place_of(variables, where):
    """Return where the weights really are; a model without any runs where it was told."""
    places = [
        str(getattr(getattr(variable, "value", variable), "device", "")) for variable in variables
    ]
    return next((place for place in places if place), where)
