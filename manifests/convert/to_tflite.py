"""TensorFlow Lite: TARGET.tflite in float32, whose signature has the names.

Runs where TensorFlow is.
"""

import tempfile
from pathlib import Path

import tensorflow as tf
from network import arguments, report
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from to_tensorflow import model


def main():
    """Write the file."""
    network, target = arguments()
    path = target + ".tflite"
    whole = model(network)  # the function holds its variables by this only
    frozen = convert_variables_to_constants_v2(whole.serve.get_concrete_function())

    def run(image):
        return {network.output: frozen(image)[0]}

    module = tf.Module()
    signature = tf.TensorSpec([None, *network.shape], tf.float32, name=network.input)
    module.serve = tf.function(run, input_signature=[signature])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"serving_default": module.serve})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        Path(path).write_bytes(converter.convert())
    report(graph=path)


if __name__ == "__main__":
    main()
