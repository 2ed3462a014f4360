"""Entries of lists that are a name, or one key: the name with its parameters."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pytest_mlms.manifest.types import Closed


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
