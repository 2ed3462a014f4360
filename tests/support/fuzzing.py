"""Targets of the fuzzer: for each kind of file the seeds, the mutation, and how a user's file is read.

A mutant is given by the name of its target and a number, so that a failure can be made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import resource
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pytest_mlms.author.legacy.importing import Original, import_original
from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.errors import ManifestError, MlmsError
from pytest_mlms.core.records import Kind, Place, Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.explain.repro.archive import read_bundle
from pytest_mlms.explain.repro.replay.plan import NEW, Plan, plan_lines
from pytest_mlms.explain.repro.replay.record import Malformed
from pytest_mlms.explain.repro.replay.unpacking import opened
from pytest_mlms.keep.lockfile.reading import lock_text, parse_lock, read_lock
from pytest_mlms.keep.results.item_result import identity_of
from pytest_mlms.manifest import LoadedManifest, load
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.load.arrivals import read_arrivals
from pytest_mlms.measure.pipeline.dataset import open_dataset
from pytest_mlms.measure.pipeline.detected import coco_labels
from pytest_mlms.measure.pipeline.inputs import preprocess
from pytest_mlms.measure.pipeline.objects import check_segmentation, run_lengths_of
from pytest_mlms.measure.pipeline.step_files import decode
from pytest_mlms.measure.structure.onnx_structure import describe_onnx, read_signature
from pytest_mlms.provide.artifacts.fetch import check_local
from pytest_mlms.provide.cases import Case, cases_of
from pytest_mlms.provide.stacks.schema import load_stacks
from tests.support.line_fuzzing import read_mutated_lines
from tests.support.mutants import (
    Mutate,
    mutated_archive,
    mutated_bytes,
    mutated_json,
    mutated_lines,
    mutated_npz,
    mutated_picture,
    mutated_protobuf,
    mutated_request,
    mutated_tensors,
    mutated_text,
    mutated_toml,
    mutated_yaml,
)
from tests.support.portal_fuzzing import (
    read_head,
    read_message_of,
    read_prediction,
    read_tensors,
    read_upload,
)
from tests.support.project import MANIFEST, ROOT
from tests.support.worker_fuzzing import read_answer, read_messages

__all__ = ["CORPUS", "TARGETS", "Outcome", "Target"]

CORPUS = ROOT / "tests" / "corpus"
_BUNDLE = CORPUS / "bundles" / "two_sides.zip"

_FRAMEWORKS = ["onnxruntime", "mxnet"]
_PREDICTORS = ["tensorflow", "mxnet", "pytorch", "caffe", "caffe2", "cntk", "onnxruntime"]
_KINDS: tuple[Kind, ...] = ("accuracy", "performance", "agreement", "upgrade", "trace")
_HERE = Stack("here", "onnxruntime", interpreter="current")
_PLACE = Place(Path("m.yaml"), 1)
_TENSOR = {"name": "x", "type": "tensor", "element_type": "float32"}
_IMAGE = {"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}
_SOUND = {"name": "x", "type": "audio", "element_type": "float32", "sample_rate": 16000}
_TEXT = {"name": "x", "type": "text", "element_type": "int64"}
_GREY = {"decode": {"color": "L"}}
_SQUARE = {"resize": {"size": [8, 8]}}


class Outcome(NamedTuple):
    """The end of a mutant: it was read, or refused by an error of ours, or has a ``problem``.

    A problem is another error, or that it took too long.
    """

    mutant: str
    problem: str = ""
    trace: str = ""
    is_read: bool = False


@dataclass(frozen=True)
class Target:
    """A kind of file: ``read`` does with a file in a folder what the plugin does with a user's.

    ``share`` is the number of mutants, of one for a manifest, that a run makes. ``most_seconds`` of
    the CPU are what reading a file may take, and ``most_memory`` are the bytes beside what the
    process has.
    """

    name: str
    mutate: Sequence[Mutate]
    read: Callable[[bytes, Path], None]
    share: float
    others: Sequence[Path] = ()
    most_seconds: float = 2.0
    most_memory: int = 300 << 20

    @cached_property
    def seeds(self) -> list[bytes]:
        """The contents of the seeds."""
        files = sorted((CORPUS / self.name).iterdir())
        return [path.read_bytes() for path in (*self.others, *files)]

    def mutant(self, number: int) -> bytes:
        """Return the mutant of this number; the first are the seeds themselves."""
        if number < len(self.seeds):
            return self.seeds[number]
        rng = random.Random(f"{self.name} {number}")
        mutate = rng.choice(self.mutate)
        return mutate(rng.choice(self.seeds), self.seeds, rng)

    def run(self, number: int, folder: Path) -> Outcome:
        """Read a mutant; return what became of it."""
        name = f"{self.name}:{number}"
        data = self.mutant(number)
        began = time.process_time()
        is_read = False
        try:
            with warnings.catch_warnings(), _bounded(self.most_memory):
                warnings.simplefilter("ignore")
                self.read(data, folder)
            is_read = True
        except MlmsError as error:
            if any(character in str(error) for character in "\x1b\0\x07\x9b"):
                return Outcome(name, f"its error has control characters: {error!r}")
        except Exception as error:
            text = str(error).replace("\n", " ")[:200]
            return Outcome(name, f"{type(error).__name__}: {text}", traceback.format_exc())
        spent = time.process_time() - began
        if spent > self.most_seconds:
            return Outcome(name, f"took {spent:.1f} s of the CPU")
        return Outcome(name, is_read=is_read)


@contextlib.contextmanager
def _bounded(memory: int) -> Iterator[None]:
    """Bound the memory that is taken meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _read_manifest(data: bytes, folder: Path) -> None:
    """Load a manifest; write the identity of each case, and check its local files."""
    path = folder / "m.yaml"
    path.write_bytes(data)
    loaded = load(path, _FRAMEWORKS)
    for kind in _KINDS:
        loaded.limits(kind)
        for case in _cases(loaded, kind)[:20]:
            line = to_plain(identity_of(case))
            json.dumps(line, allow_nan=False).encode()
            list(case.marks)
            assert case.id
            assert case.limits is not None
    for error in check_local(loaded):
        assert str(error)


