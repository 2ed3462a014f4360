"""Write the digits network for TensorFlow and TensorFlow Lite.

That is digits_cnn_savedmodel.zip and digits_cnn.tflite.

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

import numpy as np
import tensorflow as tf
from keras import Input, Model
from keras.layers import Conv2D, Dense, Flatten, MaxPooling2D, Permute, ReLU
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

SIGNATURE = tf.TensorSpec([None, 1, 8, 8], tf.float32, name="image")
CONVOLUTIONS = ("conv2d_0", "conv2d_2", "conv2d_5")


def network():
    """Return the network; its layers have the names of the ONNX file's."""
    image = Input((1, 8, 8), name="image", dtype="float32")
    x = Permute((2, 3, 1), name="channels_last")(image)
    x = Conv2D(16, 3, padding="same", name="conv2d_0")(x)
    x = ReLU(name="relu_1")(x)
    x = Conv2D(32, 3, padding="same", name="conv2d_2")(x)
    x = ReLU(name="relu_3")(x)
    x = MaxPooling2D(2, name="maxpool2d_4")(x)
    x = Conv2D(64, 3, padding="same", name="conv2d_5")(x)
    x = ReLU(name="relu_6")(x)
    x = MaxPooling2D(2, name="maxpool2d_7")(x)
    x = Flatten(name="flatten_8")(x)
    logits = Dense(10, name="linear_9")(x)
    return Model(image, {"logits": logits}, name="digits_cnn")


def with_weights(path):
    """Return the network with the weights of an .npz file, their axes in TensorFlow's order."""
    arrays = np.load(path)
    model = network()
    for name in CONVOLUTIONS:
        kernel = arrays[name + "_weight"].transpose(2, 3, 1, 0)
        model.get_layer(name).set_weights([kernel, arrays[name + "_bias"]])
    weight = arrays["linear_9_weight"].reshape(10, 64, 2, 2)
    dense = weight.transpose(2, 3, 1, 0).reshape(256, 10)
    model.get_layer("linear_9").set_weights([dense, arrays["linear_9_bias"]])
    return model


def function_of(model):
    """Return the network as a function of images N x 1 x 8 x 8.

    It gives the logits by their name.
    """

    def run(image):
        return model(image, training=False)

    return tf.function(run, input_signature=[SIGNATURE])


def frozen(model):
    """Return the network as a function with the weights in it."""
    return convert_variables_to_constants_v2(function_of(model).get_concrete_function())


def save_model(model, folder, path):
    """Write a SavedModel into a folder, and that into a zip file."""
    module = tf.Module()
    module.model = model
    module.serve = function_of(model)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            info = zipfile.ZipInfo(str(file.relative_to(folder)))
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)


def save_lite(model, folder, path):
    """Write a TensorFlow Lite file in float32, whose signature has the model's names."""
    function = frozen(model)

    def run(image):
        return {"logits": function(image)[0]}

    module = tf.Module()
    module.serve = tf.function(run, input_signature=[SIGNATURE])
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    path.write_bytes(converter.convert())


def save_frozen(model, path):
    """Write a graph with the weights in it, as TensorFlow 1 had them.

    Its output is the node logits.
    """
    function = frozen(model)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(function.graph.as_graph_def(), name="")
        output = graph.get_tensor_by_name(function.outputs[0].name)
        tf.identity(output, name="logits")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def main():
    """Write what is shipped, or all formats into a folder."""
    model = with_weights(sys.argv[1])
    folder = Path(__file__).parent
    if len(sys.argv) > 2:
        folder = Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as temporary:
        save_model(model, Path(temporary, "variables"), folder / "digits_cnn_savedmodel.zip")
        save_lite(model, Path(temporary, "constants"), folder / "digits_cnn.tflite")
    if len(sys.argv) > 2:
        model.save(folder / "digits_cnn.keras")
        save_frozen(model, folder / "digits_cnn.pb")


if __name__ == "__main__":
    main()
