"""Tables of values over time, which are cut into windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.core.errors import MlmsError
from tests.author.draft.test_drafting import request

FLOAT = TensorProto.FLOAT
TIMES = 40
WINDOW = 4
A = np.sin(np.arange(TIMES) / 3).round(4)
B = np.cos(np.arange(TIMES) / 5).round(4)
DATES = [f"2024-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(TIMES)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    return tmp_path


def save(shape: Sequence[int], gives: int) -> None:
    """Write model.onnx, which gives the last numbers of a window, as it is laid out."""
    count = int(np.prod(shape))
    weight = np.eye(count, dtype=np.float32)[:, count - gives :]
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, ["N", *shape])
    y = helper.make_tensor_value_info("y", FLOAT, ["N", gives])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "weight")])
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "model.onnx")


def write(header: str, *columns: Iterable[object]) -> None:
    rows = [",".join(map(str, cells)) for cells in zip(*columns, strict=True)]
    Path("data.csv").write_text("\n".join([header, *rows] if header else rows))


SAID: list[str] = []


def drafted(target: Sequence[str] = (), most: int = 1000) -> Draft:
    SAID.clear()
    asked = replace(
        request("model.onnx", said=SAID),
        data=recognise_data(Path("data.csv")),
        target_columns=target,
        most_inputs=most,
        replaces=True,
    )
    return draft_manifest(asked)


def packed() -> dict[str, np.ndarray]:
    with np.load("m-data.npz") as file:
        return dict(file)


def windows(values: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(values, WINDOW)


@pytest.mark.parametrize(
    ("shape", "header", "columns"),
    [
        ([WINDOW, 1], "date,sales", (DATES, A)),
        ([1, WINDOW], "t,sales", (range(TIMES), A)),
        ([WINDOW], "ds,y", (DATES, A)),
        ([WINDOW], "", (A,)),
        ([WINDOW, 1], "", (range(0, 60 * TIMES, 60), A)),
        ([WINDOW, 1], "date,sales", (DATES[::-1], A[::-1])),
    ],
)
def test_a_series_is_cut_into_windows_with_the_value_behind_each(
    shape: Sequence[int], header: str, columns: Sequence[Sequence[object]]
) -> None:
    save(shape, 1)
    write(header, *columns)
    draft = drafted()
    assert draft.task == "regression"
    assert draft.dataset is not None
    arrays = packed()
    expected = windows(A[:-1]).astype(np.float32).reshape(-1, *shape)
    assert np.array_equal(arrays["x"], expected)
    assert np.array_equal(arrays["label"], A[WINDOW:])
    assert "at the time after each window" in draft.dataset.comment
    said = "data.csv: sorted by column 'date'" in SAID
    assert said == (list(columns[0]) == DATES[::-1])


def test_several_columns_have_as_many_values_behind_a_window() -> None:
    save([WINDOW, 2], 2)
    write("time,a,b", range(TIMES), A, B)
    drafted()
    arrays = packed()
    assert np.array_equal(arrays["label"], np.stack([A[WINDOW:], B[WINDOW:]], axis=1))
    assert np.array_equal(arrays["x"][0], np.stack([A, B], axis=1)[:WINDOW].astype(np.float32))
    save([WINDOW, 2], 1)
    with pytest.raises(MlmsError, match="the model gives 1 number for a window; say which it pre"):
        drafted()
    drafted(["a"])
    assert np.array_equal(packed()["label"], A[WINDOW:])


def test_a_model_of_several_times_has_as_many_as_labels() -> None:
    save([WINDOW, 1], 3)
    write("sales", A)
    drafted()
    assert packed()["label"].shape == (TIMES - WINDOW - 2, 3)
    assert np.array_equal(packed()["label"][0], A[WINDOW : WINDOW + 3])


def test_windows_with_missing_values_are_left_out_and_their_lines_told() -> None:
    save([WINDOW, 1], 1)
    write("date,sales", DATES, ["" if time == 20 else value for time, value in enumerate(A)])
    drafted()
    assert len(packed()["label"]) == TIMES - WINDOW - WINDOW - 1
    assert "data.csv: line 22: missing values, left out with their windows" in SAID
    drafted(most=5)
    assert len(packed()["label"]) == 5


TWO_MONTHS = [(3 + day // 28, 1 + day % 28) for day in range(TIMES)]


@pytest.mark.parametrize(
    ("header", "times"),
    [
        ("date", [f"{day:02}.{month:02}.2024" for month, day in TWO_MONTHS]),
        ("date", [f"{month}/{day}/2024" for month, day in TWO_MONTHS]),
        ("date", [f"{1990 + time // 12}-{1 + time % 12:02}" for time in range(TIMES)]),
        ("date", [f"2024-01-{1 + time // 24} {time % 24}:00" for time in range(TIMES)]),
        ("date", [f"1/2/2024 {time % 12 or 12}:00 {'AP'[time // 12]}M" for time in range(24)]),
        ("time", range(1_700_000_000, 1_700_000_000 + TIMES)),
        ("year", range(1900, 1900 + TIMES)),
    ],
)
def test_the_last_time_first_is_turned_however_times_are_written(
    header: str, times: Sequence[object]
) -> None:
    save([WINDOW, 1], 1)
    values = A[: len(times)]
    for step in (1, -1):
        write(f"{header},sales", times[::step], values[::step])
        drafted()
        assert np.array_equal(packed()["label"], values[WINDOW:]), step
        assert (f"data.csv: sorted by column '{header}'" in SAID) == (step < 0)


def test_times_whose_order_is_not_clear_are_refused() -> None:
    save([WINDOW, 1], 1)
    for times, message in (
        ([f"{1 + time % 12:02}/{1 + time // 12:02}/2024" for time in range(TIMES)], "the month is"),
        ([f"2024-01-{1 + time % 28:02}T1:00+0{time % 2}:00" for time in range(TIMES)], "zones"),
        (["1/2/2024 noon"] * TIMES, "data.csv:2: column 'date': '1/2/2024 noon' is no time known"),
    ):
        write("date,sales", times, A)
        with pytest.raises(MlmsError, match=message):
            drafted()
    write("t,sales", [time // 2 for time in range(TIMES)], A)
    with pytest.raises(MlmsError, match="data.csv:3: column 't' has 0 again; name a table of one"):
        drafted()


@pytest.mark.parametrize("shape", [[WINDOW], [WINDOW, 1]])
def test_columns_that_are_no_numbers_make_no_series_of_the_target(shape: list[int]) -> None:
    save(shape, 1)
    percent = [f"{value:.0%}" for value in A]
    write("a,b,c,d,target", percent, percent, percent, percent, B)
    with pytest.raises(MlmsError, match="data.csv:2: column 'a'.* '0%'"):
        drafted()
    if len(shape) > 1:
        write("shop,sales", ["n", "s"] * (TIMES // 2), A)
        with pytest.raises(MlmsError, match="column 'shop' has 'n' in a series; .* --without shop"):
            drafted()


@pytest.mark.parametrize(
    ("shape", "header", "columns", "message"),
    [
        (
            [WINDOW, 1],
            "a,b",
            (A, B),
            r"has 2 columns of numbers \(a, b\), and 'x' takes windows of",
        ),
        ([TIMES, 1], "a", (A,), "has 40 times, and a window of the model 40; name a longer series"),
        (
            ["T", 1],
            "a",
            (A,),
            "takes windows of any number of times; say how .* --shape x=batch,24",
        ),
        ([WINDOW, 1], "date,a", (["2024-01-01"] * TIMES, A), "data.csv:3: column 'date' has 2024"),
    ],
)
def test_a_series_that_does_not_fit_is_refused(
    shape: list[int], header: str, columns: Sequence[Sequence[object]], message: str
) -> None:
    save([size if isinstance(size, int) else 1 for size in shape], 1)
    model = onnx.load("model.onnx")
    axes = model.graph.input[0].type.tensor_type.shape.dim
    for axis, size in enumerate(shape, start=1):
        if isinstance(size, str):
            axes[axis].dim_param = size
    onnx.save(model, "model.onnx")
    write(header, *columns)
    with pytest.raises(MlmsError, match=message):
        drafted()
