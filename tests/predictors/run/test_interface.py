"""The functions of a predictor, their defaults, and the check that the required ones are there."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from mlms_predictors import Layer, Profile
from mlms_predictors._run.interface import REQUIRED, functions_of


def module_with(**functions: Any) -> ModuleType:
    """Return a predictor's module with the required functions and these."""
    module = ModuleType("mlms_predictors.mine")
    vars(module).update(dict.fromkeys(REQUIRED, print))
    vars(module).update(functions)
    return module


@pytest.mark.parametrize("name", REQUIRED)
def test_a_module_without_a_required_function_is_refused(name: str) -> None:
    module = module_with()
    delattr(module, name)
    with pytest.raises(TypeError, match=rf"mine\.py is no predictor: it has no function {name};"):
        functions_of(module)


def test_a_required_name_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="it has no function predict; a predictor has at least"):
        functions_of(module_with(predict=None))


def test_all_missing_functions_are_named_at_once() -> None:
    with pytest.raises(TypeError, match="no function versions, devices, load, predict;"):
        functions_of(ModuleType("mine"))


def test_the_modules_own_functions_are_called_directly() -> None:
    own = SimpleNamespace(bind=object(), inner=object(), structure=object(), close=object())
    found = functions_of(module_with(**vars(own)))
    assert (found.bind, found.inner, found.structure, found.close) == tuple(vars(own).values())


def test_bind_is_predict_with_its_arguments_by_default() -> None:
    def predict(loaded: Any, arrays: Any) -> Any:
        return loaded, arrays

    call: Any = functions_of(module_with(predict=predict)).bind("model", {"x": 1})  # type: ignore[arg-type]
    assert call() == ("model", {"x": 1})


def test_profiles_are_calls_of_layers_one_after_another_by_default() -> None:
    profile = Profile(1.0, 2.0, [Layer("a", "Add", 1.0, 2.0, None, None)])
    found = functions_of(module_with(layers=lambda loaded, arrays: profile))
    loaded: Any = "model"
    assert found.has_layers
    assert found.profiles(loaded, {}, 3) == [profile] * 3


def test_what_a_framework_cannot_tell_is_not_implemented() -> None:
    found = functions_of(module_with())
    loaded: Any = "model"
    assert not found.has_layers
    with pytest.raises(NotImplementedError, match=r"mine\.py has no 'layers'"):
        found.profiles(loaded, {}, 1)
    with pytest.raises(NotImplementedError, match=r"mine\.py has no 'inner'"):
        found.inner(loaded, {})
    with pytest.raises(NotImplementedError, match=r"mine\.py has no 'structure'"):
        found.structure(loaded, {})


def test_nothing_of_a_device_is_told_and_close_does_nothing_by_default() -> None:
    found = functions_of(module_with())
    loaded: Any = "model"
    assert found.device_seconds is None
    assert found.event_times is None
    assert found.device_memory(loaded) == {}
    found.close(loaded)
