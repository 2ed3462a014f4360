"""Caffe (BVLC): ``graph`` is a prototxt for deployment, ``weights`` its caffemodel.

Versions: 1.0; tested with kendryte-caffe 1.0.0.20210829, a build on PyPI for Python 3.9.

Devices: cpu. The GPU builds are not on PyPI.

Synchronises: on the CPU a layer has finished when its call returns. Outputs are copied.

Options: none. A layer of type Python needs ``--mlms-allow-code``. The number of threads is
OpenBLAS's, which matrix products use; the rest of Caffe has one thread.

Layer times: each layer is run and timed by its own call (``net._forward(i, i)``), as Caffe's own
loop does. Inner outputs: the tops of the layers, copied after each, since the next layer may write
in place.

Caffe ends its process when a file contains something unknown. So the files are read and compared
before Caffe gets them.
"""

import ctypes
import os
import time
from typing import Dict

os.environ.setdefault("GLOG_minloglevel", "2")  # else a page for each layer that is loaded

import caffe
import numpy
from caffe.proto import caffe_pb2
from google.protobuf import message, text_format
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
)
from mlms_predictors._run.checks import check, file_of, refuse_gpu, refuse_unknown
from mlms_predictors._run.steps import between

OPTIONS: Dict[str, str] = {}
_LIBRARY = ctypes.CDLL(caffe._caffe.__file__)  # it has OpenBLAS inside
_WITH_FILES = ("Data", "HDF5Data", "HDF5Output", "ImageData", "WindowData")
_OLD_WITH_FILES = ("DATA", "HDF5_DATA", "HDF5_OUTPUT", "IMAGE_DATA", "WINDOW_DATA")
"""Types of layers that read or write files, today and before 2014."""
_OTHER_FILES = (
    "%s: layer %r may read or write files that no digest covers; use layers of type Input"
)
_NOT_SHOWN = ("Input", "Split")
"""Layers without inner outputs; Caffe itself puts Split where a blob has many readers."""


class _Model:
    """A network, and the shapes that it is set to."""

    def __init__(self, net):
        self.net = net
        self.last = len(net.layers) - 1
        self.shapes = None

    def set_shapes(self, shapes):
        """Set the network to the shapes of its inputs, where it isn't."""
        if shapes != self.shapes:
            for name, shape in shapes.items():
                self.net.blobs[name].reshape(*shape)
            self.net.reshape()
            self.shapes = shapes


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"caffe": caffe.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Make the network and fill it.

    Raises ValueError where a file is none of Caffe's, or they don't fit together.
    """
    refuse_gpu(request.device, "Caffe")
    refuse_unknown(request.options, OPTIONS)
    if request.threads:
        _LIBRARY.openblas_set_num_threads(request.threads)
    graph = request.files["graph"]
    _check_graph(graph, request.allow_code)
    weights = file_of(request.files, "weights", "MODEL.caffemodel")
    sizes = _sizes(weights)
    caffe.set_mode_cpu()
    net = caffe.Net(graph, caffe.TEST)
    _check_weights(net, sizes, weights)
    net.copy_from(weights)
    if not net.inputs:
        advice = "give it a layer of type Input, as deploy files have"
        raise ValueError("%s has no inputs; %s" % (graph, advice))
    return Loaded(
        model=_Model(net),
        device="cpu",
        threads=_LIBRARY.openblas_get_num_threads(),
        inputs=_tensors(net, net.inputs),
        outputs=_tensors(net, net.outputs),
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    check(loaded.inputs, arrays)
    model = loaded.model
    shapes = {tensor.name: arrays[tensor.name].shape for tensor in loaded.inputs}
    names = [tensor.name for tensor in loaded.outputs]
    pairs = list(arrays.items())
    blobs = model.net.blobs
    forward = model.net._forward
    last = model.last

    def call():
        model.set_shapes(shapes)
        for name, array in pairs:
            blobs[name].data[...] = array
        forward(0, last)
        return [blobs[name].data.copy() for name in names]

    return call


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch layer by layer and return when each ran."""
    net = loaded.model.net
    clock = time.perf_counter
    times = []
    start = clock()
    for index in _fed_layers(loaded, arrays):
        between()
        begin = clock()
        net._forward(index, index)
        times.append((index, begin, clock()))
    between()
    end = clock()
    found = []
    for index, begin, ended in times:
        if net.layers[index].type != "Input":
            found.append(_layer(net, index, begin, ended))
    return Profile(start, end, found)


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch layer by layer and return what each gave."""
    net = loaded.model.net
    found = []
    for index in _fed_layers(loaded, arrays):
        net._forward(index, index)
        if net.layers[index].type not in _NOT_SHOWN:
            name = net._layer_names[index]
            top = net.top_names[name][0]
            found.append((name, net.blobs[top].data.copy()))
    return found


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the network as a graph for inputs of these shapes.

    Operations are counted by ``products``. The network is set to these shapes meanwhile, which
    allocates nothing before it runs.
    """
    from mlms_predictors._caffe_structure import structure as describe

    model = loaded.model
    before = model.shapes
    if before is None:
        before = {}
        for name in model.net.inputs:
            before[name] = tuple(model.net.blobs[name].shape)
    model.set_shapes(shapes)
    try:
        return describe(model.net)
    finally:
        model.set_shapes(before)


