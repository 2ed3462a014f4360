"""Options of commands that make a bundle of an item, and its settings by them."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from pytest_mlms.cli.arguments import (
    add_allow_code,
    add_cache,
    add_predictors,
    add_results,
    add_trust,
    show_step,
)

if TYPE_CHECKING:
    from pytest_mlms.explain.repro.making import Making


def add_making(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``making_of`` reads, and --mlms-results."""
    parser.add_argument(
        "--quantity", metavar="NAME", help="of an upgrade (default: the first that regressed)"
    )
    add_results(parser, "folder of the runs (default: mlms-results)")
    add_predictors(parser)
    add_cache(parser)
    add_allow_code(parser)
    add_trust(parser)


def making_of(
    options: argparse.Namespace, quantity: str | None, trusted: Collection[str] = ()
) -> Making:
    """Return the settings for a quantity of an upgrade, None for the first that regressed.

    ``trusted`` are runs that the command itself has made.
    """
    from pytest_mlms.explain.repro.making import Making
    from pytest_mlms.measure.agent.registry import find_predictors

    return Making(
        predictors=find_predictors(options.predictors),
        cache=options.cache,
        show=show_step,
        results=options.results,
        trusted=(*trusted, *getattr(options, "trusted", ())),
        quantity=quantity,
        allow_code=options.allow_code,
    )
