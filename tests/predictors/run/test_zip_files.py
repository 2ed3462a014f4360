"""Zip files that readers see differently; the plain ones are those that frameworks write."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from mlms_predictors._run.zip_files import begins_as_zip, plain_members

from tests.support.project import DIGITS

NAMES = ["a", "in/b", "in/c"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A plain file."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NAMES:
            archive.writestr(name, name * 100)
    return path


def refused(path: Path) -> str:
    """Return the reason for which a file is refused."""
    with pytest.raises(ValueError, match=".") as error:
        plain_members(str(path))
    return str(error.value)


def test_the_members_of_a_plain_file_are_returned(path: Path) -> None:
    assert [member.filename for member in plain_members(str(path))] == NAMES


@pytest.mark.parametrize("name", ["digits_cnn.pt2", "digits_test.npz", "digits_cnn_savedmodel.zip"])
def test_what_frameworks_write_is_plain(name: str) -> None:
    assert begins_as_zip(str(DIGITS / name))
    assert plain_members(str(DIGITS / name))


def test_a_file_that_is_written_to_a_pipe_is_plain(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"data" * 100)
        with archive.open("b", "w", force_zip64=True) as file:
            file.write(b"more")
    (tmp_path / "a.zip").write_bytes(pipe.getvalue())
    assert len(plain_members(str(tmp_path / "a.zip"))) == 2


def test_files_of_numpy_are_plain(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.zeros((2, 3)), label=np.zeros(2))
    np.savez_compressed(tmp_path / "b.npz", image=np.zeros((2, 3)))
    assert len(plain_members(str(tmp_path / "a.npz"))) == 2
    assert len(plain_members(str(tmp_path / "b.npz"))) == 1


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["a", "A", "IN/B", "in/b/"])
def test_two_members_of_one_name_are_refused(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    assert refused(path).startswith("it has the members ")


@pytest.mark.parametrize("name", ["/a", "../a", "in/../a", "./b", "in//d", "in\\d", "new\nline"])
def test_names_that_lead_elsewhere_are_refused(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    assert "would be written outside" in refused(path) or "control character" in refused(path)


def behind(content: bytes) -> bytes:
    return content + b"x"


def before(content: bytes) -> bytes:
    return b"x" + content


def with_a_comment(content: bytes) -> bytes:
    comment = content[-22:]  # which another reader takes for the end
    return content[:-2] + struct.pack("<H", len(comment)) + comment


def between(content: bytes) -> bytes:
    start = content.index(b"PK\x01\x02")
    end = bytearray(content[-22:])
    struct.pack_into("<L", end, 16, start + 3)
    return content[:start] + b"xxx" + content[start:-22] + bytes(end)


def with_fewer_members(content: bytes) -> bytes:
    end = bytearray(content[-22:])
    struct.pack_into("<2H", end, 8, 2, 2)
    return content[:-22] + bytes(end)


def with_another_name_before_a_member(content: bytes) -> bytes:
    return content.replace(b"in/b", b"in/x", 1)


def with_another_size_before_a_member(content: bytes) -> bytes:
    return content[:22] + b"\x01" + content[23:]


def encrypted(content: bytes) -> bytes:
    directory = content.index(b"PK\x01\x02")
    changed = bytearray(content)
    changed[6] |= 1
    changed[directory + 8] |= 1
    return bytes(changed)


def overlapping(content: bytes) -> bytes:
    """Let the second member begin where the first does."""
    second = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1)
    return content[: second + 42] + bytes(4) + content[second + 46 :]


@pytest.mark.parametrize(
    "change",
    [
        behind,
        before,
        with_a_comment,
        between,
        with_fewer_members,
        with_another_name_before_a_member,
        with_another_size_before_a_member,
        encrypted,
        overlapping,
    ],
)
def test_files_that_readers_see_differently_are_refused(
    path: Path, change: Callable[[bytes], bytes]
) -> None:
    path.write_bytes(change(path.read_bytes()))
    assert refused(path)


def mutants(content: bytes) -> Iterator[bytes]:
    random = Random(1)
    for place in range(len(content)):
        yield content[:place]
        yield (
            content[:place]
            + bytes([content[place] ^ 1 << random.randrange(8)])
            + content[place + 1 :]
        )


def test_every_mutant_is_plain_or_refused(path: Path) -> None:
    for mutant in mutants(path.read_bytes()):
        path.write_bytes(mutant)
        try:
            members = plain_members(str(path))
        except ValueError as error:
            assert str(error)
        else:
            assert len(members) == len(NAMES)
