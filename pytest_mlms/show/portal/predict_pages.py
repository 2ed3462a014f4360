"""Pages on which people give models an input of theirs, and see the answers side by side.

Nothing is kept: the answers are what the portal answers to the form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pytest_mlms.core.text import shortened
from pytest_mlms.predict.inputs import Given
from pytest_mlms.show.pages.predicted import (
    Shown,
    ShownAnswer,
    agreement_of,
    input_picture,
    input_sound,
    shown_answers,
)
from pytest_mlms.show.portal.manifests import ManifestEntry, Manifests
from pytest_mlms.show.portal.multipart import Part, given_of, parse_multipart
from pytest_mlms.show.portal.predict_command import file_name, predict_command
from pytest_mlms.show.portal.predictions import Predicted, Predictions, while_connected
from pytest_mlms.show.portal.rendering import Pages

_MOST = 4  # models and stacks at a time
_MOST_DIGITS = 9  # of the number of an element
_LONGEST = 200  # characters of the name of an input
_MOST_WRITTEN = 100_000  # bytes of a text that the form has again
_KINDS = {"image": "picture", "audio": "sound", "text": "text", "tensor": "numbers"}
_WRITTEN = ("text", "tensor")  # types of inputs that people can write


class InputField(NamedTuple):
    """A value that people give: its name in the form, its column, and the type of its input."""

    name: str
    column: str
    type: str

    @property
    def kind(self) -> str:
        """Its kind, in a word."""
        return _KINDS[self.type]

    @property
    def is_written(self) -> bool:
        """True if it may be written, and not only be in a file."""
        return self.type in _WRITTEN


class Choice(NamedTuple):
    """A model on a stack, which may have to be made first."""

    entry: ManifestEntry
    stack: str
    is_made: bool

    @property
    def value(self) -> str:
        """Its name in a form: its stack, whose name has no blanks, and its manifest."""
        return f"{self.stack} {self.entry.path}"


@dataclass(frozen=True)
class Group:
    """The models of a task that take the same input, each on the stacks that may run it."""

    fields: Sequence[InputField]
    choices: Sequence[Choice]

    @property
    def models(self) -> Iterator[tuple[ManifestEntry, list[Choice]]]:
        """Each model with its choices."""
        for entry, choices in groupby(self.choices, lambda one: one.entry):
            yield entry, list(choices)

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets of which an element may be chosen."""
        return sorted({one.entry.dataset for one in self.choices} - {""})


