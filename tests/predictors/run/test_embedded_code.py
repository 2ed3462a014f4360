"""Python that manifests embed, as an agent runs it."""

from __future__ import annotations

import numpy as np
import pytest
from mlms_predictors._run.embedded_code import CodeError, Element, EmbeddedCode, Text

READS_FILE = """
def preprocess(ctx, data):
    with open(dataset[int(data)], "rb") as file:
        return [len(data), len(file.read())]
"""


def code(text: str, line: int = 0) -> EmbeddedCode:
    return EmbeddedCode("m.yml", [Text(text, line)])


def elements(*numbers: int) -> list[Element]:
    return [Element(number, ".png", b"x" * number) for number in numbers]


def test_elements_are_files_by_their_numbers() -> None:
    (found,) = code(READS_FILE).preprocess(elements(3, 12))
    assert found.tolist() == [[1, 3], [2, 12]]


def test_files_keep_their_suffix() -> None:
    text = "def preprocess(ctx, data): return float(dataset[int(data)].endswith('7.png'))"
    (found,) = code(text).preprocess(elements(7))
    assert found.tolist() == [1]


def test_a_tuple_is_one_array_an_input() -> None:
    text = "def preprocess(ctx, data): return [int(data)], [[1, 2]]"
    ids, mask = code(text).preprocess(elements(4, 5))
    assert ids.tolist() == [[4], [5]]
    assert mask.shape == (2, 1, 2)


def test_postprocess_gets_the_list_of_outputs() -> None:
    text = "def postprocess(ctx, data): return (data[0] + len(data)).tolist()"
    outputs = [np.zeros((2, 3)), np.ones(2)]
    assert code(text).postprocess(outputs).tolist() == [[2, 2, 2], [2, 2, 2]]


def test_both_texts_share_a_module() -> None:
    texts = [
        Text("sizes = []\ndef preprocess(ctx, data):\n    sizes.append(1)\n    return 0.0", 0),
        Text("def postprocess(ctx, data): return sizes", 9),
    ]
    made = EmbeddedCode("m.yml", texts)
    made.preprocess(elements(0, 1))
    assert made.postprocess([]).tolist() == [1, 1]


def test_the_context_is_empty_in_each_call() -> None:
    text = "def preprocess(ctx, data):\n    ctx['seen'] = 1\n    return len(ctx)"
    (found,) = code(text).preprocess(elements(0, 1))
    assert found.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_module", "m.yml:11: ModuleNotFoundError: No module named"),
        ("a = 1\ndef (", "m.yml:12: SyntaxError: "),
        ("\n\n1 / 0", "m.yml:13: ZeroDivisionError: "),
        ("raise SystemExit(2)", "m.yml:11: SystemExit: 2"),
        ("a = '\0'", "m.yml:10: "),
    ],
)
def test_errors_of_a_text_have_the_line_of_the_manifest(text: str, problem: str) -> None:
    with pytest.raises(CodeError) as error:
        code(text, 10)
    assert str(error.value).startswith(problem)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return unknown", "m.yml:2: NameError: "),
        ("return 'a'", "preprocess returns a str of <U1, not numbers"),
        ("return [[1], [1, 2]]", "preprocess returns "),
        ("return [0] * int(data)", "preprocess returns arrays of several shapes, (3,), (4,)"),
        ("return (0,) * int(data)", "preprocess returns [3, 4] arrays; return as many each time"),
        ("return dataset[9]", "m.yml:2: IndexError: element 9 is not that of this call, data"),
        ("return preprocess(ctx, data)", "m.yml:2: RecursionError: "),
    ],
)
def test_errors_of_a_call_say_what_is_wrong(body: str, problem: str) -> None:
    made = code(f"def preprocess(ctx, data):\n    {body}")
    with pytest.raises(CodeError) as error:
        made.preprocess(elements(3, 4))
    assert str(error.value).startswith(problem)


def test_a_missing_function_is_named() -> None:
    with pytest.raises(CodeError, match=r"m.yml: there is no function preprocess\(ctx, data\)"):
        code("").preprocess(elements(0))


def test_an_error_without_a_text_is_told() -> None:
    text = "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd"
    with pytest.raises(CodeError, match=r"m.yml:3: Odd: its text raised ValueError"):
        code(text)
