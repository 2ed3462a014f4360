"""JAX: TARGET.jax, StableHLO as jax.export serializes it.

It is for the CPU and for CUDA, with a free batch size.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy
from jax import export, lax
from network import arguments, report


def _layer(layer, flow):
    if layer.kind == "relu":
        return jax.nn.relu(flow)
    if layer.kind == "flatten":
        size = int(numpy.prod(flow.shape[1:]))
        return flow.reshape(-1, size)
    if layer.kind == "dense":
        return flow @ layer.weight.T + layer.bias
    pad = [(size, size) for size in layer.pad]
    if layer.kind == "conv":
        product = lax.conv_general_dilated(flow, layer.weight, layer.stride, pad)
        return product + layer.bias[:, None, None]
    window = (1, 1) + layer.kernel
    stride = (1, 1) + layer.stride
    whole = [(0, 0), (0, 0)]
    return lax.reduce_window(flow, -jnp.inf, lax.max, window, stride, whole + pad)


def function_of(network):
    """Return the network as a function of images N x C x H x W, by name.

    It gives the output by its name.
    """

    def run(**images):
        flow = images[network.input]
        for layer in network.layers:
            flow = _layer(layer, flow)
        return {network.output: flow}

    return run


def main():
    """Write the file."""
    network, target = arguments()
    path = target + ".jax"
    axes = ["batch", *(str(size) for size in network.shape)]
    image = jax.ShapeDtypeStruct(export.symbolic_shape(", ".join(axes)), jnp.float32)
    exporter = export.export(jax.jit(function_of(network)), platforms=("cpu", "cuda"))
    exported = exporter(**{network.input: image})
    Path(path).write_bytes(bytes(exported.serialize()))
    report(graph=path)


if __name__ == "__main__":
    main()
