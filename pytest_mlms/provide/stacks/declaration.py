"""The declaration of a stack as results keep it: the keys of stacks.yaml that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.variables import is_secret

HIDDEN = "***"
"""The value of a variable or an option that looks like a secret, by its name or its value."""


def declaration_of(stack: Stack) -> dict[str, Any]:
    """Return the keys of stacks.yaml that declare ``stack``, without its name and framework.

    An entry of stacks.yaml with these keys is the same stack, as far as nobody installs other
    packages: paths are absolute. Keys that have their defaults are left out, as are threads and
    cores, which results have beside it.
    """
    libraries = {
        library.name: {"library": library.library, "package": library.package}
        for library in stack.libraries
    }
    keys = {
        "interpreter": stack.interpreter,
        "python": stack.python,
        "requirements": list(stack.requirements),
        "installer": "" if stack.installer == "pip" else stack.installer,
        "pip_options": list(stack.options),
        "lock": str(stack.lock or ""),
        "container": stack.container,
        "agent": {"command": list(stack.agent)} if stack.agent else {},
        "libraries": libraries,
        "variant": stack.variant,
        "options": _without_secrets(dict(stack.model_options)),
        "env": _without_secrets(dict(stack.env)),
        "env_passthrough": list(stack.env_passthrough),
    }
    return {key: value for key, value in keys.items() if value}


def _without_secrets(env: Mapping[str, Any]) -> dict[str, Any]:
    return {name: HIDDEN if is_secret(name, str(value)) else value for name, value in env.items()}
