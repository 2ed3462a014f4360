"""Break the pre-processing of two models of the zoo, and let mlms doctor find it.

``python -m manifests.zoo.doctor [options of mlms doctor]`` fails where a mistake isn't found.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

__all__ = ["MISTAKES", "Mistake", "break_manifest"]

_MANIFESTS = Path(__file__).parents[1]


class Mistake(NamedTuple):
    """A step of a manifest, a wrong one in its place, and the advice that mends it."""

    manifest: str
    step: str
    wrong: str
    advice: str
    stack: str


MISTAKES = (
    Mistake(
        "semantic-segmentation/selfie.yaml",
        "decode: {color: RGB}",
        "decode: {color: BGR}",
        "RGB",
        "tflite",
    ),
    Mistake(
        "image-enhancement/waifu2x_upconv_7.yaml",
        "normalize: {mean: 0, scale: 255}",
        "normalize: {mean: 127.5, scale: 127.5}",
        "0..1",
        "here",
    ),
)


def break_manifest(mistake: Mistake, folder: Path) -> Path:
    """Copy a model's manifest and data to a folder, and put the wrong step in."""
    original = _MANIFESTS / mistake.manifest
    for path in original.parent.iterdir():
        shutil.copy(path, folder)
    broken = folder / original.name
    text = broken.read_text(encoding="utf-8")
    if text.count(mistake.step) != 1:
        raise ValueError(
            f"{original} has no step {mistake.step!r}; correct manifests/zoo/doctor.py"
        )
    broken.write_text(text.replace(mistake.step, mistake.wrong), encoding="utf-8")
    return broken


def main() -> int:
    """Return the number of mistakes that were not found."""
    missed = 0
    for mistake in MISTAKES:
        with tempfile.TemporaryDirectory() as folder:
            broken = break_manifest(mistake, Path(folder))
            report = _report(broken, mistake.stack)
        print(f"{mistake.manifest} with {mistake.wrong}:\n{report}")
        first = report.splitlines()[2].strip()
        if not first.startswith(mistake.advice):
            print(f"not found: expected {mistake.advice!r} first")
            missed += 1
    return missed


def _report(manifest: Path, stack: str) -> str:
    shutil.copy(_MANIFESTS / "stacks.yaml", manifest.parent)
    command = [sys.executable, "-m", "pytest_mlms", "doctor", str(manifest)]
    command += [f"--mlms-stack={stack}", *sys.argv[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
