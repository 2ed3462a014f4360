"""Write the digits network for JAX: digits_cnn.jax, StableHLO as jax.export serializes it.

    pip install jax==0.10.2 flatbuffers
    python manifests/digits/convert_jax.py weights.npz [FOLDER]

weights.npz is by weights.py.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax


def function_of(arrays):
    """Return the network as a function of images N x 1 x 8 x 8.

    It gives the logits by their name.
    """

    def convolve(x, name):
        bias = arrays[name + "_bias"][:, None, None]
        x = lax.conv_general_dilated(x, arrays[name + "_weight"], (1, 1), "SAME")
        return jax.nn.relu(x + bias)

    def halve(x):
        window = (1, 1, 2, 2)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    def run(image):
        x = convolve(image, "conv2d_0")
        x = convolve(x, "conv2d_2")
        x = halve(x)
        x = convolve(x, "conv2d_5")
        x = halve(x)
        x = x.reshape(-1, 256)
        return {"logits": x @ arrays["linear_9_weight"].T + arrays["linear_9_bias"]}

    return run


def main():
    """Write the file, for the CPU and for CUDA, with a free batch size."""
    # Without this it holds this machine's paths.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    folder = Path(__file__).parent
    if len(sys.argv) > 2:
        folder = Path(sys.argv[2])
    arrays = dict(np.load(sys.argv[1]))
    image = jax.ShapeDtypeStruct(export.symbolic_shape("batch, 1, 8, 8"), jnp.float32)
    exporter = export.export(jax.jit(function_of(arrays)), platforms=("cpu", "cuda"))
    exported = exporter(image=image)
    (folder / "digits_cnn.jax").write_bytes(bytes(exported.serialize()))


if __name__ == "__main__":
    main()
