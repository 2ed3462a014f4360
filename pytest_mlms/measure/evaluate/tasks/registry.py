"""Tasks by name; the code of a task is imported when it is asked for."""

from __future__ import annotations

import importlib

from pytest_mlms.core.tasks import facts_of
from pytest_mlms.measure.evaluate.tasks.task import Task


def task_named(name: str) -> Task:
    """Return the task that ``task:`` of a manifest names, or else classification."""
    module, _, class_name = facts_of(name).location.partition(":")
    task: type[Task] = getattr(importlib.import_module(module), class_name)
    return task()
