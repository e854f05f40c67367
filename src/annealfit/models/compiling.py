"""Compiled code is at hand before a clock runs: a training takes milliseconds, and its compiler half a minute."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

import numpy as np

from annealfit.data.rows.in_memory import MANY_FEATURES
from annealfit.problems.coordinates import COORDINATES
from annealfit.samplers import RoundedSampler
from annealfit.training import ACCEPTANCES, PRECISION_POLICIES, RANGE_POLICIES, Plan, Stopping, Trainer
from annealfit.training.objectives import CURVATURES, LinearHead, Objective, Turns
from annealfit.training.objectives.curvature import MOST_IN_ONE_BLOCK
from annealfit.training.objectives.softmax_link import MANY_OUTPUTS

_logger = logging.getLogger(__name__)

# Features from which on other code is at work: rows with a copy in single precision, a curvature in blocks. So many
# rows that all their outputs are worked out by compiled code, too.
_COUNT, _SIZES = MANY_OUTPUTS // 3 + 1, {0: 3, MANY_FEATURES: 128, MOST_IN_ONE_BLOCK + 1: 320}


def compile_training(plan: Plan, objective: Objective | Turns, n_classes: int) -> None:
    """Have the code that a training of such rows needs; that of its sampler is the sampler's affair."""
    if plan.acceptance is not ACCEPTANCES["second_direction"]:  # the other rules make do with NumPy, mostly
        return
    own_size = objective.n_parameters - 1 if isinstance(objective, LinearHead) else 0
    for fewest, size in _SIZES.items():
        if own_size >= fewest:
            _train_a_little(size, min(n_classes, 3))


@cache
def _train_a_little(size: int, n_classes: int) -> None:
    from annealfit.training.objectives import _links  # numba takes a moment to load

    if not any(Path(_links.move.stats.cache_path).glob("_links.move*.nbi")):
        _logger.warning("Compiling what trainings need; this takes up to half a minute, once per machine.")
    features = np.random.default_rng(0).normal(size=(_COUNT, size))
    head = LinearHead.of_arrays(features, np.arange(_COUNT) % n_classes, n_classes, 1e-3)
    plan = Plan(
        curvature=CURVATURES["local"],
        coordinates=COORDINATES["centred"],
        max_couplings=None,
        acceptance=ACCEPTANCES["second_direction"],
        range_policy=RANGE_POLICIES["relaxation"],
        precision_policy=PRECISION_POLICIES["fixed"],
        stopping=Stopping(max_iter=3),
        bits=2,
        update_range=None,
        step=1.0,
        seed=0,
    )
    trainer = Trainer(head, RoundedSampler(), plan)
    trainer.run(trainer.start(np.zeros((head.n_parameters, head.n_outputs)))).point.lower_bound()
