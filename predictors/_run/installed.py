"""List the distributions that an interpreter finds, as JSON on the last line of its output.

It is run by path in the interpreter of a stack. Each entry is a name, a version and an origin: ""
for a distribution of an index, else what it was installed from. Metadata are read from the folders
of ``sys.path``, as Python has no library for that before 3.8.
"""

import json
import os
import sys
from typing import Dict, Iterator, List, Tuple

Entry = Tuple[str, str, str]

_FILES = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}
_OTHER_INSTALLERS = ("conda", "debian")
_DEBIAN = ("/usr/lib/python3/dist-packages", "/usr/share/python3-wheels")


def installed() -> List[Entry]:
    """Return the distributions on ``sys.path``; of two with a name, the one that is imported."""
    found: Dict[str, Entry] = {}
    for name, version, origin in _entries():
        key = name.lower().replace("_", "-").replace(".", "-")
        found.setdefault(key, (name, version, origin))
    return sorted(found.values())


def _entries() -> Iterator[Entry]:
    for folder in sys.path:
        for entry in _entries_in(folder):
            yield entry
    for entry in _packages_of_conda(os.path.join(sys.prefix, "conda-meta")):
        yield entry


def _entries_in(folder: str) -> Iterator[Entry]:
    """Yield the distributions of a folder, or of a folder which is an egg."""
    egg = os.path.join(folder, "EGG-INFO", "PKG-INFO")
    for entry in _entry_of(egg, "egg"):
        yield entry
    for name in _names_in(folder):
        path = os.path.join(folder, name)
        suffix = os.path.splitext(name)[1]
        if suffix in _FILES:
            metadata = os.path.join(path, _FILES[suffix])
            if os.path.isfile(path):  # as distutils wrote it
                metadata = path
            for entry in _entry_of(metadata, _origin_of(path, folder)):
                yield entry


def _names_in(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # an archive, or a folder that isn't there
        return []


def _entry_of(metadata: str, origin: str) -> List[Entry]:
    """Return the distribution that a file of metadata describes; none where it can't be read."""
    fields: Dict[str, str] = {}
    try:
        with open(metadata, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, colon, value = line.partition(":")
                fields.setdefault(name.strip().lower(), value.strip())
                if not colon or {"name", "version"} <= set(fields):
                    break  # at a blank line, before the description, or when both are known
    except OSError:
        pass
    if "name" not in fields or "version" not in fields:
        return []
    return [(fields["name"], fields["version"], origin)]


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _origin_of(path: str, folder: str) -> str:
    """Return what a distribution was installed from; "" for an index."""
    address = _direct_address(_text_of(os.path.join(path, "direct_url.json")))
    if address:
        return address
    installer = _text_of(os.path.join(path, "INSTALLER")).strip()
    if installer in _OTHER_INSTALLERS:
        return installer
    if folder in _DEBIAN:
        return "debian"
    is_ours = folder.startswith((sys.prefix, sys.base_prefix))
    if path.endswith(".egg-info") and not is_ours:
        return "editable " + folder  # as 'setup.py develop' leaves it
    return ""


def _direct_address(text: str) -> str:
    """Return the address of a distribution's direct_url.json, as PEP 610 has it."""
    try:
        facts = json.loads(text)
        address = str(facts["url"])
        is_editable = facts.get("dir_info", {}).get("editable")
        commit = facts.get("vcs_info", {}).get("commit_id")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    if is_editable:
        return "editable " + address
    if commit:
        return address + "@" + str(commit)
    return address


def _packages_of_conda(folder: str) -> Iterator[Entry]:
    """Yield conda's packages; their files are named by name, version and build."""
    for file in _names_in(folder):
        stem, suffix = os.path.splitext(file)
        parts = stem.rsplit("-", 2)
        if suffix == ".json" and len(parts) == 3:
            name, version, build = parts
            yield (name, version, "conda " + build)


if __name__ == "__main__":
    print()
    print(json.dumps(installed()))
