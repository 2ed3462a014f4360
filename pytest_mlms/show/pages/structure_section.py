"""Section of a model's structure and static cost, which its trace recorded."""

from __future__ import annotations

from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.section import Context, Section
from pytest_mlms.show.pages.structure import structure_of


def _structure(item: ItemView) -> Context | None:
    found = structure_of(item)
    return None if found is None else {"structure": found}


STRUCTURE = Section("Structure and cost", "_structure.html", _structure)
"""Layers, parameters, operations and bytes of the model, in all and by type of layer."""
