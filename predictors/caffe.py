"""Caffe, the real one: ``graph`` is a prototxt for deployment, ``weights`` its caffemodel.

Versions: 1.0; tried with kendryte-caffe 1.0.0.20210829, a build of it on PyPI for Python 3.9.
Devices: cpu; its GPU builds are not on PyPI. Synchronises: on the CPU a layer is done when its call
returns; outputs are copied.

Options: none. Threads are OpenBLAS's: those of the matrix products, the rest of Caffe has one.

Layer times: each layer by a call of its own (net._forward(i, i)), timed here; in between nothing is
lost, as Caffe does the same in a loop. Inner outputs: the layers' tops, copied after each, since
the next may write in place. Caffe ends its process when a file holds what it doesn't know, so files
are read and compared here before it gets them.
"""

import ctypes
import os
import time

os.environ.setdefault("GLOG_minloglevel", "2")  # else a page for each layer that is loaded

import caffe
import numpy
from caffe.proto import caffe_pb2
from google.protobuf import message, text_format
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run.checks import check, file_of, refuse_gpu, refuse_unknown
from mlms_predictors._run.steps import between

_LIBRARY = ctypes.CDLL(caffe._caffe.__file__)  # it has OpenBLAS inside


class _Model:
    """The network, and the shapes that it is set to."""

    def __init__(self, net):
        self.net, self.last, self.shapes = net, len(net.layers) - 1, None

    def set_shapes(self, shapes):
        """Set it to the shapes of its inputs, where it isn't."""
        if shapes != self.shapes:
            for name, shape in shapes.items():
                self.net.blobs[name].reshape(*shape)
            self.net.reshape()
            self.shapes = shapes


def versions():
    """Return the versions of what computes."""
    return {"caffe": caffe.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"]


def load(request):
    """Make the network and fill it.

    Raises ValueError where a file is none of Caffe's, or they don't fit together.
    """
    refuse_gpu(request.device, "Caffe")
    refuse_unknown(request.options, ())
    if request.threads:
        _LIBRARY.openblas_set_num_threads(request.threads)
    _check_graph(request.files["graph"])
    sizes = _sizes(file_of(request.files, "weights", "MODEL.caffemodel"))
    caffe.set_mode_cpu()
    net = caffe.Net(request.files["graph"], caffe.TEST)
    _check_weights(net, sizes, request.files["weights"])
    net.copy_from(request.files["weights"])
    if not net.inputs:
        raise ValueError(
            "%s has no inputs; give it a layer of type Input, as deploy files have"
            % request.files["graph"]
        )
    inputs, outputs = (
        [_tensor(name, net.blobs[name]) for name in names] for names in (net.inputs, net.outputs)
    )
    return Loaded(_Model(net), "cpu", _LIBRARY.openblas_get_num_threads(), inputs, outputs)


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    check(loaded.inputs, arrays)
    model, names = loaded.model, [tensor.name for tensor in loaded.outputs]
    shapes = {tensor.name: arrays[tensor.name].shape for tensor in loaded.inputs}
    pairs, blobs, forward, last = (
        list(arrays.items()),
        model.net.blobs,
        model.net._forward,
        model.last,
    )

    def call():
        model.set_shapes(shapes)
        for name, array in pairs:
            blobs[name].data[...] = array
        forward(0, last)
        return [blobs[name].data.copy() for name in names]

    return call


def layers(loaded, arrays):
    """Run one batch layer by layer and return when each ran."""
    net, clock, times = loaded.model.net, time.perf_counter, []
    start = clock()
    for index in _each(loaded, arrays):
        between()
        begin = clock()
        net._forward(index, index)
        times.append((index, begin, clock()))
    between()
    return Profile(
        start, clock(), [_layer(net, *ran) for ran in times if net.layers[ran[0]].type != "Input"]
    )


def inner(loaded, arrays):
    """Run one batch layer by layer and return what each gave."""
    net, found = loaded.model.net, []
    for index in _each(loaded, arrays):
        net._forward(index, index)
        if net.layers[index].type not in (
            "Input",
            "Split",
        ):  # Caffe itself puts Split where a blob has many readers
            name = net._layer_names[index]
            found.append((name, net.blobs[net.top_names[name][0]].data.copy()))
    return found


def structure(loaded, shapes):
    """Return the network as a graph for inputs of these shapes, which it is set to meanwhile;
    counts are ours.

    Nothing is allocated for that before it runs; Caffe keeps room for the largest shapes that it
    was ever set to.
    """
    from mlms_predictors._caffe_structure import structure as write_down

    model = loaded.model
    before = model.shapes or {name: tuple(model.net.blobs[name].shape) for name in model.net.inputs}
    model.set_shapes(shapes)
    try:
        return write_down(model.net)
    finally:
        model.set_shapes(before)


def close(loaded):
    """Free the network's blobs, whoever still holds what was loaded."""
    loaded.model.net = None


def _each(loaded, arrays):
    """Put a batch in and return the layers' numbers."""
    check(loaded.inputs, arrays)
    loaded.model.set_shapes({name: array.shape for name, array in arrays.items()})
    for name, array in arrays.items():
        loaded.model.net.blobs[name].data[...] = array
    return range(loaded.model.last + 1)


def _layer(net, index, start, end):
    name = net._layer_names[index]
    tops = [net.blobs[top].data for top in net.top_names[name]]
    size = sum(top.nbytes for top in tops)
    return Layer(name, net.layers[index].type, start, end, size, tops[0].shape if tops else None)


def _check_graph(path):
    """Read a prototxt; raises ValueError where it is none, or names a type of layer that this Caffe
    lacks.
    """
    try:
        with open(path, encoding="utf-8") as file:
            net = text_format.Parse(file.read(), caffe_pb2.NetParameter())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError("%s is no prototxt of Caffe: %s" % (path, error)) from None
    if not net.layer and not net.layers:
        raise ValueError("%s has no layers" % path)
    known = set(caffe.layer_type_list())
    for layer in net.layer:
        if layer.type not in known:
            raise ValueError(
                "%s: this Caffe has no layer of type %s, as is %r" % (path, layer.type, layer.name)
            )


def _sizes(path):
    """Return the elements of each blob of each layer in a caffemodel."""
    net = caffe_pb2.NetParameter()
    try:
        with open(path, "rb") as file:
            net.ParseFromString(file.read())
    except message.DecodeError:
        raise ValueError("%s is no caffemodel" % path) from None
    return {
        layer.name: [len(blob.data) or len(blob.double_data) for blob in layer.blobs]
        for layer in _layers(net)
    }


def _layers(net):
    return list(net.layer) + list(net.layers)  # the second is how files of before 2014 have it


def _check_weights(net, sizes, path):
    """Compare, as Caffe leaves at random what a file lacks, and ends its process where a blob has
    another size.
    """
    for name, blobs in net.params.items():
        wanted = [blob.count for blob in blobs]
        if sizes.get(name) != wanted:
            found = "has none" if name not in sizes else "has %s" % sizes[name]
            raise ValueError("layer %r takes %s weights, and %s %s" % (name, wanted, path, found))


def _tensor(name, blob):
    return Tensor(name, "float32", (None,) + tuple(blob.shape)[1:])
