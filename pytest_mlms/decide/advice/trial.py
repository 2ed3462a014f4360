"""Models tried on the same labelled inputs, and ranked by how well they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.tasks import facts_of
from pytest_mlms.decide.advice.candidates import Candidate
from pytest_mlms.decide.advice.fragment import where_to_paste
from pytest_mlms.decide.advice.measuring import Means, Opened, hold_all
from pytest_mlms.decide.advice.ranking import Rank, rank
from pytest_mlms.measure.evaluate.tasks.task import Evidence

RISK = 0.05
"""The risk of a ranking: that one of equally good models is called the best."""


@dataclass(frozen=True)
class Trial:
    """Models that answered, by their ranks, on so many ``inputs``; and why others couldn't.

    Ranks have the numbers of ``candidates``.
    """

    candidates: Sequence[Candidate]
    quantity: str
    ranks: Sequence[Rank]
    inputs: int
    refused: dict[str, str]

    @property
    def leaders(self) -> list[Candidate]:
        """The best, or those that can't be told from it."""
        chosen = [each for each in self.ranks if each.standing in ("best", "alike")]
        return [self.candidates[each.number] for each in chosen]


def quantity_of(task: str, asked: str | None) -> str:
    """Return the quantity that models of a task are ranked by: what is asked for, or its first."""
    known = facts_of(task).quantities
    if asked is None:
        return known[0]
    if asked not in known:
        kind = QUANTITIES[asked].kind
        problem = f"models are ranked by their answers, and {asked} is of {kind}"
        raise MlmsError(f"--objective: {problem}; {task} has {', '.join(known)}")
    return asked


def try_models(
    candidates: Sequence[Candidate], quantity: str, means: Means, refused: dict[str, str]
) -> Trial:
    """Return the ranks of models by their answers for the inputs that all of them have.

    Those that fail join the ``refused`` ones.
    """
    answered: list[Candidate] = []
    evidence: list[Evidence] = []
    refused = dict(refused)
    for candidate in candidates:
        means.show(f"asking {candidate.label}")
        try:
            opened = Opened(candidate, [], means)
            with hold_all([candidate.case], means.waiting):
                evidence.append(opened.evidence())
        except MlmsError as error:
            refused[candidate.label] = str(error)
        else:
            answered.append(candidate)
    ranks = rank(evidence, quantity, means.seed, RISK)
    inputs = len(evidence[0]) if evidence else 0
    return Trial(answered, quantity, ranks, inputs, refused)


def dataset_text(candidate: Candidate) -> str:
    """Return the section of a model's manifest that names the data, as YAML to be pasted."""
    loaded = candidate.case.loaded
    assert loaded.manifest.dataset is not None, "it was tried on one"
    section = loaded.manifest.dataset.model_dump(exclude_defaults=True)
    lines = [where_to_paste(candidate.case, ["dataset"])]
    lines += [yaml.safe_dump({"dataset": section}, sort_keys=False, allow_unicode=True).rstrip()]
    limits = [limit.quantity for limit in load_manifest(loaded.path).limits("accuracy")]
    if limits:
        names = ", ".join(dict.fromkeys(limits))
        lines.append(f"# the manifest's limits on {names} were written for another dataset")
    return "\n".join(lines)
