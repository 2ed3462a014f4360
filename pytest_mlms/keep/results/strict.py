"""The records of a line, read strictly: each value of its own type, and within its bounds.

``from_plain`` reads the same records as pages do: leniently, and without bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from pytest_mlms.core.serialization import NullAs, OrDefault

if TYPE_CHECKING:
    from pydantic import BaseModel


class Bounds:
    """Annotation of a field: the bounds of strict readers, as pydantic.Field takes them."""

    def __init__(self, **of_field: Any) -> None:
        self.of_field = of_field


class IndexBounds(Bounds):
    """The bounds of a field for readers that index it; others read what was written."""


Count = Annotated[int, Bounds(ge=0, lt=2**31)]
Text = Annotated[str, IndexBounds(max_length=4000)]
"""A text that histories index: PostgreSQL's indexes take no more than 8 KiB."""

Name = Annotated[str, Bounds(min_length=1), IndexBounds(max_length=400)]


@dataclass(frozen=True)
class Taken:
    """The names of the fields of a record that a strict reader takes, in words.

    ``required`` must be there; ``optional`` have their default where they aren't, and ``nullable``
    may be null, too, and are None where they aren't there. ``instead`` has the types of fields
    where a reader asks for others than the record has.
    """

    required: str = ""
    optional: str = ""
    nullable: str = ""
    instead: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StrictReader:
    """A strict reader: the fields that it takes of each record, and whether it indexes them.

    ``extra`` is what its models do with fields that aren't taken.
    """

    taken: Mapping[type, Taken]
    extra: Literal["allow", "ignore"]
    indexes: bool = False

    def model(self, record: type) -> type[BaseModel]:
        """Return the model that validates the plain values of a record.

        It has lists, dictionaries and other models for sequences, mappings and records.
        """
        from pydantic import ConfigDict, create_model

        wanted = self.taken[record]
        hints = hints_of(record, include_extras=True)
        kinds = {}
        for name in f"{wanted.required} {wanted.optional} {wanted.nullable}".split():
            kinds[name] = self._strict(wanted.instead.get(name) or hints[name])
        made: dict[str, Any] = {name: (kinds[name], ...) for name in wanted.required.split()}
        for name in wanted.optional.split():
            made[name] = (kinds[name], _default(record, name, kinds[name]))
        for name in wanted.nullable.split():
            made[name] = (kinds[name] | None, None)
        config = ConfigDict(strict=True, extra=self.extra)
        return create_model(record.__name__, __config__=config, **made)

    def _strict(self, hint: Any) -> Any:
        """Return the type of a field as strict readers take it."""
        origin = get_origin(hint)
        if origin is None:
            return self.model(hint) if hint in self.taken else _strict_value(hint)
        if origin is Literal:
            return hint
        if origin is Annotated:
            return self._annotated(hint)
        parts = [self._strict(part) for part in get_args(hint) if part is not ...]
        if origin in (Union, UnionType):
            return Union[tuple(parts)]  # noqa: UP007
        return list[parts[0]] if origin in (tuple, Sequence) else dict[tuple(parts)]  # type: ignore[valid-type,misc]

    def _annotated(self, hint: Any) -> Any:
        """Return a type with what its annotations mean for strict readers."""
        from pydantic import Field

        kind = self._strict(get_args(hint)[0])
        for annotation in hint.__metadata__:
            if isinstance(annotation, IndexBounds) and not self.indexes:
                continue
            if isinstance(annotation, Bounds):
                kind = Annotated[kind, Field(**annotation.of_field)]
            elif not isinstance(annotation, (NullAs, OrDefault)):
                return hint  # with validators of a reader's own
        return kind


def _default(record: Any, name: str, kind: Any) -> Any:
    """Return the default of a record's field, as the model of a strict reader has it."""
    (declared,) = [declared for declared in fields(record) if declared.name == name]
    if declared.default_factory is MISSING:
        return list(declared.default) if declared.default == () else declared.default
    default = declared.default_factory()
    return kind() if is_dataclass(default) else default


def _strict_value(kind: Any) -> Any:
    """Return the type of a value: a finite float, and for an enum its values."""
    from pydantic import Field

    if kind is float:
        return Annotated[float, Field(allow_inf_nan=False)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return Literal[tuple(member.value for member in kind)]
    return kind
