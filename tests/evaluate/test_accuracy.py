import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pytest_mlms.evaluate.accuracy import count_hits, estimate_accuracy
from pytest_mlms.pipeline import top_k

scores = arrays(
    np.float64,
    st.tuples(st.integers(1, 8), st.integers(2, 9)),
    elements=st.sampled_from([0, 0.25, 0.5, 1]),
)


@given(scores, st.integers(1, 9), st.data())
def test_a_hit_is_a_label_among_the_top_k(values: np.ndarray, k: int, data: st.DataObject) -> None:
    labels = np.array(
        data.draw(
            st.lists(
                st.integers(0, values.shape[1] - 1), min_size=len(values), max_size=len(values)
            )
        )
    )
    wanted = sum(
        label in best
        for label, best in zip(labels.tolist(), top_k(values, k).tolist(), strict=True)
    )
    assert count_hits(values, labels.astype(np.uint8), k) == wanted


def test_a_constant_output_earns_no_more_than_its_one_class() -> None:
    assert count_hits(np.zeros((10, 10)), np.arange(10), 1) == 1


def test_estimates_have_their_interval_and_top5_only_where_it_says_something() -> None:
    ten, three = np.eye(10), np.eye(3)
    found = estimate_accuracy(ten, np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0]))
    assert found["top1"].value == pytest.approx(0.9)
    assert found["top1"].low == pytest.approx(0.596, abs=1e-3)
    assert found["top5"].value == 1.0
    assert set(estimate_accuracy(three, np.arange(3))) == {"top1"}
