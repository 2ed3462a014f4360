"""Names for tasks of other packages, which stay wherever we keep them; CONTRIBUTING.md has one."""

from __future__ import annotations

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.quantities import accuracy_quantity, register
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Scorer, Task

__all__ = ["DatasetError", "Evidence", "Scorer", "Task", "accuracy_quantity", "register"]