def _read_legacy(data: bytes, folder: Path) -> None:
    """Import a manifest of MLModelScope, and load it as it is: both must do the same.

    What is written must be a native one. Lines are those of the original.
    """
    path = folder / "legacy.yml"
    path.write_bytes(data)
    target = folder / "imported" / "legacy.yaml"
    target.unlink(missing_ok=True)
    outcome = import_original(Original(path, target), (), _PREDICTORS)
    if outcome is None:
        return
    assert target.exists() != bool(outcome.kind)
    try:
        loaded = load_manifest(path, _PREDICTORS)
    except ManifestError as error:
        assert outcome.problem, error
        raise
    assert not outcome.problem
    assert loaded.origin is not None
    last = data.count(b"\n") + 1
    for kind in _KINDS:
        for case in _cases(loaded, kind):
            line = to_plain(identity_of(case))
            json.dumps(line, allow_nan=False).encode()
            assert 1 <= case.place().line <= last


def _read_lock(data: bytes, folder: Path) -> None:
    """Read a lock file, and write it again."""
    path = folder / "mlms.lock"
    path.write_bytes(data)
    lock = read_lock(path)
    assert parse_lock(lock_text(lock).encode(), "again") == lock


def _cases(loaded: LoadedManifest, kind: Kind) -> list[Case]:
    return cases_of(loaded, kind, lambda framework: [_HERE], lambda framework: _HERE)


def _read_stacks(data: bytes, folder: Path) -> None:
    """Load stacks as YAML and as TOML."""
    errors = []
    for name in ("stacks.yaml", "pyproject.toml"):
        path = folder / name
        path.write_bytes(data)
        try:
            for stack in load_stacks(path).values():
                json.dumps(to_plain(stack), allow_nan=False).encode()
        except MlmsError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _read_labels(data: bytes, folder: Path) -> None:
    """Open a folder with a table of labels and prepare its elements."""
    (folder / "labels.csv").write_bytes(data)
    picture = folder / "0.png"
    if not picture.exists():
        picture.write_bytes((CORPUS / "pictures" / "grey.png").read_bytes())
    spec = Input.model_validate({**_IMAGE, "steps": [_GREY, _SQUARE]})
    dataset = open_dataset(folder, [spec], _PLACE)
    dataset.batch(range(min(3, len(dataset))))


def _read_arrivals(data: bytes, folder: Path) -> None:
    """Read the arrivals of a replay."""
    path = folder / "trace.csv"
    path.write_bytes(data)
    read_arrivals(path, speed=2)


def _read_coco(data: bytes, folder: Path) -> None:
    """Open a COCO file beside a picture, and read its boxes and masks."""
    (folder / "labels.json").write_bytes(data)
    picture = folder / "0.png"
    if not picture.exists():
        picture.write_bytes((CORPUS / "pictures" / "grey.png").read_bytes())
    spec = Input.model_validate({**_IMAGE, "steps": [_GREY, _SQUARE]})
    dataset = open_dataset(folder, [spec], _PLACE, labels="boxes")
    for objects in coco_labels(dataset):
        for segmentation in objects.segmentations:
            with contextlib.suppress(ValueError):
                check_segmentation(segmentation, objects.height, objects.width)
                run_lengths_of(segmentation, objects.height, objects.width)


