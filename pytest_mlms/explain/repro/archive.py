"""Bundles as zip files, written and read, with a README; the same bundle has the same bytes."""

from __future__ import annotations

import contextlib
import io
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlms_predictors
from mlms_predictors._run.zip_files import plain_members

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import read_arrays, replacing, write_arrays
from pytest_mlms.explain.repro import replay
from pytest_mlms.explain.repro.bundle import Bundle
from pytest_mlms.explain.repro.expectation import is_measured
from pytest_mlms.explain.repro.own_wheel import own_wheel
from pytest_mlms.explain.repro.privacy import Content, check_private
from pytest_mlms.explain.repro.replay import record as records
from pytest_mlms.explain.repro.replay.main import OWN
from pytest_mlms.explain.repro.replay.unpacking import Packed, opened, unpack
from pytest_mlms.measure.agent.registry import is_ours
from pytest_mlms.provide.artifacts.external_data import external_data, is_onnx
from pytest_mlms.provide.stacks.trust import harmless_variables


def guide_of(bundle: Bundle) -> str:
    """Return the text of README.txt."""
    return "\n".join(_lines(bundle)) + "\n"


def _lines(bundle: Bundle) -> Iterator[str]:
    yield bundle.title
    yield ""
    yield bundle.expected.summary
    yield ""
    yield "To see it, on a machine with Python 3.10 or later and pip:"
    yield ""
    yield "    python repro.zip"
    yield ""
    yield "It says what it will install and run, and asks. It makes an environment of pytest-mlms,"
    yield "which comes along, and one for each side, in a temporary folder, which it removes."
    yield "Exit status: 0 reproduced, 1 not reproduced, 2 it couldn't run, 3 undecided."
    yield "`python repro.zip --help` has its options."
    for side in bundle.sides:
        yield ""
        yield f"{side.name}: Python {side.python}"
        for requirement in side.requirements:
            yield f"    {requirement}"
        for name, value in side.variables:
            yield f"    {name}={value}"
    for note in bundle.notes:
        yield ""
        yield note


_MAIN = "from replay.main import main\n\nraise SystemExit(main())\n"
_INPUTS = "inputs.npz"
_REFERENCE = "reference.npz"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can have
_MODE = 0o100644 << 16
_SUFFIXES = 2  # of a file's name, as in model.tar.gz
_COMPRESSED = 1 << 26  # bytes; larger files are weights, which shrink by little


def write_bundle(bundle: Bundle, path: Path, *, checked: bool = True) -> None:
    """Write a bundle, or leave what is there.

    Raises MlmsError where it can't be written, and, if it is ``checked``, where a file of it names
    this machine or its user.
    """
    members = members_of(bundle)
    if checked:
        check_private(members, bundle.inputs)
    try:
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name in sorted(members):
                _add(archive, name, members[name])
    except OSError as error:
        problem = f"{path} can't be written: {error.strerror or error}"
        raise MlmsError(f"{problem}; name another file with --out") from None


def members_of(bundle: Bundle) -> dict[str, Content]:
    """Return the content of each file of a bundle by its name in the zip."""
    files = dict(_model_files(bundle))
    record = _record_of(bundle)
    members: dict[str, Content] = {
        "__main__.py": _MAIN.encode(),
        records.NAME: records.to_text(record).encode(),
        "README.txt": guide_of(bundle).encode(),
        _INPUTS: _npz(bundle.inputs),
    }
    if bundle.reference:
        members[_REFERENCE] = _npz(bundle.reference)
    members.update(files)
    members.update(_code(bundle))
    for wheel in bundle.wheels:
        members[f"wheels/{wheel.name}"] = wheel
    return members


def read_bundle(path: Path, folder: Path) -> Bundle:
    """Unpack a bundle into a folder and return it, with its files there.

    Raises MlmsError where it is no bundle, or one of a later format.
    """
    with _errors_of(path):
        record = unpack(str(path), str(folder))
        plain_members(str(path))
        _check_record(record)
        return _bundle_of(record, folder)


@contextlib.contextmanager
def opened_bundle(path: Path) -> Iterator[Packed]:
    """Open a bundle for what it says of itself, without unpacking it; raises MlmsError."""
    with _errors_of(path), opened(str(path)) as packed:
        _check_record(packed.record)
        yield packed


