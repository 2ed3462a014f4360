"""Files that steps name, and what they make of texts.

They have classes, categories and tokens, one a line, or are those of Hugging Face's ``tokenizers``.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError, MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.core.files import FileState, read_regular
from pytest_mlms.manifest.schema import Input, Manifest, Output
from pytest_mlms.manifest.text_steps import Tokenize

_MOST_BYTES = 64 << 20


def read_names(path: Path, kind: str) -> list[str]:
    """Return the names in a file, without blanks around them; raises DatasetError."""
    lines = [line.strip() for line in read_text(path, kind).splitlines()]
    return [line for line in lines if line]


def class_numbers(names: Sequence[str]) -> Mapping[str, int]:
    """Return the number of each class by its name in small letters.

    A name that several classes have stands for none of them.
    """
    lower = [name.casefold() for name in names]
    counts = Counter(lower)
    return {name: number for number, name in enumerate(lower) if counts[name] == 1}


def read_text(path: Path, kind: str) -> str:
    """Return the text of a file; raises DatasetError for one that can't be read.

    ``kind`` is what a message calls a line of it, as in "label".
    """
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        advice = f"save it as UTF-8, one {kind} a line"
        raise DatasetError(f"{path} can't be read: {error}; {advice}") from error


Spec = TypeVar("Spec", Input, Output)


def with_local_files(spec: Spec, files: Mapping[str, Path]) -> Spec:
    """Return an input or output whose steps name the local paths of their files.

    ``files`` has these by what the manifest says. ``FILES`` of a step's parameters are the keys
    that name files; names that aren't in ``files`` stay.
    """
    steps = []
    for step in spec.steps:
        changes = _changes(step.parameters, files)
        if changes:
            parameters = step.parameters.model_copy(update=changes)
            step = step.model_copy(update={step.name: parameters})  # noqa: PLW2901
        steps.append(step)
    return spec.model_copy(update={"steps": steps})


def class_numbers_of(manifest: Manifest, files: Mapping[str, Path]) -> Mapping[str, int]:
    """Return the numbers of the classes by their names, as the file of top_k's labels has them.

    It is empty where there is no such file. ``files`` are as for ``with_local_files``. Raises
    DatasetError for a file that can't be read.
    """
    output = manifest.classification
    top_k = output.top_k if output else None
    if top_k is None or top_k.labels is None:
        return {}
    return class_numbers(read_names(files[top_k.labels], "label"))


def _changes(parameters: Any, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the keys of parameters that name files, and their local paths."""
    changes = {}
    for key in getattr(parameters, "FILES", {}):
        source = getattr(parameters, key)
        if source in files:
            changes[key] = str(files[source])
    return changes


Text = str | tuple[str, str]
"""A text, or a pair of them."""

_MOST_TOKENIZER_BYTES = 256 << 20
_KEPT_OF_PADDING = ("direction", "pad_id", "pad_type_id", "pad_token")
_lock = threading.Lock()


def encode(text: Text, parameters: Tokenize) -> Any:
    """Return the ``tokenizers.Encoding`` of a text: ``length`` ids, a mask, types and offsets.

    Raises ValueError where the text can't be encoded, and DatasetError for an unusable file.
    """
    return _encode(text, parameters, state_of(parameters.file))


@functools.lru_cache(maxsize=4096)  # inputs of one model ask for the same texts
def _encode(text: Text, parameters: Tokenize, state: FileState) -> Any:
    is_pair = isinstance(text, tuple)
    tokenizer = _prepared(state, parameters.length, parameters.pad, is_pair)
    pair = text if isinstance(text, tuple) else (text, None)
    try:
        encoding = tokenizer.encode(*pair, add_special_tokens=parameters.special)
    except Exception as error:  # its errors are plain ones
        raise ValueError(f"the text can't be encoded: {error}; write a longer length") from error
    if len(encoding.ids) != parameters.length:
        found = f"{len(encoding.ids)} tokens, not {parameters.length}"
        raise ValueError(f"the text has {found}; write a longer length")
    return encoding


def decode(file: str, ids: Sequence[int]) -> str:
    """Return the text of tokens by their ids, without special tokens.

    Raises ValueError for ids that the file doesn't have.
    """
    tokenizer = _opened(state_of(file))
    known = vocabulary_size(file)
    for number in ids:
        if number >= known:
            problem = f"token {number} isn't among the {known:,} of {Path(file).name}"
            raise ValueError(f"{problem}; name the tokenizer of this model")
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
    return text


def vocabulary_size(file: str) -> int:
    """Return one more than the largest id of a tokenizer's file."""
    return _vocabulary_size(state_of(file))


@functools.lru_cache(maxsize=16)
def _vocabulary_size(state: FileState) -> int:
    ids = _opened(state).get_vocab(with_added_tokens=True).values()
    return max(ids, default=-1) + 1


def token_counts(file: str, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text, without padding and however long it is."""
    tokenizer = _loaded(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]


@functools.lru_cache(maxsize=16)
def _prepared(state: FileState, length: int, pad: int | None, is_pair: bool) -> Any:
    """Return a tokenizer that cuts and pads to a length."""
    tokenizer = _loaded(state.path)
    own = tokenizer.padding or {}
    kept = {name: own[name] for name in _KEPT_OF_PADDING if name in own}
    changed = {} if pad is None else {"pad_id": pad}
    tokenizer.enable_padding(length=length, **{**kept, **changed})
    cut = tokenizer.truncation or {}
    strategy = "only_second" if is_pair else "longest_first"
    direction = cut.get("direction", "right")
    tokenizer.enable_truncation(length, strategy=strategy, direction=direction)
    return tokenizer


@functools.lru_cache(maxsize=16)
def _opened(state: FileState) -> Any:
    return _loaded(state.path)


def state_of(file: str) -> FileState:
    """Return the state of a step's file, by which its content is kept; raises DatasetError."""
    try:
        return FileState.of(file)
    except OSError as error:
        raise DatasetError(f"{Path(file).name} can't be read: {error.strerror}") from error


def _loaded(file: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MlmsError(f"tokenizers are missing; {install('text')}") from None
    name = Path(file).name
    try:
        data = read_regular(Path(file), _MOST_TOKENIZER_BYTES)
        with _lock:
            return Tokenizer.from_buffer(data)
    except OSError as error:
        raise DatasetError(f"{name} can't be read: {error.strerror}") from error
    except Exception as error:  # its errors are plain ones
        advice = "name a tokenizer.json of Hugging Face's tokenizers"
        raise DatasetError(f"{name} is no tokenizer: {error}; {advice}") from error


def tokenize(text: Any, parameters: Tokenize) -> Array:
    """Return the ids, the mask or the types of the tokens of a text or a pair (int64)."""
    if not isinstance(text, (str, tuple)):
        raise TypeError("the dataset has no text; write one in each row of the input's column")
    encoding = encode(text, parameters)
    numbers = {
        "ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "type_ids": encoding.type_ids,
    }
    return np.array(numbers[parameters.give], dtype=np.int64)


def check_ids(ids: Array, allowed: tuple[float, float]) -> None:
    """Raise ValueError for ids outside of the range that the manifest gives the input."""
    low, high = allowed
    for wrong in (ids.min(), ids.max()):
        if not low <= wrong <= high:
            found = f"token {wrong:,} is outside of the input's range, {low:g} to {high:g}"
            raise ValueError(f"{found}; name the tokenizer of this model, or correct the range")
