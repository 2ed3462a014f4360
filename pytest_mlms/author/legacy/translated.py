"""Parts of a translation: keys of a native manifest, and warnings about the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_mlms.author.legacy.digests import DigestOfFile
from pytest_mlms.author.legacy.native_text import Key, NativeLine, Part, Step
from pytest_mlms.author.legacy.notes import Note


@dataclass(frozen=True)
class TensorName:
    """The name of an input or output in the model, or else its position and a name of ours.

    ``why`` says why it has it if the original doesn't.
    """

    text: str
    position: int | None = None
    why: str = ""

    def keys(self, line: int, comment: str = "") -> list[Key]:
        """Return the keys that say it, from a line of the original, with a comment above."""
        why = "; ".join(filter(None, [comment, self.why]))
        keys = [Key("name", self.text, why, line)]
        if self.position is not None:
            keys.append(Key("position", self.position, line=line))
        return keys


@dataclass(frozen=True)
class TranslatedInput:
    """An input; ``axes`` are its sizes behind the batch, None for a free one."""

    name: TensorName
    element_type: str
    axes: Sequence[int | None] | None
    part: Part
    notes: Sequence[Note] = ()


@dataclass(frozen=True)
class TranslatedOutput:
    """An output with its steps; ``why`` is a comment above it."""

    name: TensorName
    type: str
    steps: Sequence[Step] = ()
    why: str = ""


@dataclass(frozen=True)
class TranslatedOutputs:
    """The outputs of a model, and the task of the native manifest."""

    task: str
    outputs: Sequence[TranslatedOutput]
    notes: Sequence[Note] = ()
    digests: Sequence[DigestOfFile] = ()


@dataclass(frozen=True)
class TranslatedFiles:
    """The framework that runs the files, its versions, and the keys that name the files."""

    predictor: str
    part: Part
    digests: Sequence[DigestOfFile] = ()
    notes: Sequence[Note] = ()


@dataclass(frozen=True)
class Translation:
    """The lines of a native manifest, what was decided for it, and the warnings.

    ``has_accuracy`` is True if its outputs are scored once it has a dataset. ``code`` are the keys
    of the original whose Python agents must run.
    """

    lines: Sequence[NativeLine]
    has_accuracy: bool
    decisions: Sequence[Note] = ()
    code: Sequence[str] = ()
    digests: Sequence[DigestOfFile] = ()
    notes: Sequence[Note] = ()

    @property
    def text(self) -> str:
        """The text of the native manifest."""
        return "\n".join([*(line.text for line in self.lines), ""])
