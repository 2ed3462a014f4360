"""The value types that a manifest is made of."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
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
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from pytest_mlms.units import UNITS, parse_quantity

__all__ = [
    "PATTERNS",
    "AmountOfMemory",
    "Closed",
    "Count",
    "Device",
    "ElementType",
    "Fraction",
    "Framework",
    "Layout",
    "Name",
    "NotNegative",
    "Positive",
    "Scalar",
    "Scenario",
    "SemanticVersion",
    "Sha256",
    "Short",
    "Source",
    "instead",
    "split_constraint",
    "split_framework",
    "value_type",
]

# https://semver.org/#is-there-a-suggested-regular-expression-regex-to-check-a-semver-string
_SEMVER = (
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
)


class Closed(BaseModel):
    """A mapping whose keys are all known and whose values are not converted from other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True)
class Short:
    """A short form that a person may write, made into the full one before it is validated."""

    convert: Callable[[Any], Any]
    form: JsonSchemaValue | None = None  # of the short form, "items" for an item of the full one

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
        return {"anyOf": [full["items"] if self.form == {"items": True} else self.form, full]}


def instead(word: str, known: Collection[str]) -> str:
    """Say what to write instead of ``word``.

    The known one that is close to it, else all of them.
    """
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]!r}?" if close else f"write one of {', '.join(known)}"


@functools.cache  # asked for each case of each model
def split_framework(text: str) -> tuple[str, SpecifierSet]:
    """Return name and versions of "onnxruntime >=1.17".

    Raises ValueError, whose text says what to write.
    """
    found = re.fullmatch(r"([a-z][a-z0-9_]*)\s*(.*)", text)
    if not found:
        raise ValueError(
            f"{text!r} is not a framework; write its name and versions, as in 'onnxruntime >=1.17'"
        )
    try:
        return found[1], SpecifierSet(found[2])
    except InvalidSpecifier:
        raise ValueError(
            f"{found[2]!r} are not versions; write them as in '>=1.17' or '>=1.9,<2'"
        ) from None


def _known_framework(text: str, info: ValidationInfo) -> str:
    name, _ = split_framework(text)
    known = (info.context or {}).get("frameworks")
    if known is not None and name not in known:
        raise ValueError(
            f"no predictor for {name!r}; {instead(name, sorted(known))} (--mlms-predictors DIR adds others)"
        )
    return text


def _fetchable(text: str) -> str:
    scheme = urlsplit(text).scheme
    if scheme not in ("", "file", "http", "https"):
        raise ValueError(f"can't fetch {scheme}://; write a relative path, https:// or file://")
    return text


_CONSTRAINT = re.compile(r"\s*(>=|<=|==|>|<)\s*(\S.*)")


def split_constraint(text: str) -> tuple[str, float]:
    """Return the operator and the value of ">= 32 GiB" (bytes) or ">= 8"; raises ValueError."""
    found = _CONSTRAINT.fullmatch(text)
    if not found:
        raise ValueError(
            f"{text!r} has no comparison; write '>= {text.strip()}', or one of <=, ==, >, <"
        )
    number = found[2].strip()
    return found[1], float(number) if number.isdigit() else parse_quantity(number, "B")


def _constraint(text: str, base: str) -> str:
    split_constraint(text)
    if text.strip()[-1].isdigit() is bool(base):
        raise ValueError(
            f"{text!r} needs {'a unit' if base else 'a plain number'}; write '>= 32 GiB'"
            if base
            else f"{text!r} is no count; write '>= 8'"
        )
    return text


def _quantity(base: str) -> Any:
    """Return the type of a quantity.

    Text with a unit in the file, a float in ``base`` in memory.
    """
    units = "|".join(UNITS[base])
    form: JsonSchemaValue = {
        "type": "string",
        "pattern": rf"^\s*\+?[0-9.]+([eE][-+]?[0-9]+)?\s*({units})\s*$",
    }
    if base == "fraction":
        form = {"anyOf": [form, {"type": "number", "minimum": 0, "maximum": 1}]}
    return Annotated[
        float,
        _Parsed(base, form),
        PlainSerializer(lambda value: value if base == "fraction" else f"{value!r} {base}"),
    ]


@dataclass(frozen=True)
class _Parsed:
    base: str
    form: JsonSchemaValue = field(hash=False)  # a dict, and optional types are hashed

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda text: parse_quantity(text, self.base)
        )

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return self.form


PATTERNS = {
    _SEMVER: "a semantic version, as in 1.0.0",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits, '.', '_' and '-'",
    r"^[0-9a-f]{64}$": "64 hexadecimal digits, as sha256sum prints",
    r"^(cpu|cuda(:\d+)?)$": "cpu, cuda or cuda:N",
}
"""Pattern -> what a person is told to write."""

_VERSION, _NAME, _SHA256, _DEVICE = PATTERNS

Name = Annotated[str, Field(pattern=_NAME, description=PATTERNS[_NAME])]
SemanticVersion = Annotated[str, Field(pattern=_VERSION, description=PATTERNS[_VERSION])]
Sha256 = Annotated[str, Field(pattern=_SHA256, description=PATTERNS[_SHA256])]
Device = Annotated[str, Field(pattern=_DEVICE, description=PATTERNS[_DEVICE])]
Framework = Annotated[
    str, AfterValidator(_known_framework), Field(description="as in onnxruntime >=1.17")
]
Source = Annotated[
    str, Field(min_length=1, description="a path, https:// or file://"), AfterValidator(_fetchable)
]
ElementType = Literal[
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"
]
Layout = Literal["NCHW", "NHWC"]
Scenario = Literal["single_stream", "offline"]
Scalar = str | int | float | bool
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, description="a number, 0 or more")]
Fraction = _quantity("fraction")
AmountOfMemory = Annotated[
    str, AfterValidator(lambda text: _constraint(text, "B")), Field(description=">= 32 GiB")
]
Count = Annotated[
    str, AfterValidator(lambda text: _constraint(text, "")), Field(description=">= 8")
]


def value_type(unit: str) -> Any:
    """Return the type of a value in a unit: text with a unit, or a plain number from 0."""
    return _quantity(unit) if unit in UNITS else NotNegative
