"""TensorFlow 2: ``graph`` is a SavedModel's folder, a .keras or .h5 file, or a frozen TF1 .pb.

A folder is shipped as .zip or .tar.

Versions: 2.16 and later; tested with 2.21 and Keras 3.

Devices: cpu, and cuda:N as TensorFlow lists GPUs.

Synchronises: outputs are copied to host memory, which waits for them. Texts are not returned.

Options: ``signature`` of a SavedModel (default: serving_default). ``inputs`` and ``outputs``: the
nodes of a .pb, such as ``image float32[?,1,8,8]; mask`` (default: its placeholders, and the nodes
that no other reads). For other formats ``outputs`` names the outputs. ``tf32``: whether a GPU may
use TF32. ``xla``: whether XLA compiles the graph (tf.config.optimizer.set_jit).
``inter_op_threads``, ``soft_placement`` and ``deterministic`` are of tf.config,
``optimizer.NAME`` switches of grappler. A Keras model with code or classes of others needs
``--mlms-allow-code``, and so does a graph whose operators reach files, hosts or Python.

The number of threads is that within an operator. Where it is given, operators run one at a time.
TensorFlow sets it once in a process.

On a GPU it takes memory as it needs it, unless TF_FORCE_GPU_ALLOW_GROWTH is set.

Layer times: the trace of a TF1 session on the same graph, with weights as constants, optimised by
grappler, operators one at a time. The call ends with its last operator, since the session then
writes its trace. Inner outputs: the first output of every operator in the same session.
"""

import os
from typing import Any, Callable, List, NamedTuple

import numpy
import tensorflow
from mlms_predictors import (
    Arrays,
    Call,
    CountedBytes,
    Devices,
    InnerOutputs,
    Load,
    Loaded,
    Outputs,
    Profile,
    Shapes,
    Structure,
    Tensor,
    Versions,
)
from mlms_predictors._run.checks import check, in_order, read_tensors, refuse_unknown
from mlms_predictors._run.gpus import gpu_devices, take_as_needed
from mlms_predictors._run.options import within
from mlms_predictors._tensorflow_graph import (
    FrozenGraph,
    freeze,
    read_graph,
    returned,
    shape_of_spec,
)
from mlms_predictors._tensorflow_operators import check_saved_model

OPTIONS = {
    "signature": "text",
    "inputs": "text",
    "outputs": "text",
    "tf32": "bool",
    "xla": "bool",
    "inter_op_threads": "int",
    "soft_placement": "bool",
    "deterministic": "bool",
    "optimizer.*": "bool",
}
_ANOTHER = "with other threads or devices; use a new one"


class _Model(NamedTuple):
    """How to run a model: ``bind(arrays)`` returns a call.

    ``frozen()`` returns the graph with its weights in it. ``keep`` must live as long as the calls.
    """

    bind: Callable[[Any], Call]
    frozen: Callable[[], FrozenGraph]
    keep: Any


class _Read(NamedTuple):
    """A model as read; ``place`` is TensorFlow's name of the device of the weights."""

    model: _Model
    inputs: List[Tensor]
    outputs: List[Tensor]
    place: str


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"tensorflow": tensorflow.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process.

    This does not start TensorFlow's runtime.
    """
    count = len(tensorflow.config.list_physical_devices("GPU"))
    return ["cpu", *gpu_devices(count)]


def load(request: Load) -> Loaded:
    """Load a model; raises RuntimeError where it isn't one, or can't be had as asked."""
    options = refuse_unknown(request.options, OPTIONS)
    facts = None
    if request.device != "cpu":
        facts = take_as_needed("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    place = _start(request.device, request.threads, options.get("inter_op_threads"))
    _configure(options)
    if request.device != "cpu":
        _of_memory("reset_memory_stats")
    with tensorflow.device(place):
        read = _read(request, place)
    outputs = read.outputs
    if "outputs" in options:
        outputs = _renamed(outputs, read_tensors(options["outputs"]))
    arrays = returned(outputs)
    device = request.device
    if not read.place or "CPU" in read.place:
        device = "cpu"
    threads = tensorflow.config.threading.get_intra_op_parallelism_threads()
    return Loaded(
        model=read.model,
        device=device,
        threads=threads or None,  # 0 is its own choice
        inputs=read.inputs,
        outputs=arrays + [each for each in outputs if each not in arrays],
        device_facts=facts,
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    check(loaded.inputs, arrays)
    return loaded.model.bind(arrays)


def device_memory(loaded: Loaded) -> CountedBytes:
    """Return the peak of what tensors used of TensorFlow's pool on a GPU."""
    found = None if loaded.device == "cpu" else _of_memory("get_memory_info")
    return {"tf.config.experimental.get_memory_info": found["peak"]} if found else {}


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch and return when each operator ran."""
    feeds = in_order(loaded.inputs, arrays)
    return loaded.model.frozen().trace(feeds)


def takes_cupti(loaded: Loaded) -> bool:
    """Return whether layers are read by CUPTI: on a GPU TensorFlow's full trace does."""
    return loaded.device != "cpu"


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch and return what each operator gave."""
    feeds = in_order(loaded.inputs, arrays)
    return loaded.model.frozen().inner(feeds)


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the model as a graph, for inputs of these shapes; nothing is computed."""
    in_order = [shapes[tensor.name] for tensor in loaded.inputs]
    return loaded.model.frozen().structure(in_order)


