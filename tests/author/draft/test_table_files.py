"""Tables of text as people have them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.author.draft.table_files import ColumnsData, is_number, read_table
from pytest_mlms.core.errors import MlmsError


def read(folder: Path, text: str | bytes, name: str = "data.csv") -> ColumnsData:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(path)


def columns(folder: Path, text: str | bytes) -> dict[str, list[str]]:
    return {name: list(cells) for name, cells in read(folder, text).columns.items()}


PLAIN = {"a": ["1.5", "2"], "b": ["3", "4"], "y": ["x", "z"]}


@pytest.mark.parametrize(
    "text",
    [
        "a,b,y\n1.5,3,x\n2,4,z\n",
        "\ufeffa,b,y\r\n1.5,3,x\r\n2,4,z\r\n",
        "a;b;y\n1,5;3;x\n2;4;z\n",
        "a\tb\ty\n1.5\t3\tx\n2\t4\tz",
        "a|b|y\n1.5|3|x\n2|4|z\n",
        '"a","b","y"\n"1.5","3","x"\n"2","4","z"\n',
        "a, b, y\n1.5, 3, x\n\n2, 4, z\n,,\n",
        "sep=;\na;b;y\n1.5;3;x\n2;4;z\n",
        "# a,b,y\n1.5,3,x\n2,4,z\n",
        "a b y\n1.5 3 x\n2  4  z\n",
        "a,b,y,\n1.5,3,x,\n2,4,z,\n",
        "a,b,y\n1.5,3,x,\n2,4,z,\n",
    ],
)
def test_a_table_is_the_same_however_it_is_written(tmp_path: Path, text: str) -> None:
    assert columns(tmp_path, text) == PLAIN
    assert columns(tmp_path, text.encode("utf-16")) == PLAIN


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1,2,x\n3,4,y\n", ["1", "2", "3"]),
        ("0,1,2,target\n5,6,7,1\n", ["0", "1", "2", "target"]),
        ("0,1,2\n5,6,7\n", ["0", "1", "2"]),
        ("0,1,2,a\n5,6,7,a\n", ["1", "2", "3", "4"]),
        (",a,b\n0,5,6\n1,7,8\n", ["", "a", "b"]),
        ("a b\nr1 5 6\nr2 7 8\n", ["", "a", "b"]),
        ("2,2,dog,cat\n0.5,1,0\n0.25,2,1\n", ["1", "2", "3"]),
        ("text,label\nhello there,good\noh no,bad\n", ["text", "label"]),
        ("red,hot\nblue,cold\nred,hot\n", ["1", "2"]),
        ("date,value\n2024-01-01,3\n2024-01-02,4\n", ["date", "value"]),
        ("2024-01-01,3\n2024-01-02,4\n", ["1", "2"]),
        ("True,3\nFalse,4\n", ["1", "2"]),
        ("inf,3\n1,4\n", ["1", "2"]),
        ("null,3\n1,4\n", ["1", "2"]),
        ("8,9,10,11,12,kind\n1,2,3,4,5,a\n1,2,3,4,5,a\n", ["8", "9", "10", "11", "12", "kind"]),
        ("8,9,9,11,12,kind\n1,2,3,4,5,a\n1,2,3,4,5,a\n", ["1", "2", "3", "4", "5", "6"]),
    ],
)
def test_a_first_line_with_names_is_told_from_one_with_values(
    tmp_path: Path, text: str, names: list[str]
) -> None:
    assert read(tmp_path, text).names == names


def test_what_a_column_has_is_known_in_spite_of_missing_values(tmp_path: Path) -> None:
    data = read(
        tmp_path,
        "n,t,d,w,e,m\n1e3,true,2024-01-05,x,,1\n,False,05.01.2024 10:00,,,\nNaN,TRUE,NA,1,,x\n",
    )
    kinds = [data.kind(name) for name in data.names]
    assert kinds == ["numbers", "truths", "dates", "texts", "nothing", "texts"]


def test_cells_with_separators_quotes_and_line_ends_stay_one_cell(tmp_path: Path) -> None:
    data = read(tmp_path, 'text,label\n"a, ""b""\nc",1\nd;e;f,0\n')
    assert data.columns["text"] == ['a, "b"\nc', "d;e;f"]
    assert list(data.lines) == [2, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows; write a row for each input"),
        ("a,b\n", "data.csv has names of columns and no rows"),
        ("a,b\n1,2\n3,4,5\n", r"data.csv:3: has 3 cells, and line 1 2; write as many, and a cell"),
        ("a,a\n1,2\n", "has two columns 'a'; rename one"),
        ('a,b\n1,"2\n3,4\n', "data.csv:2: unexpected end of data; close its quotes"),
        (b"a,b\n1,2\n\xe4,4\n", "data.csv:3: is not UTF-8; save it as UTF-8: iconv -f WINDOWS"),
        ("a,b\n1,\x002\n", "is no table of text"),
        ("5.1,3.5,0x1\n4,3,1\n", "data.csv:1: has the numbers of a row, and '0x1', where"),
        ("a;b\n1,234;7\n2,345;8\n", "data.csv:2: 1,234 may be 1.234 or 1234; write numbers with"),
        ("a\tb\n1\t2.5\n1,234\t3\n", "data.csv:3: has 1,234, and line 2 2.5, of which one is"),
        ("a;b\n1,5;1.234\n2,25;900\n", "data.csv:2: has 1,5, and line 2 1.234, of which one is"),
    ],
)
def test_a_broken_table_is_refused_by_its_line(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(MlmsError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "cell", ["1_000", "0x10", "inf", "nan", "1,5", "12%", "$3", "1 2", "-", "1e999"]
)
def test_what_python_or_people_may_take_for_a_number_is_none(cell: str) -> None:
    assert not is_number(cell)


NAMES = st.lists(st.from_regex(r"[a-zA-Z][a-z ,;\"']{0,6}[a-z]", fullmatch=True), min_size=2)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), names=NAMES.filter(lambda names: len(names) == len(set(names)) < 8))
def test_any_table_of_numbers_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, names: list[str]
) -> None:
    row = st.lists(NUMBERS, min_size=len(names), max_size=len(names))
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    separator = data.draw(st.sampled_from([",", ";", "\t", "|"]))
    is_quoted = data.draw(st.booleans())
    ending = data.draw(st.sampled_from(["\n", "\r\n"]))
    file = io.StringIO(newline="")
    writer = csv.writer(
        file,
        delimiter=separator,
        quoting=csv.QUOTE_ALL if is_quoted else csv.QUOTE_MINIMAL,
        lineterminator=ending,
    )
    writer.writerows([names, *rows])
    found = read(tmp_path_factory.mktemp("t"), file.getvalue())
    assert found.names == names
    assert [list(cells) for cells in zip(*found.columns.values(), strict=True)] == rows
