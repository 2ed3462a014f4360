"""JAX: TARGET.jax, StableHLO as jax.export serializes it, for the CPU and for CUDA, with a free
batch size.
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
        return flow.reshape(-1, int(numpy.prod(flow.shape[1:])))
    if layer.kind == "dense":
        return flow @ layer.weight.T + layer.bias
    pad = [(size, size) for size in layer.pad]
    if layer.kind == "conv":
        return (
            lax.conv_general_dilated(flow, layer.weight, layer.stride, pad)
            + layer.bias[:, None, None]
        )
    whole = (1, 1)
    return lax.reduce_window(
        flow, -jnp.inf, lax.max, whole + layer.kernel, whole + layer.stride, [(0, 0)] * 2 + pad
    )


def function_of(network):
    """Return the network as a function of images N x C x H x W, by name, that gives the output by
    its name.
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
    axes = ", ".join(map(str, ("batch",) + network.shape))
    image = jax.ShapeDtypeStruct(export.symbolic_shape(axes), jnp.float32)
    exported = export.export(jax.jit(function_of(network)), platforms=("cpu", "cuda"))(
        **{network.input: image}
    )
    Path(target + ".jax").write_bytes(bytes(exported.serialize()))
    report(graph=target + ".jax")


if __name__ == "__main__":
    main()
