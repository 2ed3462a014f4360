"""Tests of the records that packages hand each other."""

from __future__ import annotations

import pytest

from pytest_mlms.records import device_name


@pytest.mark.parametrize(
    ("device", "name"),
    [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:1")],
)
def test_a_device_without_an_index_is_the_first_one(device: str, name: str) -> None:
    assert device_name(device) == name
