"""Consistency checks between the sections of a manifest, which its schema can't express."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.tasks import tasks
from pytest_mlms.manifest.output_steps import Columns
from pytest_mlms.manifest.scenarios import OpenLoad, Peak
from pytest_mlms.manifest.schema import (
    BY_GROUP,
    LOGPROBS,
    TOKENS,
    Generate,
    Input,
    Manifest,
    Output,
)
from pytest_mlms.manifest.steps import QUANTISED
from pytest_mlms.manifest.thresholds import AgreementThreshold, Entry, agreement_limits
from pytest_mlms.manifest.types import instead
from pytest_mlms.manifest.yaml12 import Path

Error = tuple[Path, str]

_READERS = ("boxes", "columns", "yolo", "anchors")
"""Steps that say what the numbers of an output of type boxes are."""

_STEPS: Mapping[str, tuple[str, ...]] = {
    "boxes": ("dequantize", *_READERS, "min_score", "nms", "classes"),
    "scores": ("dequantize", "sigmoid", "softmax", "drop_background", "best_class"),
    "classes": (),
    "count": (),
    "masks": ("masks",),
}
"""Types of outputs that objects are read from -> the steps that they may have."""


def box_output_errors(outputs: Sequence[Output]) -> Iterator[Error]:
    """Yield what is wrong with outputs of these types: the path of a key, and a text, for each."""
    seen: set[str] = set()
    for number, output in enumerate(outputs):
        if output.type not in _STEPS:
            continue
        path = ("outputs", number)
        if output.type in seen:
            yield path, f"there are two outputs of type {output.type}; keep one"
        seen.add(output.type)
        for place, text in _wrong_steps(output):
            yield (*path, "steps", place), text
    if seen and "boxes" not in seen:
        found = " and ".join(sorted(seen))
        yield ("outputs",), f"there are {found} without boxes; give one output 'type: boxes'"
    if "boxes" in seen and "scores" not in seen:
        yield from _missing_scores(outputs)


def _wrong_steps(output: Output) -> Iterator[tuple[int, str]]:
    """Yield the place of each step that is wrong, and a text."""
    allowed = _STEPS[output.type]
    for place, step in enumerate(output.steps):
        if step.name not in allowed:
            known = f"write some of {', '.join(allowed)}" if allowed else "it has none"
            yield place, f"type {output.type} has no step {step.name!r}; {known}"
        before = [other.name for other in output.steps[:place]]
        is_first = step.name == "dequantize" or before != ["dequantize"]
        if before and is_first and step.name in ("dequantize", *_READERS):
            yield place, f"step {step.name!r} reads the model's output; move it to the front"


def _missing_scores(outputs: Sequence[Output]) -> Iterator[Error]:
    for number, output in enumerate(outputs):
        have_scores = output.type != "boxes"
        for step in output.steps:
            columns = step.parameters.names if isinstance(step.parameters, Columns) else ()
            have_scores = have_scores or step.name == "yolo" or "score" in columns
        if not have_scores:
            advice = "add an output of type scores, or a step that reads them: columns or yolo"
            yield ("outputs", number), f"the boxes have no scores; {advice}"


_MOST_CASES = 10_000
_SHOWN_VALUES = 20
_CALLS = {"single_stream", "offline"}
"""Scenarios whose calls are timed, and no queries."""

_ID_WORD = re.compile("[A-Za-z0-9_]+")

_OF_QUERIES = {name for name, quantity in QUANTITIES.items() if quantity.under_load}


def inconsistencies(manifest: Manifest) -> list[Error]:
    """Return what doesn't agree between the sections: the path of a key, and a text, for each."""
    errors = list(_too_many_cases(manifest))
    if errors:
        return errors
    for check in _CHECKS:
        errors += check(manifest)
    return errors


def _repeated_names(manifest: Manifest) -> Iterator[Error]:
    sections = {
        "models": ([model.label for model in manifest.models], "give each a variant"),
        "inputs": ([part.name for part in manifest.inputs], "write a manifest for each"),
        "outputs": ([part.name for part in manifest.outputs], "write a manifest for each"),
    }
    for section, (names, advice) in sections.items():
        for index, name in enumerate(names):
            if name in names[:index]:
                yield (section, index), f"{section} has {name!r} twice; keep one, or {advice}"


