"""Reading of legacy manifests: a file becomes typed records, and nothing of it is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytest_mlms.author.legacy.records import (
    Dialect,
    LegacyFiles,
    LegacyFramework,
    LegacyInput,
    LegacyManifest,
    LegacyOutput,
    LineOf,
    Note,
    Refused,
    UnclearManifest,
    dialect_of,
)
from pytest_mlms.author.legacy.sections import (
    CLAIMED,
    CORNERS,
    FRAMEWORK,
    INPUT_PARAMETERS,
    LAYERS,
    MODEL,
    OUTPUT_PARAMETERS,
    STUB,
    TOP,
    TYPED,
    Section,
)
from pytest_mlms.core.records import Place
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.load import read, shown

_UNREADABLE = "can't be read"


def read_legacy(path: Path) -> LegacyManifest | None:
    """Read a manifest of MLModelScope; return None for a file with other content.

    Raises Refused where it can't be read, with file and line.
    """
    parse = partial(yaml12.parse, keep_written=True)
    document = read(path, "a manifest begins with 'name: …'", parse)
    if document.value is None:
        line, text = document.errors[0]
        raise Refused(Place(shown(path), line), text, _UNREADABLE)
    dialect = dialect_of(document.value)
    if dialect is None:
        return None
    try:
        notes = list(_repeated(document))
        return _manifest(path, dialect, document, notes)
    except UnclearManifest as error:
        raise Refused(Place(shown(path), error.line), error.text, error.kind) from error


def _repeated(document: yaml12.Document) -> Iterator[Note]:
    """Yield a warning for each key that is there twice, and merge mappings as the agents did.

    Of other values the last one counts. Raises UnclearManifest where two values of ``parameters``
    differ.
    """
    for key in document.repeated:
        owner = _value_at(document.value, key.path)
        name = repr(key.key)
        text = f"the key {name} is there again, first on line {key.first_line}"
        if isinstance(key.earlier, dict) and isinstance(owner[key.key], dict):
            _merge(key, owner)
            yield Note(key.line, f"{text}; both are taken together")
        else:
            _refuse_other_parameter(key, owner[key.key])
            yield Note(key.line, f"{text}; the last one counts")


def _value_at(value: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _merge(key: yaml12.Repeated, owner: dict[str, Any]) -> None:
    """Put what only the earlier mapping has into the later one."""
    later = owner[key.key]
    for name, value in key.earlier.items():
        if name in later and later[name] != value:
            text = f"{name!r} differs between both {key.key!r}, the first on line {key.first_line}"
            raise UnclearManifest(key.line, f"{text}; keep one", "two values")
    owner[key.key] = {**key.earlier, **later}


def _refuse_other_parameter(key: yaml12.Repeated, later: Any) -> None:
    if "parameters" in key.path and later != key.earlier:
        text = f"{key.key!r} is there again with another value, first on line {key.first_line}"
        raise UnclearManifest(key.line, f"{text}; keep one", "two values")


def _manifest(
    path: Path, dialect: Dialect, document: yaml12.Document, notes: list[Note]
) -> LegacyManifest:
    top = Section(document, (), document.value, STUB if dialect == "A0" else TOP)
    if dialect == "A0":
        return _stub(path, top, notes)
    attributes = top.section("attributes", ())
    sections = [top, *_parts(top)]
    for section in sections:
        notes += section.misspelt()
    if "hidden" in attributes:
        line = attributes.line("hidden")
        notes.append(Note(line, "'hidden' under 'attributes' hides nothing; move it to the left"))
    framework = top.section("framework", FRAMEWORK)
    return LegacyManifest(
        path=path,
        dialect=dialect,
        name=_needed(top, "name"),
        version=top.text("version"),
        framework=LegacyFramework(
            _needed(framework, "name"), framework.text("version"), _lines(framework, FRAMEWORK)
        ),
        inputs=[_input(section) for section in top.sections("inputs", TYPED)],
        outputs=list(_outputs(top, dialect)),
        files=_files(top.section("model", MODEL)),
        line=_lines(top, TOP),
        description=top.text("description").strip(),
        license=top.text("license"),
        references=top.texts("references"),
        is_hidden=top.flag("hidden"),
        modality=top.text("modality"),
        preprocess=top.text("preprocess"),
        postprocess=top.text("postprocess"),
        before=top.text("before_preprocess") + top.text("before_postprocess"),
        training_dataset=attributes.text("training_dataset").strip(),
        claimed=_claimed(attributes),
        has_container="container" in top,
        notes=notes,
    )


def _stub(path: Path, top: Section, notes: list[Note]) -> LegacyManifest:
    """Return a manifest of 2017, which has no files, only the address of a page."""
    output = top.section("output", TYPED)
    return LegacyManifest(
        path=path,
        dialect="A0",
        name=_needed(top, "name"),
        version=top.text("version"),
        framework=LegacyFramework(_needed(top, "framework"), "", _lines(top, STUB)),
        inputs=(),
        outputs=[LegacyOutput(output.text("type"), _lines(output, TYPED))],
        files=LegacyFiles(LineOf({"": top.line("trained_url")})),
        line=_lines(top, STUB),
        notes=notes,
    )


def _parts(top: Section) -> Iterator[Section]:
    """Yield the sections whose keys may be misspelt."""
    yield top.section("model", MODEL)
    for section in top.sections("inputs", TYPED):
        yield section
        yield section.section("parameters", INPUT_PARAMETERS)
    outputs = top.sections("outputs", TYPED) or [top.section("output", TYPED)]
    for section in outputs:
        yield section.section("parameters", OUTPUT_PARAMETERS)


def _needed(section: Section, key: str) -> str:
    text = section.text(key)
    if not text:
        raise UnclearManifest(section.line(), f"there is no {key!r}; add it", _UNREADABLE)
    return text


def _lines(
    section: Section, keys: Sequence[str], others: Mapping[str, int] | None = None
) -> LineOf:
    lines = {"": section.line(), **(others or {})}
    lines |= {key: section.line(key) for key in keys if section.has(key)}
    return LineOf(lines)


def _input(section: Section) -> LegacyInput:
    parameters = section.section("parameters", INPUT_PARAMETERS)
    layer = parameters.layer("input_layer")
    if layer is None:
        layer = parameters.layer("layer_name")
    return LegacyInput(
        type=_needed(section, "type"),
        line=_lines(parameters, INPUT_PARAMETERS, {"": section.line("type")}),
        layer=layer,
        element_type=parameters.text("element_type"),
        layout=parameters.text("layout"),
        color_mode=parameters.text("color_mode"),
        dimensions=parameters.sizes("dimensions"),
        mean=parameters.numbers("mean"),
        scale=parameters.numbers("scale"),
        max_dimension=parameters.integer("max_dimension"),
        keep_aspect_ratio=parameters.flag("keep_aspect_ratio"),
        url=parameters.text("url"),
    )


def _outputs(top: Section, dialect: Dialect) -> Iterator[LegacyOutput]:
    if dialect != "B":
        yield _output(top.section("output", TYPED))
        return
    for section in top.sections("outputs", TYPED):
        yield _output(section)


def _output(section: Section) -> LegacyOutput:
    parameters = section.section("parameters", OUTPUT_PARAMETERS)
    return LegacyOutput(
        type=_needed(section, "type"),
        line=_lines(parameters, OUTPUT_PARAMETERS, {"": section.line("type")}),
        layers=_layers(parameters),
        element_type=parameters.text("element_type"),
        transform=parameters.text("probabilities_transform"),
        labels=parameters.text("features_url"),
        labels_md5=parameters.text("features_checksum"),
        corners=_corners(parameters),
        scale_width=_one_number(parameters, "scale_width"),
        scale_height=_one_number(parameters, "scale_height"),
        background=parameters.integer("background_index"),
    )


def _layers(parameters: Section) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for key in LAYERS:
        if parameters.has(key):
            layer = parameters.layer(key)
            found[key] = "" if layer is None else layer
    return found


def _corners(parameters: Section) -> tuple[int, ...]:
    """Return the columns of ymin, xmin, ymax and xmax; () where the file doesn't say them."""
    columns = [parameters.integer(key) for key in CORNERS]
    return tuple(column for column in columns if column is not None)


def _one_number(parameters: Section, key: str) -> float | None:
    numbers = parameters.numbers(key)
    return numbers[0] if numbers else None


def _files(section: Section) -> LegacyFiles:
    return LegacyFiles(
        line=_lines(section, MODEL),
        base_url=section.text("base_url"),
        graph=section.text("graph_path"),
        graph_md5=section.text("graph_checksum"),
        weights=section.text("weights_path"),
        weights_md5=section.text("weights_checksum"),
        is_archive=section.flag("is_archive"),
        onnx_url=section.text("onnx_url"),
        labels=section.text("features_path"),
        labels_md5=section.text("features_checksum"),
    )


def _claimed(attributes: Section) -> dict[str, str]:
    """Return the figures that a file claims, as they are written."""
    return {key: attributes.text(key) for key in CLAIMED if key in attributes}
