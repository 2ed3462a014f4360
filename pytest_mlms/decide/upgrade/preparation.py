"""Packages of stacks that prepare inputs: pytest's own interpreter does that for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declared import package_of
from pytest_mlms.provide.stacks.exact_packages import Difference

_PILLOW = "pillow"
_MODULES = {
    "librosa": "librosa",
    "opencv-contrib-python": "cv2",
    "opencv-contrib-python-headless": "cv2",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    _PILLOW: "PIL",
    "scikit-image": "skimage",
    "soundfile": "soundfile",
    "tokenizers": "tokenizers",
}
"""Distribution that prepares inputs -> its module."""

_NOT_COMPARED = "not compared: inputs of both sides are prepared by pytest's own interpreter"


def told_changes(case: Case, predictor: Path, changed: Sequence[Difference]) -> list[str]:
    """Return a text for each package that differs, which says of some that they aren't compared.

    Raises MlmsError where nothing else differs: the upgrade would say nothing of what was asked.
    """
    unused = [each for each in changed if _is_unused(each, case, predictor)]
    sides = (case.baseline.stack, case.stack)
    if unused and len(unused) == len(changed) and _rest_of(sides[0]) == _rest_of(sides[1]):
        names = ", ".join(map(str, unused))
        a, b = (stack.name for stack in sides)
        package = unused[0]
        raise MlmsError(
            f"{case.place()}: {b} and {a} differ only in what no agent uses: {names}; inputs are "
            f"prepared by pytest's own interpreter for both sides. To compare it, "
            f"{_how_to_compare(package, case)}"
        )
    return [f"{each} ({_NOT_COMPARED})" if each in unused else str(each) for each in changed]


def _how_to_compare(package: Difference, case: Case) -> str:
    if package.package == _PILLOW and any(
        each.decode for spec in case.loaded.manifest.inputs for each in spec.steps[:1]
    ):
        return "write 'preprocess: stack' under evaluate: pictures are then decoded by each stack"
    return (
        f"run pytest with {package.package}=={package.a} installed beside it, then with "
        f"{package.package}=={package.b}, and compare both runs (mlms report has --against)"
    )


def _is_unused(difference: Difference, case: Case, predictor: Path) -> bool:
    """Return whether a stack asks for a package that neither its predictor nor its code uses."""
    module = _MODULES.get(difference.package)
    if difference.package == _PILLOW and case.loaded.manifest.evaluate.preprocess == "stack":
        return False
    origin = case.loaded.origin
    if module is None or (origin is not None and origin.code):
        return False
    asked = _asked(case.stack) | _asked(case.baseline.stack)
    return difference.package in asked and module not in predictor.read_text(errors="replace")


def _asked(stack: Stack) -> set[str]:
    return {str(canonicalize_name(package_of(text))) for text in stack.requirements}


def _rest_of(stack: Stack) -> tuple[object, ...]:
    """Return what else of a stack changes what agents do."""
    return (stack.python, stack.env, stack.threads, stack.libraries)
