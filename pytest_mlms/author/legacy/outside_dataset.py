"""Datasets that legacy manifests name and don't have: files that the user gives for them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.author.legacy.translated import Key
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.provide.artifacts.digest import digest_of


@dataclass(frozen=True)
class OutsideDataset:
    """A dataset by the name that legacy manifests have for it, and its file."""

    name: str
    path: Path
    sha256: str

    @classmethod
    def of(cls, name: str, path: Path) -> OutsideDataset:
        """Return the dataset in a file. Raises MlmsError where there is no such file."""
        if not path.is_file():
            found = "is a folder" if path.is_dir() else "does not exist"
            advice = "name an archive, an .npz or a COCO file (docs/datasets.md)"
            raise MlmsError(f"--dataset {name}={path}: {path} {found}; {advice}")
        return cls(name, path.resolve(), digest_of(path))

    def is_called(self, name: str) -> bool:
        """Return whether a legacy manifest means this one; case, blanks and signs don't count."""
        return bool(name) and plain_name(name) == plain_name(self.name)

    def key(self, folder: Path) -> Key:
        """Return the section of a manifest in a folder."""
        value = {
            "name": plain_name(self.name),
            "version": "1.0.0",
            "source": os.path.relpath(self.path, folder.resolve()),
            "sha256": self.sha256,
        }
        return Key("dataset", value, f"given for the training dataset {self.name}")


def plain_name(name: str) -> str:
    """Return the small letters and digits of a name."""
    return "".join(character for character in name.lower() if character.isalnum())
