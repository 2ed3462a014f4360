"""Value types of manifests, with the messages for values that don't fit."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from pytest_mlms.core.text import close_words
from pytest_mlms.core.units import UNITS, parse_quantity, parse_share
from pytest_mlms.manifest.sources import check_source

# https://semver.org/#is-there-a-suggested-regular-expression-regex-to-check-a-semver-string
_SEMVER = (
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
)
_FRAMEWORK = re.compile(r"([a-z][a-z0-9_]*)(.*)", re.DOTALL)
_LONGEST_FRAMEWORK = 1000  # characters
_CONSTRAINT = re.compile(r"\s*(>=|<=|==|>|<)\s*(\S.*)")
_NUMBER = r"\s*\+?[0-9.]+([eE][-+]?[0-9]+)?\s*"


class Closed(BaseModel):
    """A mapping whose keys are all known and whose values are not converted from other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


@dataclass(frozen=True)
class Short:
    """A short form that a person may write, made into the full one before it is validated.

    ``form`` is the JSON Schema of the short form, or {"items": True} for one item of a full list.
    """

    convert: Callable[[Any], Any]
    form: JsonSchemaValue | None = field(default=None, hash=False)  # pydantic hashes optional types

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.convert, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        full = handler(core)
        if self.form is None:
            return full
        if self.form == {"items": True}:
            return {"anyOf": [full["items"], full]}
        return {"anyOf": [self.form, full]}


def instead(word: str, known: Collection[str]) -> str:
    """Return an advice what to write instead of ``word``: the known word close to it, or all."""
    close = close_words(word, list(known))
    if close:
        return f"did you mean {close[0]!r}?"
    return f"write one of {', '.join(known)}"


@functools.cache  # called for each case of each model
def split_framework(text: str) -> tuple[str, SpecifierSet]:
    """Return name and versions of "onnxruntime >=1.17".

    Raises ValueError with a message that tells the user what to write.
    """
    found = _FRAMEWORK.fullmatch(text) if len(text) <= _LONGEST_FRAMEWORK else None
    if not found:
        advice = "write its name and versions, as in 'onnxruntime >=1.17'"
        raise ValueError(f"{text!r} is not a framework; {advice}")
    name = found[1]
    versions = found[2].strip()
    try:
        return name, SpecifierSet(versions)
    except InvalidSpecifier:
        advice = "write them as in '>=1.17' or '>=1.9,<2'"
        raise ValueError(f"{versions!r} are not versions; {advice}") from None


def _known_framework(text: str, info: ValidationInfo) -> str:
    name, _ = split_framework(text)
    context = info.context or {}
    known = context.get("frameworks")
    if known is not None and name not in known:
        advice = f"{instead(name, sorted(known))} (--mlms-predictors DIR adds others)"
        raise ValueError(f"no predictor for {name!r}; {advice}")
    return text


def _known_device(text: str) -> str:
    """Refuse a slip of the pen: any other name may be that of a device which a host announces."""
    kind, _, number = text.partition(":")
    if kind == "gpu" or (kind not in _KINDS and close_words(kind, _KINDS, likeness=0.75)):
        close = "cuda" if kind == "gpu" else close_words(kind, _KINDS, likeness=0.75)[0]
        raise ValueError(f"found {text!r}; did you mean {close!r}?")
    if kind == "cpu" and number:
        raise ValueError(f"found {text!r}; write 'cpu'")
    return text


_KINDS = ("cpu", "cuda")
"""The kinds of devices that need no announcement."""


def _fetchable(text: str) -> str:
    try:
        urlsplit(text)
    except ValueError as error:
        advice = "write a relative path, https:// or file://"
        raise ValueError(f"{text!r} is no address ({error}); {advice}") from None
    check_source(text)
    return text


def split_constraint(text: str) -> tuple[str, float]:
    """Return the operator and the value of ">= 32 GiB" (in bytes) or ">= 8".

    Raises ValueError with a message that tells the user what to write.
    """
    found = _CONSTRAINT.fullmatch(text)
    if not found:
        advice = f"write '>= {text.strip()}', or one of <=, ==, >, <"
        raise ValueError(f"{text!r} has no comparison; {advice}")
    operator, number = found.groups()
    number = number.strip()
    value = float(number) if number.isdigit() else parse_quantity(number, "B")
    return operator, value


def _memory_constraint(text: str) -> str:
    split_constraint(text)
    if _is_plain_number(text):
        raise ValueError(f"{text!r} needs a unit; write '>= 32 GiB'")
    return text


def _count_constraint(text: str) -> str:
    split_constraint(text)
    if not _is_plain_number(text):
        raise ValueError(f"{text!r} is no count; write '>= 8'")
    return text


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, which a key may have."""
    return tuple(value) if isinstance(value, list) else value


def one_or_several(value: Any) -> Any:
    """Return a tuple of a list, or of one value."""
    return tuple(value) if isinstance(value, list) else (value,)


def _is_plain_number(constraint: str) -> bool:
    return constraint.strip()[-1].isdigit()


@dataclass(frozen=True)
class _ParsedQuantity:
    """Validator of a quantity: text with a unit in the file, a float in ``unit`` in memory."""

    unit: str
    form: JsonSchemaValue = field(hash=False)  # a dict; pydantic hashes optional types

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda text: parse_quantity(text, self.unit)
        )

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return self.form


class _ParsedShare(_ParsedQuantity):
    """Validator of a share that may be more than 100 %."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(parse_share)


