"""A table of texts and their classes, for a model of tokens whose tokenizer lies beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlms_predictors import Tensor

from pytest_mlms.author.draft.model_files import ModelFiles
from pytest_mlms.author.draft.onnx_hints import hints_of
from pytest_mlms.author.draft.opening import DraftRequest
from pytest_mlms.author.draft.parts import InputPart, scalar
from pytest_mlms.author.draft.table_files import ColumnsData
from pytest_mlms.core.errors import DatasetError, MlmsError
from pytest_mlms.core.files import read_regular
from pytest_mlms.manifest.schema import BATCH
from pytest_mlms.measure.pipeline.step_files import token_counts, vocabulary_size
from pytest_mlms.provide.artifacts.digest import sha256_of

TOKENIZER = "tokenizer.json"
_MOST_TOKENS = 512  # where the model takes any number
_MOST_OF_CONFIG = 1 << 20  # bytes
_MASK, _TYPES = ("mask",), ("type", "segment")
_PLACES = ("position",)


def takes_tokens(tensors: Sequence[Tensor]) -> bool:
    """Return whether all inputs are rows of whole numbers, of which one is called as tokens are."""
    for tensor in tensors:
        if tensor.dtype not in ("int32", "int64") or len(tensor.shape) != len("NT"):
            return False
    return any("ids" in tensor.name or "token" in tensor.name for tensor in tensors)


def text_column(data: ColumnsData, tensors: Sequence[Tensor], target: Sequence[str]) -> str | None:
    """Return the column of texts for a model of tokens, None where there is none.

    Of several columns of texts it is the one with the longest, as others are classes.
    """
    texts = [name for name in data.names if data.kind(name) == "texts" and name not in target]
    if not texts or not takes_tokens(tensors):
        return None
    return max(texts, key=lambda name: sum(map(len, data.columns[name])))


def token_inputs(
    data: ColumnsData,
    column: str,
    model: ModelFiles,
    tensors: Sequence[Tensor],
    request: DraftRequest,
) -> dict[str, InputPart]:
    """Return the inputs of a model that are made of the texts in a column.

    Raises MlmsError where there is no tokenizer beside the model, and for other inputs.
    """
    file = model.graph.absolute().parent / TOKENIZER
    if not file.is_file():
        problem = f"{data.path} has texts, and there is no {file}, which makes tokens of them"
        advice = (
            "save the model's own there: tokenizer.save_pretrained(…) of transformers writes it"
        )
        raise MlmsError(f"{problem}; {advice}")
    vocabulary = hints_of(model.graph).vocabulary
    try:
        return {
            tensor.name: _part(tensor, column, file, data, vocabulary, request)
            for tensor in tensors
        }
    except DatasetError as error:
        raise MlmsError(f"{file}: {error}") from error


def _part(
    tensor: Tensor,
    column: str,
    file: Path,
    data: ColumnsData,
    vocabulary: dict[str, int],
    request: DraftRequest,
) -> InputPart:
    """Return an input of tokens, of their mask or of their types."""
    name = tensor.name.lower()
    if any(word in name for word in _PLACES):
        problem = f"{tensor.name!r} takes the places of tokens, which no step makes"
        raise MlmsError(f"{problem}; export the model without it, or give its inputs as an .npz")
    give = ""
    limits: list[float] | None = None
    if any(word in name for word in _MASK):
        give = ", give: attention_mask"
    elif any(word in name for word in _TYPES):
        give, limits = ", give: type_ids", [0, 0]
    else:
        limits = [0, vocabulary.get(tensor.name, vocabulary_size(str(file))) - 1]
    length, comment = _length(tensor, column, file, data)
    where = f"file: {scalar(request.written(file))}, sha256: {sha256_of(file)}"
    return InputPart(
        name=tensor.name,
        type="text",
        element_type=tensor.dtype,
        shape=[BATCH, length] if tensor.shape[1] is None else None,
        range=limits,
        column=column,
        steps=[(f"tokenize: {{{where}, length: {length}{give}}}", comment)],
    )


def _length(tensor: Tensor, column: str, file: Path, data: ColumnsData) -> tuple[int, str]:
    """Return the tokens of a text, and why: the model's, or those of the longest text."""
    if tensor.shape[1] is not None:
        return tensor.shape[1], ""
    longest = max(token_counts(str(file), data.columns[column]))
    if longest > _MOST_TOKENS:
        return _MOST_TOKENS, f"a guess: the longest text has {longest:,} tokens, and is cut"
    return longest, "a guess: the tokens of the longest text; the model takes any number"


def classes_of_config(model: ModelFiles) -> list[str]:
    """Return the names of classes in the config.json beside a model, none where it has none."""
    return _names(_config(model.graph.parent / "config.json"))


def _config(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, _MOST_OF_CONFIG))
    except (OSError, ValueError, RecursionError):
        return None


def _names(config: Any) -> list[str]:
    """Return the names of a configuration of transformers, unless they are LABEL_0, LABEL_1 …"""
    known = config.get("id2label") if isinstance(config, dict) else None
    if not isinstance(known, dict):
        return []
    names = [known.get(str(number)) for number in range(len(known))]
    are_names = all(isinstance(name, str) and not name.startswith("LABEL_") for name in names)
    return [str(name) for name in names] if are_names else []
