"""CSV files of records."""

from __future__ import annotations

import csv
from pathlib import Path

from pytest_mlms.measure.trace.tables import KernelRow, LayerRow, write_table


def test_a_table_without_rows_has_its_header(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    write_table(path, [], LayerRow)
    header = "index,name,type,shape,calls,latency_us,share,bytes,kernel_us"
    assert path.read_text().splitlines() == [header]


def test_cells_are_quoted_rounded_and_empty_where_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    kernel = KernelRow("k, the first", "kernel", "", 2.0, 1.23456789, 3.0, None)
    write_table(path, [kernel], KernelRow)
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert list(row.values()) == ["k, the first", "kernel", "", "2", "1.23457", "3", ""]


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    write_table(path, [], LayerRow)
    assert list(tmp_path.iterdir()) == [path]
