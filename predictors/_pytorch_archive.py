"""The check of a .pt2 before torch.export loads it, so that it can't run code.

torch.export resolves operators and names by Python's getattr, writes names into Python code,
evaluates formulas of sizes as Python, unpickles, and loads compiled code. So all of these are
checked: a file may only have what torch.export.save writes for a model of torch's own operators.
"""

import json
import re
import zipfile
from typing import Any, Callable, Iterator, NamedTuple, Tuple

from mlms_predictors._pytorch_formulas import is_plain
from mlms_predictors._pytorch_script import FILE_OPERATORS
from mlms_predictors._run.zip_files import plain_members

_MEMBER = re.compile(
    r"""
    [^/]+ / (
        archive_format | archive_version | byteorder | version
        | \.data/[^/]+ | \.format_version | \.storage_alignment
        | models/model\.json
        | data/weights/ (weight_\d+ | [^/]+_weights_config\.json | [^/]+\.pt)
        | data/constants/ (tensor_\d+ | [^/]+_constants_config\.json | [^/]+\.pt)
        | data/sample_inputs/[^/]+\.pt
        | extra/.+
    ) \Z
    """,
    re.VERBOSE,
)
_PROGRAM = "/models/model.json"
_ADVICE = "allow it with --mlms-allow-code"
_RANGES = "range_constraints"

_OPERATOR = re.compile(
    r"""
    torch\.ops\. (aten|prims|quantized|quantized_decomposed|onednn|torchvision)
        \. ( __i?(and|or|xor|[lr]shift)__ | (?! (?:FILES)\b | \w+__\b ) \w+ ) \. (?!__)\w+
    | torch\.ops\.higher_order\. (cond | while_loop | scan | associative_scan | map_impl
        | invoke_subgraph | strict_mode | wrap_with_set_grad_enabled | wrap_with_autocast
        | flex_attention | out_dtype | auto_functionalized | auto_functionalized_v2)
    | torch\.(_sym_sqrt | sym_(not|int|float|ite|max|min|sum|sqrt))
    | math\. (trunc | ceil | floor | sqrt)
    | _operator\. (getitem | eq | ne | le | ge | lt | gt | neg | pos | mul | add | sub | floordiv
        | mod | pow | truediv | and_ | or_ | lshift | rshift)
    """.replace("FILES", "|".join(FILE_OPERATORS)),
    re.VERBOSE,
)
_FORMULA = "expr_str"
_TEXTS_ONLY = (_FORMULA, "target", "as_operator")
_NAME = re.compile(r"[\w.+\-]*\Z")
_KEY = re.compile(r"(?!.*__enum__)[\w.+\-/ ]*\Z")
"""A key or type of a signature; torch imports the class that is beside the word __enum__."""
_MANY_DIGITS = re.compile(r"\d{7}")
"""The number of a symbol up to which torch counts."""


def check_pt2(path: str) -> None:
    """Raise RuntimeError where a .pt2 has more than a model of torch's own operators."""
    members = plain_members(path)
    names = [member.filename for member in members]
    roots = sorted({name.partition("/")[0] for name in names})
    if len(roots) != 1:
        raise RuntimeError("it has the folders %s, and a .pt2 has one" % ", ".join(roots))
    for name in names:
        if not _MEMBER.match(name):
            raise RuntimeError("%s may be code that would run; %s" % (name, _ADVICE))
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError("%s is compressed, which torch doesn't do" % member.filename)
    with zipfile.ZipFile(path) as archive:
        for name in names:
            if name.endswith(_PROGRAM):
                _check_member(archive, name)


def _check_member(archive, name):
    try:
        check_program(json.loads(archive.read(name).decode()))
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise RuntimeError("%s is damaged: %s" % (name, error)) from error
    except RecursionError:
        raise RuntimeError("%s is damaged: it is nested too deeply" % name) from None


def check_program(program: Any) -> None:
    """Raise RuntimeError where the JSON of a program is more than operators, names and sizes."""
    for key, text in _texts("", program):
        rule = _RULES.get(key, _NAMES)
        if not rule.is_plain(text):
            raise RuntimeError("%s: %.80s; %s" % (rule.problem, text, _ADVICE))


def _texts(key: str, value: Any) -> Iterator[Tuple[str, Any]]:
    """Yield the texts in a value, each with the key that is nearest above it.

    A formula and an operator are yielded as they are, since they must be texts.
    """
    if key in _TEXTS_ONLY or isinstance(value, str):
        yield key, value
    elif key == "guards_code":
        for formula in value if isinstance(value, list) else [value]:
            yield key, formula
    elif isinstance(value, list):
        for part in value:
            yield from _texts(key, part)
    elif isinstance(value, dict):
        yield from _texts_of_dict(key, value)


def _texts_of_dict(key, values):
    for name, value in values.items():
        yield (key if key == _RANGES else "key"), name
        is_note = key == "metadata" and isinstance(value, str) and name not in _TEXTS_ONLY
        if not is_note:
            yield from _texts(name, value)


def _is_operator(text):
    return isinstance(text, str) and _OPERATOR.fullmatch(text) is not None


def _is_name(text):
    return _NAME.match(text) is not None


def _is_symbol(text):
    return _MANY_DIGITS.search(text) is None


def _is_handed_on(text):
    return True


def _is_plain_signature(text):
    """True if a signature, which is JSON with JSON in its texts, has plain keys and types only."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return all(_is_plain_part(part) for part in _parts(value))


def _is_plain_part(text):
    if text[:1] in ("[", "{", '"'):
        return _is_plain_signature(text)
    return _KEY.match(text) is not None


def _parts(value: Any) -> Iterator[str]:
    """Yield the texts and keys in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _parts(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _parts(part)


class _Rule(NamedTuple):
    """A check of texts, and what is wrong with one that fails it."""

    is_plain: Callable[[Any], bool]
    problem: str


_NAMES = _Rule(_is_name, "a name would run code")
_OPERATORS = _Rule(_is_operator, "it is none of torch's own operators, and would run code")
_SIGNATURES = _Rule(_is_plain_signature, "a signature would run code")
_HANDED_ON = _Rule(_is_handed_on, "")
_RULES = {
    _FORMULA: _Rule(is_plain, "a formula would run code, or compute for long"),
    "guards_code": _Rule(is_plain, "a formula would run code, or compute for long"),
    "target": _OPERATORS,
    "as_operator": _OPERATORS,
    "in_spec": _SIGNATURES,
    "out_spec": _SIGNATURES,
    _RANGES: _Rule(_is_symbol, "the number of a symbol would be counted up to"),
    "as_string": _HANDED_ON,
    "as_strings": _HANDED_ON,
    "torch_version": _HANDED_ON,
}
"""The rules for the texts under a key; those under another key are names."""
