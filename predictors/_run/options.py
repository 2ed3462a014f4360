"""Options of predictors: their names and values, checked by a predictor, and before it is started.

A predictor's file declares them by literals: ``OPTIONS = {"threads_between": "int", "config.*":
"any", "mode": ("fast", "exact")}``. A key is a name, or a pattern of names that only the framework
knows. A value is one of TYPES, or the words to choose from. Nothing is imported to read them.

CACHES is declared alike: ``{"env": {NAME: TEXT}, "options": {NAME: TEXT}}`` are the variables and
options by which the framework keeps what it compiles in a folder, for which ``{caches}`` stands.
LAYERS is ``{"env": {NAME: TEXT}}``: variables under which a GPU's layers have their own times.
SERVES is ``{"ready": PATH}``, which servers that the predictor speaks with answer when they are.
"""

import ast
import fnmatch
from typing import Any, Dict, Optional, Tuple

TYPES: Dict[str, Tuple[Any, str]] = {
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "text": (str, "a text"),
    "any": ((bool, int, float, str), "a text, a number, true or false"),
}
"""A type's name, with the Python types of its values and what to write."""

Declared = Dict[str, Any]


def problem_of(name: str, value: Any, known: Declared) -> str:
    """Return what is wrong with an option, and what to write instead; "" for a good one."""
    kind = _kind_of(name, known)
    if kind is None:
        return "no option %r; this predictor knows %s" % (name, ", ".join(known) or "none")
    if isinstance(kind, tuple):
        is_good = value in kind and isinstance(value, str)
        wanted = "one of " + ", ".join(kind)
    else:
        python_types, wanted = TYPES[kind]
        is_good = isinstance(value, python_types) and (kind != "text" or isinstance(value, str))
        if isinstance(value, bool):
            is_good = kind in ("bool", "any")
    return "" if is_good else "%s is %r; write %s" % (name, value, wanted)


def _kind_of(name, known):
    if name in known:
        return known[name]
    for pattern, kind in known.items():
        if fnmatch.fnmatchcase(name, pattern):
            return kind
    return None


def options_of(path: Any) -> Optional[Declared]:
    """Return the options that a predictor's file declares; None where it doesn't."""
    return _literal_of(path, "OPTIONS")


def caches_of(path: Any) -> Dict[str, Dict[str, str]]:
    """Return how a predictor's framework is told where its caches are: CACHES of its file."""
    return _literal_of(path, "CACHES") or {}


def layer_variables_of(path: Any) -> Dict[str, str]:
    """Return the variables of an agent whose layers on a GPU are timed: LAYERS of its file."""
    return (_literal_of(path, "LAYERS") or {}).get("env", {})


def serves_of(path: Any) -> Dict[str, str]:
    """Return what a predictor of servers needs of them, SERVES of its file; {} for any other."""
    return _literal_of(path, "SERVES") or {}


def _literal_of(path, name):
    with open(str(path), encoding="utf-8") as file:
        text = file.read()
    try:
        for node in ast.parse(text).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_of(name, node):
                found = ast.literal_eval(node.value) if node.value else None
                return found if isinstance(found, dict) else None
    except (SyntaxError, ValueError):  # its agent tells what is wrong
        pass
    return None


def _is_of(name, node):
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return isinstance(target, ast.Name) and target.id == name


def within(prefix: str, options: Dict[str, Any]) -> Dict[str, Any]:
    """Return the options behind a prefix such as ``config.``, without it."""
    return {
        name[len(prefix) :]: value for name, value in options.items() if name.startswith(prefix)
    }