def _renamed(tensors, names):
    """Return tensors under the names of others."""
    pairs = zip(tensors, names)
    return [tensor._replace(name=new.name) for tensor, new in pairs]


def _configure(options):
    """Apply the settings that TensorFlow has for the whole process."""
    config = tensorflow.config
    if "tf32" in options:
        config.experimental.enable_tensor_float_32_execution(options["tf32"])
    if "xla" in options:
        config.optimizer.set_jit("autoclustering" if options["xla"] else False)
    if "soft_placement" in options:
        config.set_soft_device_placement(options["soft_placement"])
    if options.get("deterministic"):
        config.experimental.enable_op_determinism()
    switches = within("optimizer.", options)
    if switches:
        config.optimizer.set_experimental_options(switches)


def _of_memory(function):
    """Call a function of the GPU's memory; None where the allocator in use doesn't count it."""
    try:
        return getattr(tensorflow.config.experimental, function)("GPU:0")
    except ValueError:
        return None


def _start(device, threads, between):
    """Restrict TensorFlow to the device and set its threads; return TensorFlow's name of it.

    ``between`` are the threads between operators; None is one where ``threads`` are given.
    """
    if between is None:
        between = 1 if threads else 0
    kind, _, text = device.partition(":")
    index = int(text or 0)
    gpus = tensorflow.config.list_physical_devices("GPU")
    visible = []
    if kind == "cuda":
        if index >= len(gpus):
            raise RuntimeError("asked for %s, and TensorFlow lists %d GPUs" % (device, len(gpus)))
        visible.append(gpus[index])
    settings = tensorflow.config.threading
    try:
        tensorflow.config.set_visible_devices(visible, "GPU")
        if settings.get_intra_op_parallelism_threads() != (threads or 0):
            settings.set_intra_op_parallelism_threads(threads or 0)
        if settings.get_inter_op_parallelism_threads() != between:
            settings.set_inter_op_parallelism_threads(between)
    except RuntimeError as error:
        raise RuntimeError("TensorFlow runs in this process already, " + _ANOTHER) from error
    return "/GPU:0" if kind == "cuda" else "/CPU:0"


def _read(request, place):
    """Read a model in the format that its name implies."""
    path = request.files["graph"]
    if os.path.isdir(path):
        return _read_saved_model(request, place)
    if path.endswith((".keras", ".h5")):
        return _read_keras(path, request.allow_code, place)
    if path.endswith(".pb"):
        return _read_frozen(request, place)
    kinds = "neither a SavedModel's folder nor .keras nor .h5 nor .pb"
    raise RuntimeError("it is no model of TensorFlow: " + kinds)