@dataclass(frozen=True)
class Asked:
    """The content of a form: values of choices, fields that are short texts, and the input's."""

    chosen: Collection[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[Part] = ()

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Asked:
        """Return what the parts of a form ask for, without those that were left empty.

        Raises HTTPException.
        """
        chosen: list[str] = []
        texts: dict[str, str] = {}
        inputs = []
        for sent in parts:
            part = _with_newlines(sent)
            if part.name == "side":
                chosen.append(part.text)
            elif part.filename is None and len(part.content) <= _MOST_WRITTEN:
                texts[part.name] = part.text
            if part.name.startswith("input") and (part.content or part.filename):
                inputs.append(part)
        return cls(list(dict.fromkeys(chosen)), texts, inputs)

    @property
    def element(self) -> int | None:
        """The number of the dataset's element; None without one. Raises HTTPException."""
        text = self.texts.get("element", "").strip()
        if not text:
            return None
        if not text.isdecimal() or len(text) > _MOST_DIGITS:
            raise HTTPException(400, f"{text[:40]!r} is no number of an element; write one from 0")
        return int(text)

    @property
    def name(self) -> str:
        """The name of the input: of its files, or its texts."""
        if self.element is not None:
            return f"element {self.element}"
        names = (file_name(one.filename) if one.filename else one.text for one in self.inputs)
        return shortened(", ".join(names), _LONGEST)


def _with_newlines(part: Part) -> Part:
    """Return a part whose text has the newlines that were typed, which forms send as CR LF."""
    if part.filename is not None:
        return part
    return replace(part, content=part.content.replace(b"\r\n", b"\n"))


@dataclass(frozen=True)
class Side:
    """The answer of a model on a stack; ``problem`` and ``status`` say why there is none."""

    choice: Choice
    predicted: Predicted | None = None
    problem: str = ""
    status: int = 200

    @property
    def shown(self) -> Shown:
        """The arrays that show its input and its answers."""
        return self.predicted.arrays if self.predicted else {}

    @property
    def answers(self) -> Sequence[ShownAnswer]:
        """Its answers, as they are shown."""
        if self.predicted is None:
            return []
        return list(shown_answers(self.predicted.line["answers"], self.shown))


def make_predict_pages(predictions: Predictions, manifests: Manifests, pages: Pages) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/predict", include_in_schema=False)

    def page(request: Request, template: str, status: int, **values: Any) -> Response:
        return pages.page(request, template, status, place="predict", most=_MOST, **values)

    @router.get("")
    def choose(request: Request, task: str = "", manifest: str = "") -> Response:
        tasks = _tasks(manifests)
        if manifest:
            task = predictions.entry(manifest).task
        if not task:
            return page(request, "predict.html", 200, tasks=tasks)
        groups = _groups(predictions, tasks, task)
        asked = Asked(list(_first_choices(groups, manifest)))
        return page(request, "predict_form.html", 200, task=task, groups=groups, asked=asked)

    @router.post("")
    async def predict(request: Request) -> Response:
        async with predictions.reading(request) as body:
            kind = request.headers.get("content-type", "")
            asked = Asked.of(await run_in_threadpool(parse_multipart, body, kind))
            task = asked.texts.get("task", "")
            groups = await run_in_threadpool(_groups, predictions, _tasks(manifests), task)
            form = {"task": task, "groups": groups, "asked": asked}
            try:
                choices, given = _checked(groups, asked)
            except HTTPException as error:
                form["problem"] = error.detail
                return page(request, "predict_form.html", error.status_code, **form)
            answering = _answers(predictions, choices, given, asked)
            sides = await while_connected(request, answering)
        shown = next((side.shown for side in sides if side.predicted), {})
        answered = any(side.predicted for side in sides)
        return page(
            request,
            "predict_answers.html",
            200 if answered else sides[0].status,
            sides=sides,
            agreement=agreement_of([side.predicted.line for side in sides if side.predicted]),
            picture=input_picture(shown, asked.name),
            sound=input_sound(shown, asked.name),
            commands=[command for command in _commands(choices, asked) if command],
            **form,
        )

    return router


def _tasks(manifests: Manifests) -> Mapping[str, Sequence[ManifestEntry]]:
    """Return the models that take an input, by their tasks."""
    found: dict[str, list[ManifestEntry]] = {}
    for entry in manifests.by_path().values():
        if entry.columns:
            found.setdefault(entry.task, []).append(entry)
    return dict(sorted(found.items()))


def _groups(
    predictions: Predictions, tasks: Mapping[str, Sequence[ManifestEntry]], task: str
) -> Sequence[Group]:
    """Return the models of a task by what they take; raises HTTPException."""
    if task not in tasks:
        raise HTTPException(
            404, f"no model here has a task {task[:100]!r}; there are {', '.join(tasks)}"
        )
    found: dict[tuple[InputField, ...], list[Choice]] = {}
    for entry in tasks[task]:
        fields = [InputField(f"input.{name}", name, kind) for name, kind in entry.columns]
        if len(fields) == 1:
            fields = [InputField("input", "", fields[0].type)]
        stacks = predictions.stacks(entry)
        unmade = predictions.unmade(stacks)
        choices = [Choice(entry, stack, stack not in unmade) for stack in stacks]
        found.setdefault(tuple(fields), []).extend(choices)
    return [Group(fields, choices) for fields, choices in found.items()]


def _first_choices(groups: Sequence[Group], manifest: str) -> Iterator[str]:
    """Yield what is ticked at first: the first stack of the manifest, or of each group's first."""
    for group in groups:
        for choice in group.choices:
            if not manifest or manifest in (choice.entry.path, choice.entry.name):
                yield choice.value
                break


def _checked(groups: Sequence[Group], asked: Asked) -> tuple[Sequence[Choice], Given]:
    """Return what a form has chosen, and the input; raises HTTPException, whose text is advice."""
    offered = {choice.value: group for group in groups for choice in group.choices}
    unknown = [value for value in asked.chosen if value not in offered]
    if unknown:
        raise HTTPException(400, f"there is no model and stack {unknown[0][:100]!r} here")
    if not 1 <= len(asked.chosen) <= _MOST:
        found = f"{len(asked.chosen)} models and stacks are" if asked.chosen else "No model is"
        raise HTTPException(400, f"{found} chosen: tick one to {_MOST}.")
    group, *others = {id(offered[value]): offered[value] for value in asked.chosen}.values()
    if others:
        raise HTTPException(400, "These models take different inputs: choose some of one form.")
    choices = [choice for choice in group.choices if choice.value in asked.chosen]
    if asked.element is not None:
        _check_element(choices, asked)
        return choices, {}
    return choices, _given(group, asked)


def _check_element(choices: Sequence[Choice], asked: Asked) -> None:
    if asked.inputs:
        raise HTTPException(400, "Both an input and an element of the dataset: leave one out.")
    datasets = {choice.entry.dataset for choice in choices}
    if len(datasets) > 1 or "" in datasets:
        problem = "These models have not one dataset, which is here"
        raise HTTPException(400, f"{problem}: choose models of one, or another input.")


def _given(group: Group, asked: Asked) -> Given:
    """Return the input of a form; raises HTTPException where it isn't what the models take."""
    for wanted in group.fields:
        parts = [part for part in asked.inputs if part.name == wanted.name]
        of = f" for {wanted.column!r}" if wanted.column else ""
        if not parts:
            verb = "write or choose" if wanted.is_written else "choose a file with"
            raise HTTPException(400, f"There is no input{of}: {verb} a {wanted.kind}.")
        if len(parts) > 1:
            raise HTTPException(400, f"There are two inputs{of}: leave out the text or the file.")
        if parts[0].filename is None and not wanted.is_written:
            raise HTTPException(400, f"A text is no {wanted.kind}{of}: choose a file.")
    given, _ = given_of(asked.inputs)
    return given


async def _answers(
    predictions: Predictions, choices: Sequence[Choice], given: Given, asked: Asked
) -> Sequence[Side]:
    """Return the answer of each model on its stack, one after the other."""
    sides = []
    for choice in choices:
        try:
            predicted = await predictions.show(
                choice.entry.path, choice.stack, given, asked.element, name=asked.name
            )
            sides.append(Side(choice, predicted))
        except HTTPException as error:
            sides.append(Side(choice, None, error.detail, error.status_code))
    return sides


def _commands(choices: Sequence[Choice], asked: Asked) -> Iterator[str]:
    """Yield the command of each model, with all of its stacks."""
    for entry, chosen in groupby(choices, lambda one: one.entry):
        stacks = [choice.stack for choice in chosen]
        yield predict_command(entry.path, stacks, asked.inputs, asked.element)