def _read_npz(data: bytes, folder: Path) -> None:
    """Open a dataset of arrays and prepare its elements, as a tensor and as an image."""
    path = folder / "d.npz"
    path.write_bytes(data)
    errors = []
    for fields in (_TENSOR, {**_IMAGE, "steps": [_SQUARE, {"normalize": {"scale": 255}}]}):
        try:
            dataset = open_dataset(path, [Input.model_validate(fields)], _PLACE)
            dataset.batch(range(min(3, len(dataset))))
        except MlmsError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _read_record_file(data: bytes, folder: Path) -> None:
    """Open a dataset in a file of records, and read all of its elements and labels."""
    path = folder / "d.records"
    path.write_bytes(data)
    errors = []
    for form in ("class", "array"):
        try:
            dataset = open_dataset(path, [Input.model_validate(_IMAGE)], _PLACE, labels=form)
            for index in range(len(dataset)):
                dataset.elements["x"][index]
                assert dataset.labels is None or dataset.labels[index] is not None
        except MlmsError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _read_picture(data: bytes, folder: Path) -> None:
    """Decode a picture in colour or in grey."""
    step = "decode" if len(data) % 2 else _GREY
    preprocess([data], Input.model_validate({**_IMAGE, "steps": [step, _SQUARE]}))


def _read_bundle(data: bytes, folder: Path) -> None:
    """Unpack a bundle and say what a replay of it would do; read it as the reducer does."""
    path = folder / "repro.zip"
    path.write_bytes(data)
    errors: list[Exception] = []
    for read in (_read_plan, read_bundle):
        with tempfile.TemporaryDirectory(dir=folder) as unpacked:
            try:
                read(path, Path(unpacked))
            except (MlmsError, Malformed, OSError) as error:
                errors.append(error)
    if errors:
        raise MlmsError("; ".join(map(str, errors)))


def _read_plan(path: Path, folder: Path) -> None:
    with opened(str(path)) as packed:
        record = packed.record
        text = "".join(plan_lines(Plan(record, {NEW: record.new}, "an index", packed.sizes)))
        assert text.isprintable(), text
        packed.unpack(str(folder))


def _read_sound(data: bytes, folder: Path) -> None:
    """Read a file of sound, and compute features of it."""
    steps = ["mono", "resample", {"mel": {"fft": 64, "hop": 32, "bands": 4}}, "log"]
    preprocess([data], Input.model_validate({**_SOUND, "steps": steps}))


def _read_tokenizer(data: bytes, folder: Path) -> None:
    """Encode a text and decode ids by a tokenizer's file."""
    path = folder / f"{hashlib.sha256(data).hexdigest()}.json"  # tokenizers are kept by their name
    path.write_bytes(data)
    step = {"tokenize": {"file": str(path), "sha256": "0" * 64, "length": 8}}
    preprocess(["the cat sat"], Input.model_validate({**_TEXT, "steps": [step]}))
    with contextlib.suppress(ValueError):
        decode(str(path), [0, 3, 5])


def _read_model(data: bytes, folder: Path) -> None:
    """Read the signature of an ONNX file, and describe it."""
    path = folder / "m.onnx"
    path.write_bytes(data)
    with contextlib.suppress(MlmsError):
        read_signature(path)
    describe_onnx(path, 4)


_ALL = [
    Target("manifests", (mutated_yaml, mutated_text), _read_manifest, 1, others=(MANIFEST,)),
    Target("legacy", (mutated_yaml, mutated_text), _read_legacy, 0.1),
    Target("stacks", (mutated_yaml, mutated_text), _read_stacks, 0.1),
    Target("labels", (mutated_text, mutated_bytes), _read_labels, 0.1),
    Target("arrivals", (mutated_text, mutated_bytes), _read_arrivals, 0.1),
    Target("coco", (mutated_text, mutated_bytes), _read_coco, 0.1),
    Target("npz", (mutated_npz,), _read_npz, 0.1),
    Target("records", (mutated_bytes,), _read_record_file, 0.1),
    # A true picture may have 179 million pixels, which take some seconds.
    Target("pictures", (mutated_picture,), _read_picture, 0.2, (), 10.0, 4 << 30),
    Target("models", (mutated_bytes, mutated_protobuf), _read_model, 0.1),
    # Most of the seeds were hostile, and are refused early.
    Target("bundles", (mutated_archive,), _read_bundle, 1, others=[_BUNDLE] * 12),
    Target("sounds", (mutated_bytes,), _read_sound, 0.1),
    Target("locks", (mutated_toml, mutated_toml, mutated_text, mutated_bytes), _read_lock, 1),
    Target("tokenizers", (mutated_text,), _read_tokenizer, 0.1),
    Target("lines", (mutated_lines,), read_mutated_lines, 1),
    Target("answers", (mutated_json,), read_answer, 1),
    Target("messages", (mutated_json,), read_messages, 1),
    Target("uploads", (mutated_archive, mutated_bytes), read_upload, 1),
    Target("predictions", (mutated_request,), read_prediction, 1),
    Target("tensors", (mutated_tensors,), read_tensors, 1),
    Target("inferences", (mutated_protobuf,), read_message_of, 1),
    Target("heads", (mutated_text, mutated_bytes), read_head, 1),
]
TARGETS = {target.name: target for target in _ALL}
"""Name -> target; the name is that of the folder of its seeds."""