def _quantity_type(unit: str) -> Any:
    """Return the type of a quantity in a base unit."""
    units = "|".join(UNITS[unit])
    form: JsonSchemaValue = {"type": "string", "pattern": f"^{_NUMBER}({units})\\s*$"}
    if unit == "fraction":
        number = {"type": "number", "minimum": 0, "maximum": 1}
        either: JsonSchemaValue = {"anyOf": [form, number]}
        return Annotated[float, _ParsedQuantity(unit, either)]
    as_written = PlainSerializer(lambda value: f"{value!r} {unit}")
    return Annotated[float, _ParsedQuantity(unit, form), as_written]


_SHARE_FORM: JsonSchemaValue = {
    "anyOf": [
        {"type": "string", "pattern": f"^{_NUMBER}(%)\\s*$"},
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    ]
}


_in_percent = PlainSerializer(
    lambda share: share if share < 1 else f"{100 * Decimal(repr(share))} %"
)

PATTERNS = {
    _SEMVER: "a semantic version, as in 1.0.0",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits, '.', '_' and '-'",
    r"^([0-9a-f]{64}|md5:[0-9a-f]{32}|unpinned)$": "64 hexadecimal digits, as sha256sum prints",
    r"^[a-z][a-z0-9_]*(:\d+)?$": "cpu, cuda, cuda:N, or the name of a device that is announced",
}
"""Pattern -> what to write."""

_VERSION, _NAME, _SHA256, _DEVICE = PATTERNS

Name = Annotated[str, Field(pattern=_NAME, description=PATTERNS[_NAME])]
SemanticVersion = Annotated[str, Field(pattern=_VERSION, description=PATTERNS[_VERSION])]
Sha256 = Annotated[str, Field(pattern=_SHA256, description=PATTERNS[_SHA256])]
Device = Annotated[
    str,
    Field(pattern=_DEVICE, description=PATTERNS[_DEVICE]),
    AfterValidator(_known_device),
]
Framework = Annotated[
    str, AfterValidator(_known_framework), Field(description="as in onnxruntime >=1.17")
]
Source = Annotated[
    str,
    Field(
        min_length=1,
        description="a path, https://, file://, pypi:, hf:, s3://, gs://, az:// or doi:",
    ),
    AfterValidator(_fetchable),
]
ElementType = Literal[
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"
]
InputElement = Literal[
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "string"
]
Layout = Literal["NCHW", "NHWC"]
Scalar = str | int | float | bool
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, description="a number, 0 or more")]
Fraction = _quantity_type("fraction")
Share = Annotated[float, _ParsedShare("fraction", _SHARE_FORM), _in_percent]
"""How much worse something may be, which may be more than all of it."""
Seconds = _quantity_type("s")
PerSecond = _quantity_type("/s")
PerChannel = Annotated[
    tuple[float, ...], Field(min_length=1), Short(one_or_several, {"type": "number"})
]
AmountOfMemory = Annotated[str, AfterValidator(_memory_constraint), Field(description=">= 32 GiB")]
Count = Annotated[str, AfterValidator(_count_constraint), Field(description=">= 8")]


def value_type(unit: str, bound: Literal["min", "max"]) -> Any:
    """Return the type of a limit in a unit: text with a unit, or a plain number from 0.

    What may be larger than all of something, such as an error rate, has a share as its limit.
    """
    if unit == "fraction" and bound == "max":
        return Share
    return _quantity_type(unit) if unit in UNITS else NotNegative


class OneKey(Closed):
    """One key, a name, with its parameters; a bare word is a name without parameters.

    The fields of a subclass are the names; their types are the models of the parameters. ``WORD``
    is what messages call an entry.
    """

    WORD: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {value: {}}
        if not isinstance(value, dict):
            return value
        entries = {}
        for name, parameters in value.items():
            entries[name] = {} if parameters is None else parameters
        return entries

    @model_validator(mode="after")
    def _check_names(self) -> OneKey:
        count = len(self.model_fields_set)
        if count != 1:
            found = f"a {self.WORD} has one name, this one has {count}"
            raise ValueError(f"{found}; begin each with '- '")
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        form = handler.resolve_ref_schema(handler(core))
        form.update(minProperties=1, maxProperties=1)
        for parameters in form["properties"].values():
            parameters.pop("default", None)
        words = {"enum": sorted(cls.model_fields)}
        return {"anyOf": [words, dict(form)]}

    @property
    def name(self) -> str:
        """The name."""
        return next(iter(self.model_fields_set))

    @property
    def parameters(self) -> Any:
        """The parameters, an object of the class that the name stands for."""
        return getattr(self, self.name)