def _check_record(record: records.Record) -> None:
    """Raise Malformed for variables that may load code or name a file, and unknown quantities."""
    expected = record.expected
    if not is_measured(expected.kind, expected.quantity):
        problem = f"no replay of this pytest-mlms measures {expected.quantity!r}"
        raise records.Malformed(f"{problem}; read it with a newer one")
    for side in filter(None, (record.old, record.new)):
        variables = dict(side.variables)
        refused = variables.keys() - harmless_variables(variables).keys()
        if refused:
            raise records.Malformed(f"its variable {min(refused)} may load code")


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise an MlmsError where a bundle can't be read."""
    try:
        yield
    except (records.Malformed, ValueError) as error:  # as DamagedFile is
        raise MlmsError(f"{path} is no bundle that can be read: {error}") from None
    except OSError as error:
        raise MlmsError(f"{path} can't be read: {error.strerror or error}") from None


def _bundle_of(record: records.Record, folder: Path) -> Bundle:
    reference = read_arrays(folder / record.reference) if record.reference else {}
    return Bundle(
        title=record.title,
        predictor=_predictor_of(record, folder),
        files={role: folder / name for role, name in record.files.items()},
        device=record.device,
        threads=record.threads,
        options=record.options,
        inputs=read_arrays(folder / record.inputs),
        old=record.old,
        new=record.new,
        expected=record.expected,
        reference=reference,
        wheels=tuple(sorted(folder.glob("wheels/*.whl"))),
        notes=record.notes,
    )


def _predictor_of(record: records.Record, folder: Path) -> Path:
    """Return the predictor that comes along, or ours, which need not be there."""
    name = f"{record.predictor}.py"
    brought = folder / "predictors" / name
    return brought if brought.is_file() else Path(str(mlms_predictors.__file__)).with_name(name)


def _record_of(bundle: Bundle) -> records.Record:
    return records.Record(
        title=bundle.title,
        plugin=pytest_mlms.__version__,
        predictor=bundle.predictor.stem,
        files={role: _name_of(role, path) for role, path in bundle.files.items()},
        device=bundle.device,
        threads=bundle.threads,
        options=dict(bundle.options),
        inputs=_INPUTS,
        reference=_REFERENCE if bundle.reference else None,
        old=bundle.old,
        new=bundle.new,
        expected=bundle.expected,
        notes=bundle.notes,
    )


def _model_files(bundle: Bundle) -> Iterator[tuple[str, Content]]:
    """Yield the files of the model by the names that a bundle has for them."""
    for role, path in bundle.files.items():
        name = _name_of(role, path)
        if not path.is_dir():
            yield name, path
            continue
        for inner in sorted(path.rglob("*")):
            if inner.is_file():
                yield f"{name}/{inner.relative_to(path).as_posix()}", inner
    yield from _data_beside(bundle)


def _name_of(role: str, path: Path) -> str:
    """Return the name of a model's file: its role, as its own name may tell whose it is."""
    suffix = "".join(path.suffixes[-_SUFFIXES:])
    return f"model/{role}{suffix if suffix.replace('.', '').isalnum() else ''}"


def _data_beside(bundle: Bundle) -> Iterator[tuple[str, Content]]:
    """Yield the files in which an ONNX graph keeps weights, by the names that it has for them."""
    graph = bundle.files.get("graph")
    if graph is None or graph.is_dir() or not is_onnx(bundle.framework, graph):
        return
    try:
        names = external_data(graph)
    except ValueError:
        return  # no ONNX file, whatever it is called
    for name in names:
        yield f"model/{name}", graph.parent / name


def _npz(arrays: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    write_arrays(content, arrays)
    return content.getvalue()


def _code(bundle: Bundle) -> Iterator[tuple[str, Content]]:
    """Yield the code of a replay: its beginning, our wheel, and the predictor if it isn't ours."""
    for path in Path(str(replay.__file__)).parent.glob("*.py"):
        yield f"replay/{path.name}", path
    name, wheel = own_wheel()
    yield f"{OWN}{name}", wheel
    own = bundle.predictor
    if not is_ours(own):
        for path in (own, *own.parent.glob(f"_{own.stem}_*.py")):
            yield f"predictors/{path.name}", path


def _add(archive: zipfile.ZipFile, name: str, content: Content) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.external_attr = _MODE
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    info.compress_type = zipfile.ZIP_STORED if size > _COMPRESSED else zipfile.ZIP_DEFLATED
    with archive.open(info, "w", force_zip64=True) as target:
        if isinstance(content, bytes):
            target.write(content)
            return
        with content.open("rb") as source:
            shutil.copyfileobj(source, target, 1 << 20)
