"""The structure of a Caffe network: its layers and blobs, at the shapes that it is set to."""

from typing import Any, Dict, Iterable, List

import caffe
from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._run.products import contraction, convolution, count, transposed_convolution

_FORMULAS = {
    "Convolution": convolution,
    "Deconvolution": transposed_convolution,
    "InnerProduct": contraction,
}


def structure(net: Any) -> Structure:
    """Return the Structure of a network as it is set."""
    graph = _Graph(net)
    for name, layer in zip(net._layer_names, net.layers):
        graph.add(name, layer)
    blobs = [_tensor(name, blob) for name, blob in net.blobs.items()]
    return Structure(
        layers=graph.operations,
        tensors=blobs + list(graph.weights.values()),
        inputs=list(net.inputs),
        outputs=graph.resolved(net.outputs),
        counter="the shapes of Caffe %s's blobs" % caffe.__version__,
    )


class _Graph:
    """Operations and weights of a network, with the aliases that Split layers make."""

    def __init__(self, net):
        self.operations: List[Operation] = []
        self.weights: Dict[str, Tensor] = {}
        self._net = net
        self._aliases: Dict[str, str] = {}

    def add(self, name: str, layer: Any) -> None:
        """Add a layer.

        Caffe inserts a Split where a blob has many readers; it copies nothing.
        """
        bottoms = self.resolved(self._net.bottom_names[name])
        tops = self.resolved(self._net.top_names[name])
        if layer.type == "Split":
            for top in tops:
                self._aliases[top] = bottoms[0]
        elif layer.type != "Input":
            reads = bottoms + self._add_weights(layer)
            flops = self._flops(layer, bottoms, tops)
            self.operations.append(Operation(name, layer.type, flops, reads, tops))

    def resolved(self, names: Iterable[str]) -> List[str]:
        """Return the names of the blobs that these are aliases of."""
        return [self._aliases.get(name, name) for name in names]

    def _add_weights(self, layer):
        """Add a layer's weights and return their names; shared weights have one name."""
        names = []
        for blob in layer.blobs:
            name = "weights at %d" % blob.data.ctypes.data
            self.weights[name] = _tensor(name, blob)
            names.append(name)
        return names

    def _flops(self, layer, bottoms, tops):
        """Return a layer's operations, the sum over its pairs of bottom and top."""
        kernel = None
        if len(layer.blobs):
            kernel = tuple(layer.blobs[0].shape)
        total = 0
        for bottom, top in zip(bottoms, tops):
            shapes = (self._shape(bottom), kernel, self._shape(top))
            flops = count(layer.type, _FORMULAS, shapes)
            if flops is None:
                return None
            total += flops
        return total

    def _shape(self, name):
        return tuple(self._net.blobs[name].shape)


def _tensor(name, blob):
    return Tensor(name, "float32", tuple(blob.shape))