def _read_saved_model(request, place):
    path = request.files["graph"]
    name = request.options.get("signature", "serving_default")
    if not os.path.exists(os.path.join(path, "saved_model.pb")):
        advice = "name the folder in the archive: model.zip#folder"
        raise RuntimeError("%s has no saved_model.pb; %s" % (path, advice))
    if not request.allow_code:
        check_saved_model(path)
    module = tensorflow.saved_model.load(path)
    if name not in module.signatures:
        known = ", ".join(module.signatures) or "none"
        raise ValueError("no signature %r; the model has %s" % (name, known))
    function = module.signatures[name]
    inputs = _tensors(function.structured_input_signature[1].items())
    outputs = _tensors(function.structured_outputs.items())
    keys = [tensor.name for tensor in returned(outputs)]
    constant = tensorflow.constant

    def bind_to(arrays):
        def call():
            given = function(**{name: constant(array) for name, array in arrays.items()})
            return [given[key].numpy() for key in keys]

        return call

    names = [tensor.name for tensor in inputs]
    frozen = _once(lambda: freeze(function, names, place))
    variables = getattr(module, "variables", [])
    return _Read(_Model(bind_to, frozen, module), inputs, outputs, _place_of(variables, place))


def _read_keras(path, allow_code, place):
    import keras
    from mlms_predictors._tensorflow_files import refuse_code, refuse_links

    if not allow_code:
        refuse_code(path)
    refuse_links(path)
    module = keras.models.load_model(path, compile=False, safe_mode=not allow_code)
    specs = []
    for tensor in _keras_inputs(module):
        specs.append(tensorflow.TensorSpec(tensor.shape, tensor.dtype, tensor.name))

    def run(*tensors):
        if len(tensors) == 1:
            return module(tensors[0], training=False)
        return module(list(tensors), training=False)

    function = tensorflow.function(run, input_signature=specs).get_concrete_function()
    names = [spec.name for spec in specs]
    constant = tensorflow.constant
    flatten = tensorflow.nest.flatten
    outputs = _keras_outputs(module, function.structured_outputs)
    kept = [outputs.index(tensor) for tensor in returned(outputs)]

    def bind_to(arrays):
        feeds = [arrays[name] for name in names]

        def call():
            given = flatten(function(*[constant(array) for array in feeds]))
            return [given[number].numpy() for number in kept]

        return call

    frozen = _once(lambda: freeze(function, names, place))
    return _Read(
        model=_Model(bind_to, frozen, module),
        inputs=_tensors(zip(names, specs)),
        outputs=outputs,
        place=_place_of(module.variables, place),
    )


def _keras_inputs(module):
    """Return the inputs of a model; a subclassed one has none before it is called."""
    inputs = getattr(module, "inputs", None)
    if not inputs:
        raise RuntimeError(
            "it does not say its inputs; save a Functional or Sequential model with an Input, or "
            "model.export(folder)"
        )
    return inputs


def _keras_outputs(module, structured):
    """Name the outputs by the keys of a dict that the model returns, or else as Keras does.

    A Sequential of Keras 3 has no names; its only output is called like its last layer.
    """
    if isinstance(structured, dict):
        return _tensors(structured.items())
    specs = tensorflow.nest.flatten(structured)
    names = getattr(module, "output_names", None) or [module.layers[-1].name]
    return _tensors(zip(names, specs))


def _read_frozen(request, place):
    frozen = read_graph(
        path=request.files["graph"],
        inputs=_option_tensors(request.options, "inputs"),
        outputs=_option_tensors(request.options, "outputs"),
        place=place,
        threads=request.threads,
        allow_code=request.allow_code,
    )
    model = _Model(frozen.bind, _once(frozen.one_at_a_time), frozen)
    return _Read(model, frozen.input_tensors(), frozen.output_tensors(), place)


def _option_tensors(options, name):
    """Return the tensors that an option names; none where it isn't given."""
    if name not in options:
        return []
    return read_tensors(options[name])


def _once(make):
    """Return a call that makes an object once, and returns the same one each time."""
    made: List[Any] = []

    def get():
        if not made:
            made.append(make())
        return made[0]

    return get


def _tensors(named_specs):
    found = []
    for name, spec in named_specs:
        found.append(Tensor(name, spec.dtype.name, shape_of_spec(spec)))
    return found


def _place_of(variables, asked):
    """Return the device of the weights, or for a model without weights the one asked for."""
    for variable in variables:
        value = getattr(variable, "value", variable)
        place = str(getattr(value, "device", ""))
        if place:
            return place
    return asked
