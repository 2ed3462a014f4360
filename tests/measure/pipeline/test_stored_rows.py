"""Large datasets, whose elements stay in files until they are needed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy
from PIL import Image

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import npz, open_dataset
from pytest_mlms.measure.pipeline.npz import StoredRows

HERE = Place(Path("m.yaml"), 30)
TENSOR = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})
VALUES = np.arange(240, dtype=">i2").reshape(4, 3, 4, 5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of more than 100 bytes stay in their files."""
    monkeypatch.setattr(npz, "_LARGEST_READ", 100)


def rows_of(path: Path) -> Any:
    return open_dataset(path, [TENSOR], HERE).elements["x"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_of_a_large_array_are_read_from_the_file(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "d.npz"
    save(path, first=np.zeros(50), x=VALUES, label=np.arange(4))
    rows = rows_of(path)
    assert isinstance(rows, StoredRows)
    assert len(rows) == 4
    for index in (0, 3, 1, np.int64(2), -1):
        assert np.array_equal(rows[index], VALUES[index])
    with pytest.raises(IndexError):
        rows[4]
    assert np.array_equal(np.asarray(rows), VALUES)


@pytest.mark.usefixtures("small")
def test_arrays_in_the_other_order_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.asfortranarray(VALUES))
    assert np.array_equal(rows_of(path), VALUES)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["mask", "image"])
def test_large_labels_stay_in_the_file(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "d.npz"
    masks = np.arange(80).reshape(4, 4, 5)
    np.savez(path, x=np.zeros(4), label=masks)
    labels = open_dataset(path, [TENSOR], HERE, labels=form).labels
    assert isinstance(labels, StoredRows)
    assert np.array_equal(labels[2].reshape(4, 5), masks[2])
    assert labels[2].ndim == (2 if form == "mask" else 3)


@pytest.mark.usefixtures("small")
def test_a_large_array_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=VALUES)
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match="Bad CRC-32 for file 'x.npy'"):
        rows_of(path)


@pytest.mark.usefixtures("small")
def test_a_file_that_is_cut_off_later_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=VALUES)
    data = open_dataset(path, [TENSOR], HERE, "d.npz")
    with path.open("r+b") as file:
        file.truncate(500)
    with pytest.raises(DatasetError, match=r"d\.npz: element 3: the file was cut off while it was"):
        data.batch([0, 3])


PEAK = """
import itertools, resource, sys
from pathlib import Path
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import open_dataset
from pytest_mlms.core.records import Place

spec = {"name": "x", "type": "image", "layout": "NHWC", "element_type": "uint8", "steps": ["decode"]}
inputs = [Input.model_validate(spec)]
dataset = open_dataset(Path(sys.argv[1]), inputs, Place(Path("m.yaml"), 1))
assert len(dataset) == int(sys.argv[2])
for batch in itertools.islice(dataset.batches(100), int(sys.argv[3])):
    assert len(batch["x"]) == 100
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_of(path: Path, count: int, batches: int) -> int:
    """Return the peak of memory of a process that goes through a dataset, or a part of it."""
    command = [sys.executable, "-c", PEAK, str(path), str(count), str(batches)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def write_npz(path: Path, count: int) -> None:
    """Write images of 4 KiB, none of which is ever in memory with the others."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, 32, 32, 3)}
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
        npy.write_array_header_1_0(file, header)
        for _ in range(count // 1000):
            file.write(bytes(1000 * 32 * 32 * 3))


def write_folder(path: Path, count: int) -> None:
    """Write a table of so many rows, which name ten pictures again and again."""
    path.mkdir()
    for number in range(10):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path / f"{number}.bmp")
    rows = [f"{number % 10}.bmp,{number % 7}" for number in range(count)]
    (path / "labels.csv").write_text("file,label\n" + "\n".join(rows))


@pytest.mark.slow
@pytest.mark.parametrize(("write", "batches"), [(write_npz, 1000), (write_folder, 100)])
def test_a_hundred_thousand_elements_take_little_more_memory_than_a_thousand(
    tmp_path: Path, write: Any, batches: int
) -> None:
    peaks = {}
    for count in (1000, 100_000):
        path = tmp_path / str(count)
        write(path, count)
        peaks[count] = peak_of(path, count, batches)
    assert peaks[100_000] < 1.5 * peaks[1000], peaks