def close(loaded: Loaded) -> None:
    """Free the network's blobs, even where ``loaded`` is still referenced."""
    loaded.model.net = None


def _fed_layers(loaded, arrays):
    """Put a batch in and return the layers' numbers."""
    check(loaded.inputs, arrays)
    model = loaded.model
    model.set_shapes({name: array.shape for name, array in arrays.items()})
    for name, array in arrays.items():
        model.net.blobs[name].data[...] = array
    return range(model.last + 1)


def _layer(net, index, start, end):
    name = net._layer_names[index]
    tops = [net.blobs[top].data for top in net.top_names[name]]
    size = sum(top.nbytes for top in tops)
    shape = tops[0].shape if tops else None
    return Layer(name, net.layers[index].type, start, end, size, shape)


def _check_graph(path, allow_code):
    """Read a prototxt.

    Raises ValueError where it is none, or names a type of layer that this Caffe lacks or that reads
    or writes other files, and PermissionError for a layer that is code.
    """
    try:
        with open(path, encoding="utf-8") as file:
            net = text_format.Parse(file.read(), caffe_pb2.NetParameter())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError("%s is no prototxt of Caffe: %s" % (path, error)) from None
    if not net.layer and not net.layers:
        raise ValueError("%s has no layers" % path)
    _check_layers(net, path, allow_code)
    for layer in net.layers:
        kind = caffe_pb2.V1LayerParameter.LayerType.Name(layer.type)
        if kind in _OLD_WITH_FILES or layer.HasField("layer"):
            raise ValueError(_OTHER_FILES % (path, layer.name))


def _check_layers(net, path, allow_code):
    known = set(caffe.layer_type_list())
    for layer in net.layer:
        if layer.type not in known:
            text = "%s: this Caffe has no layer of type %s, as is %r"
            raise ValueError(text % (path, layer.type, layer.name))
        if layer.type == "Python" and not allow_code:
            text = "%s: layer %r is code; allow it with --mlms-allow-code"
            raise PermissionError(text % (path, layer.name))
        if layer.type in _WITH_FILES:
            raise ValueError(_OTHER_FILES % (path, layer.name))


def _sizes(path):
    """Return the elements of each blob of each layer in a caffemodel."""
    net = caffe_pb2.NetParameter()
    try:
        with open(path, "rb") as file:
            net.ParseFromString(file.read())
    except message.DecodeError:
        raise ValueError("%s is no caffemodel" % path) from None
    sizes = {}
    for layer in [*net.layer, *net.layers]:  # the second is how files of before 2014 have it
        sizes[layer.name] = [_elements(blob) for blob in layer.blobs]
    return sizes


def _elements(blob):
    return len(blob.data) or len(blob.double_data)


def _check_weights(net, sizes, path):
    """Raise ValueError where a layer's weights are not in the file, or of another size.

    Caffe leaves at random what a file lacks, and ends its process where a blob has another size.
    """
    for name, blobs in net.params.items():
        expected = [blob.count for blob in blobs]
        if name not in sizes:
            found = "has none"
        elif sizes[name] != expected:
            found = "has %s" % sizes[name]
        else:
            continue
        raise ValueError("layer %r takes %s weights, and %s %s" % (name, expected, path, found))


def _tensors(net, names):
    """Return blobs as Tensors, the first axis free."""
    found = []
    for name in names:
        sizes = tuple(net.blobs[name].shape)[1:]
        found.append(Tensor(name, "float32", (None, *sizes)))
    return found
