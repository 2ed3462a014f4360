"""Facts of a lock by name, as the text that a person reads where they change."""

from __future__ import annotations

from pytest_mlms.keep.lockfile.lock import LockedItem, LockedStack
from pytest_mlms.keep.lockfile.stack_keys import stack_name
from pytest_mlms.provide.stacks.exact_packages import parse_package

Facts = dict[str, str]


def software_facts(key: str, software: LockedStack) -> Facts:
    """Return the name of a stack, its Python, and the version of each package.

    A package that is from no index has its origin, too, and a container the id of its image.
    Variables of the caller are "$NAME".
    """
    facts = {"stack": stack_name(key), "Python": software.python}
    for line in software.packages:
        package = parse_package(line)
        if package is None:
            image, _, identity = line.partition(" @ ")
            facts[image] = identity
        elif package.origin:
            described = f"{package.version} from {package.origin}"
            facts[package.key] = described.lstrip()
        else:
            facts[package.key] = package.version
    for text in software.variables:
        name, _, value = text.partition("=")
        facts[f"${name}"] = value
    return facts


def files_of(item: LockedItem) -> Facts:
    """Return the digests of an item's model and dataset."""
    files = [f"{role} {digest}" for role, digest in item.model.items()]
    model = ", ".join(sorted(files))
    facts = {"model": model}
    if item.dataset is not None:
        facts["dataset"] = item.dataset
    return facts


def answers_of(item: LockedItem) -> Facts:
    """Return what an item measures and its answers, as far as they are known."""
    facts = {"what it measures": item.definition} if item.definition else {}
    if item.right is not None:
        facts["right answers"] = f"{item.right} of {item.inputs}"
    if item.predictions is not None:
        facts["predictions"] = item.predictions
    if item.layers is not None:
        facts["layers"] = item.layers
    for name, value in item.accuracy.items():
        facts[name] = f"{value:g}"
    return facts
