"""The smallest model, and the fewest rows of a batch, that still show the failure of a bundle.

It is found with both stacks; frameworks' profilers tell which layers became slower."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import onnx

from pytest_mlms.core.arrays import Array, Arrays
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.decide.upgrade.layer_diff import changed_layers
from pytest_mlms.explain.bisect.delta_debugging import reduce_changes
from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.explain.reduce.deviation import DepartingLayer, first_departure
from pytest_mlms.explain.reduce.extraction import (
    CantExtract,
    Extract,
    extract,
    network_with_outputs,
)
from pytest_mlms.explain.reduce.inner import Inner, StoredArrays, compare_inner, record_inner
from pytest_mlms.explain.reduce.judging import (
    CommandJudge,
    CrashJudge,
    Judge,
    ModelJudgement,
    OutputJudge,
    RatioJudge,
    check_onnx,
    check_reducible,
    judge_of,
)
from pytest_mlms.explain.reduce.network import Network, read_network
from pytest_mlms.explain.reduce.result import Reduction, Size
from pytest_mlms.explain.reduce.search import Found, Judged, Nodes, Progress, Step, smallest_nodes
from pytest_mlms.explain.reduce.sides import Sides
from pytest_mlms.explain.repro.bundle import Bundle
from pytest_mlms.explain.repro.sides import batch_of


def with_rows(inputs: Arrays, batch: int, rows: Sequence[int]) -> dict[str, Array]:
    """Return inputs with some of the rows of each array whose first axis is the batch."""
    found = {}
    for name, array in inputs.items():
        is_batch = array.ndim > 0 and len(array) == batch
        found[name] = array[list(rows)] if is_batch else array
    return found


def fewest_rows(
    batch: int, departing: Sequence[int], test: Callable[[Sequence[int]], Outcome]
) -> tuple[int, ...]:
    """Return the fewest rows that show the failure, all where no smaller batch does.

    ``departing`` are those whose outputs depart, the worst first: that one alone is tried, and then
    all of them. Where none are known, rows are taken out by delta debugging. All rows together show
    the failure, which is not tested.
    """
    everything = tuple(range(batch))
    if batch == 1:
        return everything
    if not departing:
        return reduce_changes(batch, test).changes
    for rows in ((departing[0],), tuple(sorted(departing))):
        if len(rows) < batch and max(rows) < batch and test(rows) is Outcome.BAD:
            return rows
    return everything


_PROFILED = 10  # calls


def slower_layers(sides: Sides, model: Path, inputs: Arrays) -> list[str]:
    """Return the layers that take longer on the new side, the largest change first.

    None where a framework has no profiler.
    """
    try:
        old, new = (side.load(model).profile(inputs, _PROFILED) for side in sides)
    except MlmsError:
        return []
    changes = changed_layers(old, new)
    return [layer.name for layer in changes if layer.type and layer.change > 0]


def slower_nodes(network: Network, layers: Sequence[str]) -> list[int]:
    """Return the nodes of layers, which a framework may have fused and renamed.

    A fused layer has the name of one of its nodes in its own, or that of a tensor they write.
    """
    found: dict[int, None] = {}
    for layer in layers:
        number = _node_of(network, layer)
        if number is not None:
            found[number] = None
    return list(found)


def _node_of(network: Network, layer: str) -> int | None:
    """Return the node whose name, or whose tensor's name, is the longest in a layer's name."""
    best: tuple[int, int] | None = None
    for number, node in enumerate(network.nodes):
        for name in (node.name, *node.writes):
            if name == layer:
                return number
            if name in layer and (best is None or len(name) > best[0]):
                best = (len(name), number)
    return None if best is None else best[1]


_FUSED = (
    "no inner output departs once all can be seen, so the failure comes with an optimization "
    "over several nodes"
)
_SELDOM = (
    "no inner output departs in the one call that looks at them, as outputs differ now and then"
)
_MOST_STARTS = 8  # of nodes that became slower


@dataclass(frozen=True)
class ReductionPlan:
    """How a bundle is reduced.

    ``folder`` is where the reduced model is written, beside the inner outputs. ``seconds`` is the
    budget of the search. ``tell`` is called with each step, ``show`` with what comes before. The
    words of a ``command`` judge instead of the gate.
    """

    folder: Path
    seconds: float
    tell: Callable[[Step], None]
    show: Callable[[str], None]
    command: Sequence[str] = ()


def reduce_bundle(bundle: Bundle, sides: Sides, plan: ReductionPlan) -> Reduction:
    """Return the smallest model that still shows the failure of a bundle in both stacks.

    Raises MlmsError for a bundle that can't be reduced: of a model that is no ONNX file, and where
    no command judges of one stack, or of memory. Ctrl-C ends the search with the smallest model
    that was found; before there is one, it is raised.
    """
    (check_onnx if plan.command else check_reducible)(bundle)
    network = read_network(bundle.files["graph"])
    plan.folder.mkdir(parents=True, exist_ok=True)
    judge: Judge = CommandJudge(plan.command, bundle.expected, plan.folder)
    if not plan.command:
        judge = judge_of(bundle, sides)
    return _Search(bundle, network, plan, judge).run(sides)


class _Start(NamedTuple):
    """The inner tensors, and the nodes to begin with; ``layer`` is the first departing one."""

    inner: Inner
    nodes: list[int]
    layer: DepartingLayer | None = None


@dataclass
class _Search:
    """The search in one bundle. ``judged`` has the judgements on models by their nodes."""

    bundle: Bundle
    network: Network
    plan: ReductionPlan
    judge: Judge
    judged: dict[Nodes, ModelJudgement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.plan.seconds
        self.graph = self.bundle.files["graph"]
        rows = batch_of(self.bundle.inputs)
        self.unreduced = Reduction(Size(len(self.network.nodes), rows))

    def run(self, sides: Sides) -> Reduction:
        """Search; return what was found."""
        self.plan.show(f"nodes of the whole model: {len(self.network.nodes)}")
        whole = self.judge(self.graph, self.bundle.inputs)
        if whole.outcome is not Outcome.BAD:
            reason = f"the whole model does not show the failure here: {whole.reason}"
            return replace(self.unreduced, reason=reason)
        if isinstance(self.judge, CrashJudge):
            self.judge = replace(self.judge, crash=whole.crash)
        inputs = self._fewer_rows(self.bundle.inputs, whole.rows, lambda _: self.graph)
        start = self._look_inside(sides, inputs)
        return self._smallest(start)

    def _fewer_rows(
        self, inputs: Arrays, departing: Sequence[int], model_for: Callable[[Arrays], Path]
    ) -> Arrays:
        """Return inputs with fewer rows; those of a latency stay, which depends on their number."""
        if isinstance(self.judge, RatioJudge):
            return inputs
        batch = batch_of(inputs)

        def test(rows: Sequence[int]) -> Outcome:
            if time.monotonic() >= self.deadline:
                return Outcome.UNDECIDED
            fewer = with_rows(inputs, batch, rows)
            return self.judge(model_for(fewer), fewer).outcome

        return with_rows(inputs, batch, fewest_rows(batch, departing, test))

    def _look_inside(self, sides: Sides, inputs: Arrays) -> _Start:
        """Return the inner tensors for these inputs, and where to begin."""
        folder = self.plan.folder / "inner"
        folder.mkdir(exist_ok=True)
        self.plan.show(f"inner outputs, batch {batch_of(inputs)}")
        if isinstance(self.judge, OutputJudge):
            expected = self.bundle.expected
            return self._departing(compare_inner(self.network, inputs, sides, expected, folder))
        inner = record_inner(self.network, inputs, sides.old, folder)
        if not isinstance(self.judge, RatioJudge):
            return _Start(inner, [])
        layers = slower_layers(sides, self.graph, inputs)
        return _Start(inner, slower_nodes(self.network, layers)[:_MOST_STARTS])

    def _departing(self, inner: Inner) -> _Start:
        layer = first_departure(self.network, inner.deviations)
        if layer is None:
            why = _SELDOM if self.bundle.expected.calls > 1 else _FUSED
            return _Start(replace(inner, reason=inner.reason or why), [])
        return _Start(inner, [layer.number], layer)

    def _smallest(self, start: _Start) -> Reduction:
        """Search from these nodes on."""
        values = start.inner.values
        progress = Progress(lambda nodes: self._test(nodes, values), self.plan.tell, self.deadline)
        found = smallest_nodes(self.network, start.nodes, progress)
        known = replace(
            self.unreduced, layer=start.layer, steps=progress.steps, reason=start.inner.reason
        )
        if not found.nodes:
            return _without_a_model(known, found.complete)
        return self._reduced(found, known, values)

    def _test(self, nodes: Nodes, values: StoredArrays) -> Judged:
        """Run a model of some nodes on both sides."""
        try:
            small = self._extract(nodes, values)
        except CantExtract as error:
            return Judged(Outcome.UNDECIDED, str(error))
        judged = self.judge(self._saved(small.model), small.inputs)
        self.judged[nodes] = judged
        return Judged(judged.outcome, judged.reason)

    def _extract(self, nodes: Nodes, values: StoredArrays) -> Extract:
        """Return a model of some nodes; of all of them, the whole one."""
        if len(nodes) < len(self.network.nodes):
            return extract(self.network, nodes, values)
        inputs = {name: values[name] for name in self.network.inputs}
        return Extract(network_with_outputs(self.network, ()), inputs)

    def _saved(self, model: onnx.ModelProto) -> Path:
        path = self.plan.folder / "reduced.onnx"
        onnx.save(model, path)
        return path

    def _reduced(self, found: Found, known: Reduction, values: StoredArrays) -> Reduction:
        """Return the reduction to some nodes, with fewer rows where these show the failure, too.

        After Ctrl-C, all rows are kept.
        """
        small = self._extract(found.nodes, values)
        judged = self.judged[found.nodes]
        complete = found.complete
        if complete:
            try:
                small, judged = self._with_fewer_rows(found.nodes, small, judged, values)
            except KeyboardInterrupt:
                complete = False
        kinds = tuple(self.network.nodes[number].type for number in found.nodes)
        return replace(
            known,
            bundle=self._bundle(small, judged, len(kinds)),
            after=Size(len(kinds), batch_of(small.inputs)),
            kinds=kinds,
            minimal=found.minimal,
            complete=complete,
        )

    def _with_fewer_rows(
        self, nodes: Nodes, small: Extract, judged: ModelJudgement, values: StoredArrays
    ) -> tuple[Extract, ModelJudgement]:
        """Return the model for fewer rows, where it shows the failure."""

        def extract_for(inputs: Arrays) -> Extract:
            return self._extract(nodes, values.with_arrays(inputs))

        def model_for(inputs: Arrays) -> Path:
            return self._saved(extract_for(inputs).model)

        inputs = self._fewer_rows(small.inputs, judged.rows, model_for)
        if batch_of(inputs) == batch_of(small.inputs):
            return small, judged
        fewer = extract_for(inputs)
        again = self.judge(self._saved(fewer.model), fewer.inputs)
        return (fewer, again) if again.outcome is Outcome.BAD else (small, judged)

    def _bundle(self, small: Extract, judged: ModelJudgement, count: int) -> Bundle:
        assert judged.expected is not None, "it shows the failure"
        return replace(
            self.bundle,
            title=f"{self.bundle.title}: {count} of {len(self.network.nodes)} nodes",
            files={"graph": self._saved(small.model)},
            inputs=dict(small.inputs),
            expected=judged.expected,
        )


def _without_a_model(known: Reduction, complete: bool) -> Reduction:
    """Return a reduction that found no smaller model, with the reason."""
    reason = "no model that was taken out of it shows the failure"
    if not complete:
        count = len(known.steps)
        reason = f"the budget ended after {count} models, of which none shows the failure"
    reasons = [reason, known.reason]
    return replace(known, complete=complete, reason="; ".join(filter(None, reasons)))
