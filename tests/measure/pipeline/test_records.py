"""Datasets in files of records, as TensorFlow and MXNet write them."""

from __future__ import annotations

import io
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import Dataset, LabelForm, open_dataset, without_corrupt
from pytest_mlms.measure.pipeline.record_files import crc32c, crc32c_in_numpy, masked_crc32c
from tests.support.record_goldens import PARTED, PICTURES

GOLDENS = Path(__file__).with_name("goldens")
EXAMPLES = GOLDENS / "examples.tfrecord"
IMAGES = GOLDENS / "images.rec"
HERE = Place(Path("m.yaml"), 30)


def make_input(name: str, kind: str = "tensor", **fields: Any) -> Input:
    whole = {"name": name, "type": kind, "element_type": "float32", **fields}
    return Input.model_validate(whole)


IMAGE = make_input("x", "image", layout="NHWC", steps=["decode"])


def opened(path: Path, *inputs: Input, form: LabelForm = "class") -> Dataset:
    return open_dataset(path, inputs or [IMAGE], HERE, path.name, form)


@pytest.mark.parametrize(
    ("data", "checksum"),
    [  # https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_checksums_are_those_of_the_standard(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum
    assert crc32c_in_numpy(data) == checksum


def slow_crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_checksums_of_all_lengths_are_those_bit_by_bit() -> None:
    data = np.random.default_rng(1).integers(0, 256, 3000, dtype=np.uint8).tobytes()
    for length in [*range(1, 70), 255, 256, 257, 1023, 3000]:
        expected = slow_crc32c(data[:length])
        assert crc32c(data[:length]) == expected, length
        assert crc32c_in_numpy(data[:length]) == expected, length


def test_features_of_tensorflow_are_elements_and_labels() -> None:
    inputs = [
        make_input("x", "image", layout="NHWC", column="image/encoded"),
        make_input("ids", element_type="int64"),
        make_input("mean", shape=["batch", 2, 1]),
    ]
    data = opened(EXAMPLES, *inputs)
    assert len(data) == 5
    assert list(data.elements["x"]) == PICTURES
    assert np.asarray(data.labels).tolist() == [0, 1, 2, 3, 4]
    assert np.asarray(data.elements["ids"][4]).tolist() == [4, -1, 300]
    assert np.asarray(data.elements["mean"][3]).tolist() == [[1.5], [1.5]]
    assert data.place(3) == "examples.tfrecord: record 3"


def test_the_only_image_is_that_of_tensorflow_slim() -> None:
    assert opened(EXAMPLES).elements["x"][1] == PICTURES[1]


def test_a_feature_that_is_missing_is_an_error() -> None:
    message = (
        "has the features ids, image/class/label, .*, text; expected one for input 'age'; write"
    )
    with pytest.raises(DatasetError, match=message):
        opened(EXAMPLES, make_input("age"))


def test_images_of_mxnet_have_their_class() -> None:
    data = opened(IMAGES)
    assert list(data.elements["x"]) == [*PICTURES, *PARTED]
    assert np.asarray(data.labels).tolist() == list(range(len(PICTURES) + len(PARTED)))


def test_images_of_mxnet_may_have_several_numbers() -> None:
    data = opened(GOLDENS / "numbers.rec", form="array")
    assert data.labels is not None
    assert np.asarray(data.labels[3]).tolist() == [3, 0.5, -2]
    assert data.elements["x"][3] == PICTURES[3]
    with pytest.raises(DatasetError, match="the label of record 0; expected a class"):
        opened(GOLDENS / "numbers.rec")


def test_the_parts_of_a_folder_follow_each_other_by_name(tmp_path: Path) -> None:
    for name in ("b-00001-of-00002", "a-00000-of-00002"):
        shutil.copy(EXAMPLES, tmp_path / name)
    data = opened(tmp_path)
    assert len(data) == 10
    assert data.place(4) == "a-00000-of-00002: record 4"
    assert data.place(5) == "b-00001-of-00002: record 0"
    shutil.copy(IMAGES, tmp_path)
    with pytest.raises(DatasetError, match="has files of TFRecord and of RecordIO; keep those of"):
        opened(tmp_path)


def picture(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (value, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 1 << 14
    length = len(content)
    size = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([number << 3 | 2]) + size + content


def example(value: int) -> bytes:
    """Return an Example with a picture and its class."""
    entries = b""
    for name, feature in (
        (b"image", field(1, field(1, picture(value)))),
        (b"label", field(3, field(1, bytes([value])))),
    ):
        entries += field(1, field(1, name) + field(2, feature))
    return field(1, entries)


def tfrecord(contents: list[bytes]) -> bytes:
    data = b""
    for content in contents:
        length = struct.pack("<Q", len(content))
        data += length + struct.pack("<I", masked_crc32c(length))
        data += content + struct.pack("<I", masked_crc32c(content))
    return data


COLUMN = make_input("x", "image", layout="NHWC", steps=["decode"], column="image")


def test_a_corrupt_record_is_named_and_may_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "d.tfrecord"
    data = bytearray(tfrecord([example(value) for value in range(4)]))
    data[40] ^= 1  # in the first record
    path.write_bytes(data)
    dataset = opened(path, COLUMN)
    message = r"^m\.yaml:30: d\.tfrecord: d\.tfrecord: record 0: its checksum is wrong; fetch or"
    with pytest.raises(DatasetError, match=message):
        dataset.batch([0, 1])
    rest = without_corrupt(dataset, 1)
    assert np.asarray(rest.labels).tolist() == [1, 2, 3]
    assert rest.batch([0, 2])["x"][:, 0, 0, 0].tolist() == [1, 3]
    assert rest.skipped[0].element == "d.tfrecord: record 0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-6], "record 2 is cut off, or larger than 1 GiB; fetch or write"),
        (lambda data: data[:-2], "record 2: .*record 2 is cut off"),
        (lambda data: data + b"12345", "record 3 is cut off; fetch or write the file again"),
        (lambda data: data + bytes(16), "record 3 has a length with a wrong checksum; fetch or"),
        (lambda data: tfrecord([b"nothing"]), "it is no tf.train.Example: "),
        (lambda data: tfrecord([b""]), "it is no tf.train.Example: the message has no field 1"),
    ],
)
def test_a_damaged_file_of_examples_is_an_error(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "d.tfrecord"
    path.write_bytes(change(tfrecord([example(value) for value in range(3)])))
    with pytest.raises(DatasetError, match=message):
        opened(path, COLUMN).batch([0, 1, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-9], "record 7 is cut off"),
        (lambda data: data + b"1234567890", "record 8 doesn't begin as one; fetch or write"),
        (lambda data: data[:12] + data[:12], "record 0 is cut off"),
        (lambda data: data[:4] + b"\x04\0\0\0abcd", "4 bytes have no header of an image; write"),
    ],
)
def test_a_damaged_file_of_mxnet_is_an_error(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "d.rec"
    path.write_bytes(change(IMAGES.read_bytes()))
    with pytest.raises(DatasetError, match=message):
        opened(path).batch([0])