def _variants(manifest: Manifest) -> Iterator[Error]:
    """Yield an error for a variant that is called like a framework, which would mean two models."""
    frameworks = {model.name for model in manifest.models}
    for index, model in enumerate(manifest.models):
        if model.variant in frameworks:
            text = f"variant {model.variant!r} is the name of a framework; choose another name"
            yield ("models", index, "variant"), text


def _repeated_positions(manifest: Manifest) -> Iterator[Error]:
    parts: dict[str, Sequence[Input | Output]] = {
        "inputs": manifest.inputs,
        "outputs": manifest.outputs,
    }
    for section, members in parts.items():
        names: dict[int, str] = {}
        for index, part in enumerate(members):
            if part.position in names:
                text = f"{names[part.position]!r} has this position, too; correct one of them"
                yield (section, index, "position"), text
            elif part.position is not None:
                names[part.position] = part.name


def _states_alone(manifest: Manifest) -> Iterator[Error]:
    """Yield an error where no input comes from a dataset."""
    if all(spec.is_state for spec in manifest.inputs):
        yield ("inputs",), "all inputs are states; add one that isn't an output of the call before"


def _generation(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of a generation: names that mean nothing, and calls of several prompts."""
    if manifest.generate is None:
        yield from _without_generation(manifest)
        return
    yield from _generation_keys(manifest, manifest.generate)
    yield from _generated_parts(manifest, manifest.generate)
    evaluate = manifest.evaluate
    one_prompt = "a call generates for one prompt"
    if evaluate.batch_sizes != [1]:
        yield ("evaluate", "batch_sizes"), f"{one_prompt}; write batch_sizes: [1]"
    if evaluate.batcher is not None:
        yield ("evaluate", "batcher"), f"{one_prompt}; leave the batcher out"
    for number, entry in enumerate(evaluate.scenarios):
        if entry.name == "multi_stream":
            yield ("evaluate", "scenarios", number), f"{one_prompt}; remove multi_stream"


def _without_generation(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of what only a generation has."""
    for number, spec in enumerate(manifest.inputs):
        if spec.grows:
            text = "only a generation has a past of 0; write 'generate: …', or a size"
            yield ("inputs", number, "shape"), text
    for number, entry in enumerate(manifest.evaluate.scenarios):
        limits = entry.load.limits if isinstance(entry.load, OpenLoad) else {}
        for key in ("ttft", "tpot"):
            if f"query_{key}" in limits:
                text = f"{key} is of tokens; write 'generate: …', or 'latency' in its place"
                yield ("evaluate", "scenarios", number), f"nothing is generated, and {text}"


def _generation_keys(manifest: Manifest, keys: Generate) -> Iterator[Error]:
    """Yield errors of the inputs that a generation names."""
    inputs = {spec.name: spec for spec in manifest.inputs}
    for key, types in {"prompt": ("int64", "int32", "string"), "limit": ("int64",)}.items():
        name = getattr(keys, key)
        if name not in inputs or inputs[name].is_state:
            yield ("generate", key), f"{name!r} is no input with a {key}; {instead(name, inputs)}"
        elif inputs[name].element_type not in types:
            text = f"{name!r} is of whole numbers; write 'element_type: int64' in the input"
            yield ("generate", key), text
        elif inputs[name].type != "tensor":
            text = "'tokenize' fills texts up, and no mask hides that; write 'type: tensor'"
            yield ("generate", key), f"{text}, and ids of any number in the dataset"
    if keys.prompt == keys.limit:
        yield ("generate", "limit"), f"{keys.limit!r} is the prompt; name another input"
    for key in ("mask", "positions"):
        if getattr(keys, key) in inputs:
            yield ("generate", key), f"{getattr(keys, key)!r} is made; remove it from the inputs"
    if keys.mask is not None and keys.mask == keys.positions:
        yield ("generate", "positions"), f"{keys.mask!r} is the mask; name another, or leave it out"


def _generated_parts(manifest: Manifest, keys: Generate) -> Iterator[Error]:
    """Yield errors of a generation's inputs and outputs."""
    limit = keys.limit
    of_prompt = {
        axis for spec in manifest.inputs if spec.name == keys.prompt for axis in spec.named_axes
    }
    sources: set[str] = set()
    for number, spec in enumerate(manifest.inputs):
        path = ("inputs", number)
        if spec.name != keys.prompt and not of_prompt.isdisjoint(spec.named_axes):
            text = "it would stay as long as the prompt; name it as 'mask' or 'positions' in"
            yield (*path, "shape"), f"{text} 'generate' instead, or call its axis otherwise"
        if spec.from_output is not None and spec.from_output in sources:
            text = f"{spec.from_output!r} is the past of an earlier input, too"
            yield (*path, "from_output"), f"{text}; write its own output"
        sources.add(spec.from_output or "")
        if spec.position is not None:
            yield (*path, "position"), "inputs of a generation have the model's names; remove it"
        if spec.is_state and not spec.grows:
            yield (*path, "shape"), "a past is empty at first; write 0 for the axis that grows"
        if spec.name == limit and not (spec.range or manifest.dataset):
            yield path, "nothing tells how many tokens; write 'range: [32, 32]', or add a dataset"
        if spec.name == limit and spec.range and spec.range[0] < 1:
            yield (*path, "range"), "an answer has one token at least; begin the range with 1"
    for number, output in enumerate(manifest.outputs):
        if output.name not in (TOKENS, LOGPROBS):
            text = f"a generation gives {TOKENS} and {LOGPROBS}; write one of these"
            yield ("outputs", number, "name"), text
    if manifest.outputs[0].name == LOGPROBS:
        text = f"the answer is scored by the first output; write {TOKENS} before {LOGPROBS}"
        yield ("outputs", 0, "name"), text


def _texts_without_dataset(manifest: Manifest) -> Iterator[Error]:
    """Yield an error for each input of texts where there is no dataset that has them."""
    if manifest.dataset is not None:
        return
    for number, spec in enumerate(manifest.inputs):
        if spec.element_type == "string":
            text = "there are no random texts; add a dataset that has them, as an .npz"
            yield ("inputs", number, "element_type"), text


_OF_PICTURES = ("decode", "resize", "crop", "pad", "color_order", "layout")


def _unscaled_pixels(manifest: Manifest) -> Iterator[Error]:
    """Yield an error for pixels of 0 to 255 most of which a quantize would cut off."""
    for number, spec in enumerate(manifest.inputs):
        names = [step.name for step in spec.steps]
        if names[:1] != ["decode"] or "quantize" not in names:
            continue
        place = names.index("quantize")
        if not set(names[:place]) <= set(_OF_PICTURES):
            continue
        quantize = spec.steps[place].parameters
        low, high = ((end - quantize.zero_point) * quantize.scale for end in QUANTISED[quantize.to])
        if min(high, 255) - max(low, 0) > 255 / 2:
            continue
        problem = f"pixels are 0 to 255, and {quantize.to} stands for {low:.4g} to {high:.4g} here"
        advice = "write the 'normalize' of training before it, such as {mean: 0, scale: 255}"
        text = f"{problem}, beyond which all is cut off; {advice}, or {{mean: 0, scale: 1}} for"
        yield ("inputs", number, "steps", place), f"{text} pixels that are no larger"


def _too_many_cases(manifest: Manifest) -> Iterator[Error]:
    evaluate = manifest.evaluate
    points = len(evaluate.batch_sizes) * len(evaluate.scenarios)
    shapes = max(1, len(evaluate.shapes))
    cases = len(manifest.models) * len(evaluate.devices) * points * shapes
    if cases > _MOST_CASES:
        axes = "devices, batch_sizes, scenarios or shapes"
        advice = f"write fewer {axes}: at most {_MOST_CASES:,} cases"
        yield ("evaluate",), f"evaluate makes {cases:,} cases of performance; {advice}"


def _shapes(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of shapes: their names, their axes, and a dataset that isn't there."""
    evaluate = manifest.evaluate
    path = ("evaluate", "shapes")
    if evaluate.by_group and manifest.dataset is None:
        text = "there is no dataset whose shapes these could be; add one, or name them yourself"
        yield path, text
    named = {axis for spec in manifest.inputs for axis in spec.named_axes}
    for name, sizes in evaluate.named_shapes.items():
        yield from (((*path, name), text) for text in _shape_texts(manifest, name, named, sizes))
        for axis in sizes.keys() - named:
            known = instead(axis, sorted(named)) if named else "name it, as in 'shape: [batch, n]'"
            yield (*path, name, axis), f"no input has an axis {axis!r} in its shape; {known}"
    if not evaluate.shapes:
        for number, spec in enumerate(manifest.inputs):
            for axis in spec.named_axes:
                advice = f"write evaluate: {{shapes: {{short: {{{axis}: 16}}}}}}, or a size"
                text = f"nothing tells the size of the axis {axis!r}; {advice}, or 'batch'"
                yield ("inputs", number, "shape"), text


def _shape_texts(
    manifest: Manifest, name: str, named: Collection[str], sizes: Collection[str]
) -> Iterator[str]:
    """Yield errors of one shape: its name, which ends ids, and the axes that it lacks."""
    if not _ID_WORD.fullmatch(name):
        yield f"{name!r} is no word for ids; write letters, digits and '_'"
    elif name == BY_GROUP or name in manifest.evaluate.scenario_labels:
        yield f"{name!r} means another thing in ids; choose another name"
    for axis in sorted(set(named) - set(sizes)):
        yield f"shape {name!r} lacks the size of the axis {axis!r}; write '{axis}: …'"


def _idle_instances(manifest: Manifest) -> Iterator[Error]:
    """Yield an error where no scenario has queries that wait for an instance or a batcher."""
    evaluate = manifest.evaluate
    if any(isinstance(entry.load, OpenLoad) for entry in evaluate.scenarios):
        return
    set_keys = {"instances": evaluate.instances > 1, "batcher": evaluate.batcher is not None}
    for key, is_set in set_keys.items():
        if is_set:
            advice = "add the scenario server, replay or peak, or leave it out"
            yield ("evaluate", key), f"{key} serves no scenario here; {advice}"


def _idle_preprocess(manifest: Manifest) -> Iterator[Error]:
    """Yield an error where stacks have no pictures to decode."""
    if manifest.evaluate.preprocess == "runner":
        return
    pictures = [spec for spec in manifest.inputs if spec.steps and spec.steps[0].name == "decode"]
    problem = ""
    if manifest.dataset is None:
        problem = "there is no dataset"
    elif not pictures:
        problem = "no input's steps begin with decode"
    elif manifest.has_state:
        problem = "an input is the output of the call before"
    if problem:
        advice = "leave preprocess out"
        yield ("evaluate", "preprocess"), f"stacks decode no pictures here, as {problem}; {advice}"


def _idle_loads(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of limits and tolerances on queries that no scenario has."""
    missing = _missing_loads(manifest)
    for entry in manifest.thresholds.entries():
        path = ("thresholds", entry.key, entry.number)
        if entry.key in missing:
            yield path, _idle(entry.key, missing)
        if entry.key in _OF_QUERIES:
            named = entry.threshold.filters()["scenarios"]
            if entry.key == "peak_rate" and named:
                yield path, "only a peak has a peak_rate; leave 'scenarios' out"
                continue
            for name in sorted(_CALLS.intersection(named)):
                problem = f"{name} has no {entry.key}, which is of queries under load"
                yield path, f"{problem}; remove it"
    for name in manifest.thresholds.upgrade.tolerances():
        if name in missing:
            yield ("thresholds", "upgrade", name), _idle(name, missing)


def _missing_loads(manifest: Manifest) -> Mapping[str, str]:
    """Return the quantities of queries that no scenario has, with those to add."""
    loads = [entry.load for entry in manifest.evaluate.scenarios if entry.load]
    missing = {}
    if not any(isinstance(load, Peak) for load in loads):
        missing["peak_rate"] = "peak"
    if all(isinstance(load, Peak) for load in loads):
        others = _OF_QUERIES - {"peak_rate"}
        missing.update(dict.fromkeys(others, "server, replay or multi_stream"))
    return missing


def _idle(name: str, missing: Mapping[str, str]) -> str:
    return f"{name} judges nothing; add the scenario {missing[name]}, or leave it out"


def _single_inputs(manifest: Manifest) -> Iterator[Error]:
    """Yield an error where a call may have several inputs and an output is of one."""
    if not any(output.batch for output in manifest.outputs):
        return
    evaluate = manifest.evaluate
    if evaluate.batch_sizes != [1]:
        yield ("evaluate", "batch_sizes"), "an output has 'batch: none'; write batch_sizes: [1]"
    if evaluate.batcher is not None:
        yield ("evaluate", "batcher"), "an output has 'batch: none'; leave the batcher out"
    for number, entry in enumerate(evaluate.scenarios):
        if entry.name == "multi_stream":
            text = "multi_stream has several inputs a call, and an output 'batch: none'; remove it"
            yield ("evaluate", "scenarios", number), text


def _task_errors(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of a task that can't be used, and of outputs that it doesn't score."""
    facts = manifest.task_facts
    if facts.problem:
        yield ("task",), f"task {manifest.task!r}: {facts.problem}; mend or uninstall its package"
        return
    for index, output in enumerate(manifest.outputs):
        if output.type not in ("tensor", *facts.output_types):
            types = " or ".join(["tensor", *facts.output_types])
            advice = f"write 'type: {types}'{_task_advice(_tasks_that_score(output.type))}"
            text = f"task {manifest.task!r} scores no {output.type}; {advice}"
            yield ("outputs", index, "type"), text


def _tasks_that_score(output_type: str) -> list[str]:
    return [name for name, facts in tasks().items() if output_type in facts.output_types]


def _tasks_that_measure(quantity: str) -> list[str]:
    return [name for name, facts in tasks().items() if quantity in facts.quantities]


def _task_advice(names: Sequence[str]) -> str:
    return f", or 'task: {' or '.join(names)}'" if names else ""


def _idle_tolerances(manifest: Manifest) -> Iterator[Error]:
    for name in manifest.thresholds.upgrade.tolerances():
        problem = _idle_quantity(manifest, name)
        if problem:
            yield ("thresholds", "upgrade", name), f"{name} judges nothing; {problem}"


def _step_digests(manifest: Manifest) -> Iterator[Error]:
    """Yield an error for each file that an earlier step names with another digest."""
    digests: dict[str, str] = {}
    for path, file in manifest.step_files:
        if file.sha256 is None:
            continue
        first = digests.setdefault(file.source, file.sha256)
        if first != file.sha256:
            text = f"{file.source} has the digest {first} in an earlier step; write that in both"
            yield (*path, file.key), text


def _box_outputs(manifest: Manifest) -> Iterator[Error]:
    return box_output_errors(manifest.outputs)


def _idle_limits(manifest: Manifest) -> Iterator[Error]:
    """Yield an error for each limit that no case meets: such a gate would never close."""
    evaluated = _evaluated(manifest)
    for entry in manifest.thresholds.entries():
        path = ("thresholds", entry.key, entry.number)
        problem = _idle_quantity(manifest, entry.key)
        if problem:
            yield path, f"{entry.key} judges nothing; {problem}"
        else:
            for text in _unknown_filters(evaluated, entry):
                yield path, text


def _idle_quantity(manifest: Manifest, name: str) -> str:
    """Return what to do where no item measures a quantity, of accuracy or a GPU; else ""."""
    quantity = QUANTITIES.get(name)
    if quantity is not None and quantity.of_gpu and {*manifest.evaluate.devices} == {"cpu"}:
        return "the CPU has none: add cuda to evaluate.devices, or leave it out"
    if quantity is not None and quantity.of_tokens and manifest.generate is None:
        return "nothing is generated: write 'generate: …', or leave it out"
    if name == "batch_agreement" and manifest.generate is not None:
        return "a generation is of one prompt: leave it out"
    if quantity is None or quantity.kind != "accuracy":
        return ""
    facts = manifest.task_facts
    if name not in facts.quantities:
        advice = f"write one of {', '.join(facts.quantities)}"
        return f"{advice}{_task_advice(_tasks_that_measure(name))}"
    if not manifest.has_accuracy:
        return f"add a dataset and an output of type {' or '.join(facts.output_types)}"
    return _idle_scores(manifest, name)


_OF_SCORES = ("top5", "auc", "average_precision", "ece")


def _idle_scores(manifest: Manifest, name: str) -> str:
    """Return what to do where a quantity is of scores that the classification doesn't have."""
    output = manifest.classification
    if output is None or name not in _OF_SCORES:
        return ""
    if output.has_class_numbers:
        return f"{output.name!r} has numbers of classes: name an output with scores, or remove it"
    if output.threshold is not None and name == "top5":
        return f"{output.name!r} has two classes: write top1"
    return ""


def _evaluated(manifest: Manifest) -> dict[str, dict[Any, None]]:
    """Return the values that cases have of each filter, in order."""
    evaluate = manifest.evaluate
    return {
        "batch_sizes": dict.fromkeys(evaluate.batch_sizes),
        "scenarios": dict.fromkeys(entry.name for entry in evaluate.scenarios),
        "shapes": dict.fromkeys(evaluate.named_shapes),
        "devices": dict.fromkeys(evaluate.devices),
        "frameworks": dict.fromkeys(
            name for model in manifest.models for name in sorted(model.names, key=len)
        ),
    }


def _unknown_filters(evaluated: Mapping[str, Mapping[Any, None]], entry: Entry) -> Iterator[str]:
    for name, selected in entry.threshold.filters().items():
        values = evaluated[name]
        if any(value not in values for value in selected):
            known = ", ".join(map(str, itertools.islice(values, _SHOWN_VALUES)))
            found = f"{entry.key} names {name} that nothing is evaluated with"
            yield f"{found}; {f'write some of {known}' if known else 'leave them out'}"


def _agreement_errors(manifest: Manifest) -> Iterator[Error]:
    """Yield errors of agreements: a case has one at most, and its reference must exist."""
    judged: set[tuple[str, str]] = set()
    for index, agreement in enumerate(manifest.thresholds.agreement):
        path = ("thresholds", "agreement", index)
        for text in _agreement_texts(manifest, agreement, judged):
            yield path, text


def _agreement_texts(
    manifest: Manifest, agreement: AgreementThreshold, judged: set[tuple[str, str]]
) -> Iterator[str]:
    """Yield errors of one agreement; ``judged`` are the models and devices of earlier ones.

    Adds its own to them.
    """
    reference = agreement.reference
    called = [model for model in manifest.models if reference in model.names]
    if len(called) != 1:
        known = ", ".join(model.label for model in manifest.models)
        if called:
            yield f"the reference {reference!r} may be several models; write one of {known}"
            return
        yield f"the reference {reference!r} has no model here; write one of {known}"
    limits = agreement_limits().keys() & agreement.model_fields_set
    output = manifest.classification
    if limits and output is None:
        yield f"{min(limits)} judges nothing; add an output of type classification"
    elif limits and output is not None and output.has_class_numbers:
        problem = f"{min(limits)} judges nothing, as {output.name!r} has numbers of classes"
        yield f"{problem}; write 'atol: 0', or name an output with scores"
    pairs = set(_judged_pairs(manifest, agreement))
    for model, device in sorted(pairs & judged)[:1]:
        yield f"{model} on {device} has an agreement already; name other frameworks or devices"
    judged |= pairs


def _judged_pairs(manifest: Manifest, agreement: AgreementThreshold) -> Iterator[tuple[str, str]]:
    """Yield the models and the devices of the cases that an agreement judges."""
    for device in manifest.evaluate.devices:
        for model in manifest.models:
            if agreement.judges(device, model.names):
                yield model.label, device


_CHECKS = (
    _repeated_names,
    _variants,
    _repeated_positions,
    _states_alone,
    _generation,
    _texts_without_dataset,
    _unscaled_pixels,
    _shapes,
    _idle_instances,
    _idle_preprocess,
    _idle_loads,
    _single_inputs,
    _task_errors,
    _idle_tolerances,
    _step_digests,
    _box_outputs,
    _idle_limits,
    _agreement_errors,
)
