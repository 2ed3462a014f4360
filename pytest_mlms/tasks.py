"""What a task of another package imports, wherever we keep it: CONTRIBUTING.md has an example."""

from __future__ import annotations

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.quantities import accuracy_quantity, register
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Scorer, Task

__all__ = ["DatasetError", "Evidence", "Scorer", "Task", "accuracy_quantity", "register"]
