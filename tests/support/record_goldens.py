"""Goldens of files of records, written by TensorFlow and by MXNet.

Run in an environment of its own with one of them:

    pip install tensorflow-cpu==2.21.0
    python tests/support/record_goldens.py tensorflow tests/measure/pipeline/goldens
    pip install mxnet==1.9.1 'numpy<1.24'
    python tests/support/record_goldens.py mxnet tests/measure/pipeline/goldens
"""

import sys
from pathlib import Path
from typing import Any

PICTURES = [bytes([137, 80, 78, 71]) + bytes(range(number)) for number in range(5)]
"""Stand-ins for pictures: their bytes are compared, not decoded."""

MAGIC = b"\x0a\x23\xd7\xce"
PARTED = [b"1234" + MAGIC + b"5678" + MAGIC, MAGIC, b"ab" + MAGIC + b"c"]
"""Data with the number of RecordIO in it; at a multiple of 4 bytes it is cut there."""


def write_tensorflow(folder: Path) -> None:
    """Write records with features of each kind."""
    import tensorflow  # type: ignore[import-not-found,unused-ignore]

    tf: Any = tensorflow
    train = tf.train
    with tf.io.TFRecordWriter(str(folder / "examples.tfrecord")) as writer:
        for number, picture in enumerate(PICTURES):
            features = {
                "image/encoded": train.Feature(bytes_list=train.BytesList(value=[picture])),
                "image/class/label": train.Feature(int64_list=train.Int64List(value=[number])),
                "ids": train.Feature(int64_list=train.Int64List(value=[number, -1, 300])),
                "mean": train.Feature(float_list=train.FloatList(value=[number / 2, 1.5])),
                "text": train.Feature(
                    bytes_list=train.BytesList(value=[f"größe {number}".encode()])
                ),
            }
            example = train.Example(features=train.Features(feature=features))
            writer.write(example.SerializeToString())


def write_mxnet(folder: Path) -> None:
    """Write images with one class or several numbers, and data with the magic number in it."""
    from mxnet import recordio  # type: ignore[import-not-found,unused-ignore]

    images = recordio.MXRecordIO(str(folder / "images.rec"), "w")
    for number, picture in enumerate([*PICTURES, *PARTED]):
        images.write(recordio.pack(recordio.IRHeader(0, float(number), number, 0), picture))
    images.close()
    numbers = recordio.MXRecordIO(str(folder / "numbers.rec"), "w")
    for number, picture in enumerate(PICTURES):
        header = recordio.IRHeader(0, [number, 0.5, -2], number, 0)
        numbers.write(recordio.pack(header, picture))
    numbers.close()


def main() -> None:
    """Write the files of a library."""
    library, folder = sys.argv[1:]
    write = write_tensorflow if library == "tensorflow" else write_mxnet
    write(Path(folder))


if __name__ == "__main__":
    main()
