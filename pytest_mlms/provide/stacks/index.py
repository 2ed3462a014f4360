"""Questions of a stack to the index of packages that its installer asks."""

from __future__ import annotations

import time

from pytest_mlms.core.records import Stack
from pytest_mlms.provide.artifacts.package_index import PipSettings, offered_files, pip_settings
from pytest_mlms.provide.artifacts.transfer import DownloadError

_SECONDS = 60  # for the question why a package isn't there
_SHOWN_VERSIONS = 3


def settings_of(stack: Stack) -> PipSettings:
    """Return pip's settings with the options of a stack; raises DownloadError without a pip."""
    own = pip_settings()
    indexes = list(own.indexes)
    links = list(own.links)
    for option in stack.options:
        name, _, value = option.partition("=")
        if name == "--index-url":
            indexes[:1] = [value]
        elif name == "--extra-index-url":
            indexes.append(value)
        elif name == "--find-links":
            links.append(value)
    return PipSettings(tuple(indexes), tuple(links), own.certificates)


def reason_of(package: str, stack: Stack, python: str) -> str:
    """Return why a package, as name==version, can't be had."""
    name, _, version = package.partition("==")
    try:
        end = time.monotonic() + _SECONDS
        files = offered_files(name, settings_of(stack), end)
    except DownloadError as error:
        return f"can't be had: {error}"
    offered = sorted({file.version for file in files}, reverse=True)
    if not offered:
        return "is not on the index"
    if version not in map(str, offered):
        shown = ", ".join(str(one) for one in offered[:_SHOWN_VERSIONS])
        return f"is not on the index any more; it has {shown}"
    return f"is on the index, without a file for Python {python} on this platform"
