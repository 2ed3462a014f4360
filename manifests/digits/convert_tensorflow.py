"""Write the digits network for TensorFlow and TensorFlow Lite: digits_cnn_savedmodel.zip and
digits_cnn.tflite.

    pip install tensorflow-cpu==2.21.0
    python manifests/digits/convert_tensorflow.py weights.npz [FOLDER]

With a FOLDER it writes there, and also digits_cnn.keras (Keras) and digits_cnn.pb (a frozen TF1
graph). weights.npz is by weights.py. TensorFlow's convolutions on the CPU take channels last, so
the images are transposed first.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

LAYERS = keras.layers


def network():
    """Return the network; its layers have the names of the ONNX file's."""
    image = keras.Input((1, 8, 8), name="image", dtype="float32")
    x = LAYERS.Permute((2, 3, 1), name="channels_last")(image)
    x = LAYERS.Conv2D(16, 3, padding="same", name="conv2d_0")(x)
    x = LAYERS.ReLU(name="relu_1")(x)
    x = LAYERS.Conv2D(32, 3, padding="same", name="conv2d_2")(x)
    x = LAYERS.ReLU(name="relu_3")(x)
    x = LAYERS.MaxPooling2D(2, name="maxpool2d_4")(x)
    x = LAYERS.Conv2D(64, 3, padding="same", name="conv2d_5")(x)
    x = LAYERS.ReLU(name="relu_6")(x)
    x = LAYERS.MaxPooling2D(2, name="maxpool2d_7")(x)
    x = LAYERS.Flatten(name="flatten_8")(x)
    return keras.Model(image, {"logits": LAYERS.Dense(10, name="linear_9")(x)}, name="digits_cnn")


def with_weights(path):
    """Return the network with the weights of an .npz file, their axes in TensorFlow's order."""
    arrays, model = np.load(path), network()
    for name in ("conv2d_0", "conv2d_2", "conv2d_5"):
        kernel = arrays[name + "_weight"].transpose(2, 3, 1, 0)
        model.get_layer(name).set_weights([kernel, arrays[name + "_bias"]])
    dense = arrays["linear_9_weight"].reshape(10, 64, 2, 2).transpose(2, 3, 1, 0).reshape(256, 10)
    model.get_layer("linear_9").set_weights([dense, arrays["linear_9_bias"]])
    return model


def function_of(model):
    """Return the network as a function of images N x 1 x 8 x 8 that gives the logits by their name."""
    signature = [tf.TensorSpec([None, 1, 8, 8], tf.float32, name="image")]
    return tf.function(lambda image: model(image, training=False), input_signature=signature)


def save_model(model, folder, path):
    """Write a SavedModel into a folder, and that into a zip file."""
    module = tf.Module()
    module.model, module.serve = model, function_of(model)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                info = zipfile.ZipInfo(str(file.relative_to(folder)))
                archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)


def save_lite(model, folder, path):
    """Write a TensorFlow Lite file in float32, whose signature has the model's names."""
    frozen = convert_variables_to_constants_v2(function_of(model).get_concrete_function())
    module, signature = tf.Module(), [tf.TensorSpec([None, 1, 8, 8], tf.float32, name="image")]
    module.serve = tf.function(
        lambda image: {"logits": frozen(image)[0]}, input_signature=signature
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})
    path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert())


def save_frozen(model, path):
    """Write a graph with the weights in it, as TensorFlow 1 had them.

    Its output is the node logits.
    """
    frozen = convert_variables_to_constants_v2(function_of(model).get_concrete_function())
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(frozen.graph.as_graph_def(), name="")
        tf.identity(graph.get_tensor_by_name(frozen.outputs[0].name), name="logits")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def main():
    """Write what is shipped, or all formats into a folder."""
    model = with_weights(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent)
    with tempfile.TemporaryDirectory() as temporary:
        save_model(model, Path(temporary, "variables"), folder / "digits_cnn_savedmodel.zip")
        save_lite(model, Path(temporary, "constants"), folder / "digits_cnn.tflite")
    if len(sys.argv) > 2:
        model.save(folder / "digits_cnn.keras")
        save_frozen(model, folder / "digits_cnn.pb")


if __name__ == "__main__":
    main()
