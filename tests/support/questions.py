"""A question of a bisection, for tests of what records it."""

from pytest_mlms.explain.bisect.question import End, Question

QUESTION = Question(
    manifest="manifests/digits.yaml",
    framework="pacekit",
    device="cpu",
    batch_size=8,
    model={"graph": "0123"},
    dataset=None,
    good=End("pace==1.0"),
    bad=End("pace==2.0"),
    quantity=None,
    tolerance=None,
    requirements=("numpy<2",),
    machine="a machine",
)
