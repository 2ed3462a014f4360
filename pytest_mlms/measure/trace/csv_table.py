"""CSV files of records."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.core.files import write_atomically


def write_table(path: Path, rows: Sequence[Any], kind: type) -> None:
    """Write dataclasses of type ``kind`` as CSV, atomically.

    The header has the names of the fields. None is an empty cell; floats have six digits.
    """
    header = [field.name for field in dataclasses.fields(kind)]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(map(_cells, rows))
    write_atomically(path, text.getvalue())


def _cells(row: Any) -> list[object]:
    return [_cell(value) for value in dataclasses.astuple(row)]


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value
