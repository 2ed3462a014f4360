"""The steps of an installation, as a person is told of them."""

from __future__ import annotations


def shown_step(step: str) -> str:
    """Return a step of an installation as a person is told, "" where that is nothing.

    A package has the line of its download, but none where pip begins to look for it.
    """
    if step.startswith("Collecting "):
        return ""
    head, has_list, packages = step.partition("Installing collected packages: ")
    if has_list and not head:
        return f"Installing {len(packages.split(', ')):,} packages"
    return step
