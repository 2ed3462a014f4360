"""Checks that predictors make of a request, with the same messages for every framework."""

import re
from typing import Any, Dict, Iterable, List, Optional, Sequence

from .options import problem_of
from .protocol import Tensor

_TENSOR = re.compile(r"\s*([^\s\[]+)(?:\s+(\w+)(?:\[([^\]]*)\])?)?\s*$")


def refuse_unknown(options: Dict[str, Any], known: Any) -> Dict[str, Any]:
    """Return ``options``; raise ValueError for one that the predictor does not know.

    ``known`` are names, or OPTIONS as ``options.py`` describes them, which have types.
    """
    declared = known if isinstance(known, dict) else dict.fromkeys(known, "any")
    for name in sorted(options):
        problem = problem_of(name, options[name], declared)
        if problem:
            raise ValueError(problem)
    return options


def refuse_code(name: str, allow_code: bool) -> None:
    """Raise PermissionError where an option runs code and code isn't allowed."""
    if not allow_code:
        raise PermissionError("option %s runs code; allow it with --mlms-allow-code" % name)


def refuse_gpu(device: str, framework: str) -> None:
    """Raise ValueError if a predictor that runs on the CPU only is asked for another device."""
    if device != "cpu":
        raise ValueError("asked for %s; %s runs on the cpu here" % (device, framework))


def file_of(files: Dict[str, str], role: str, what: str) -> str:
    """Return the path of a role's file.

    Raises ValueError where the manifest has none; ``what`` says which kind of file it should be.
    """
    if role not in files:
        raise ValueError(
            "there is no %r file; write into the manifest's model: '%s: %s'" % (role, role, what)
        )
    return files[role]


def read_tensors(text: str) -> List[Tensor]:
    """Read names, types and shapes, such as ``image float32[?,1,8,8]; logits``.

    Raises ValueError for text of another form.
    """
    return [_read_tensor(part) for part in text.split(";")]


def read_list(text: str) -> List[str]:
    """Read names, such as ``one; another``."""
    return [part.strip() for part in text.split(";") if part.strip()]


def check(inputs: Iterable[Tensor], arrays: Dict[str, Any]) -> None:
    """Raise ValueError unless there is an array of the right type and shape for each input."""
    for tensor in inputs:
        if tensor.name not in arrays:
            raise ValueError(
                "there is no array for input %r; given were %s" % (tensor.name, sorted(arrays))
            )
        array = arrays[tensor.name]
        dtype = name_of_type(array.dtype)
        if dtype != tensor.dtype or not fits(array.shape, tensor.shape):
            found = describe(dtype, array.shape)
            expected = describe(tensor.dtype, tensor.shape)
            message = "input %r is %s, and the model takes %s"
            raise ValueError(message % (tensor.name, found, expected))


def name_of_type(dtype: Any) -> str:
    """Return numpy's name of a type, or string for one of texts."""
    return "string" if dtype.kind in "USO" else dtype.name


def in_order(inputs: Iterable[Tensor], arrays: Dict[str, Any]) -> List[Any]:
    """Return the arrays in the order of the inputs; raise ValueError as ``check`` does."""
    inputs = list(inputs)
    check(inputs, arrays)
    return [arrays[tensor.name] for tensor in inputs]


def _read_tensor(text):
    match = _TENSOR.match(text)
    if match is None:
        raise _not_a_tensor(text)
    name, dtype, sizes = match.groups(default="")
    shape: List[Optional[int]] = []
    for part in sizes.split(","):
        size = part.strip()
        if size == "?":
            shape.append(None)
        elif size.isdigit():
            shape.append(int(size))
        elif size:
            raise _not_a_tensor(text)
    return Tensor(name, dtype, tuple(shape))


def _not_a_tensor(text):
    return ValueError("%r is no tensor; write it as: image float32[?,1,8,8]" % text.strip())


def fits(shape: Sequence[int], declared: Sequence[Optional[int]]) -> bool:
    """Return whether a shape is one that the model declares; a model may declare none at all."""
    if not declared:
        return True
    if len(shape) != len(declared):
        return False
    return all(allowed in (None, size) for size, allowed in zip(shape, declared))


def describe(dtype: str, shape: Sequence[Optional[int]]) -> str:
    """Return a type and a shape for an error."""
    sizes = ["any" if size is None else str(size) for size in shape]
    return "%s %s" % (dtype, " x ".join(sizes))
