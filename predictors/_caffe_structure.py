"""What a network of Caffe is made of: its layers and blobs, at the shapes that it is set to."""

import caffe
from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._run.products import contraction, convolution, count, transposed_convolution

_FORMULAS = {
    "Convolution": convolution,
    "Deconvolution": transposed_convolution,
    "InnerProduct": contraction,
}


def structure(net):
    """Return the Structure of a network as it is set."""
    same, layers, weights = {}, [], {}
    for name, layer in zip(net._layer_names, net.layers):
        bottoms, tops = (
            [same.get(blob, blob) for blob in side[name]]
            for side in (net.bottom_names, net.top_names)
        )
        if (
            layer.type == "Split"
        ):  # Caffe itself puts it where a blob has many readers; nothing is copied
            same.update(dict.fromkeys(tops, bottoms[0]))
        elif layer.type != "Input":
            learned = [
                _tensor("weights at %d" % blob.data.ctypes.data, blob) for blob in layer.blobs
            ]
            weights.update((tensor.name, tensor) for tensor in learned)
            flops = _flops(net, layer, bottoms, tops)
            layers.append(
                Operation(name, layer.type, flops, bottoms + [one.name for one in learned], tops)
            )
    tensors = [_tensor(name, blob) for name, blob in net.blobs.items()] + list(weights.values())
    outputs = [same.get(name, name) for name in net.outputs]
    return Structure(
        layers,
        tensors,
        list(net.inputs),
        outputs,
        "the shapes of Caffe %s's blobs" % caffe.__version__,
    )


def _flops(net, layer, bottoms, tops):
    """Return a layer's operations; one with several bottoms does the same with each of them."""
    kernels = [tuple(blob.shape) for blob in layer.blobs][:1] or [None]
    pairs = [[tuple(net.blobs[name].shape) for name in pair] for pair in zip(bottoms, tops)]
    counts = [
        count(layer.type, _FORMULAS, (source, kernels[0], output)) for source, output in pairs
    ]
    return None if None in counts else sum(counts)


def _tensor(name, blob):
    return Tensor(name, "float32", tuple(blob.shape))
