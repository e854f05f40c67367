"""Where a training starts from: a function of the objective and the seed, one each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from annealfit._support.randomness import child_seed
from annealfit.training.objectives import LinearHead

# Paths below a training's seed (see `annealfit._support.randomness`): 0 for the initial weights, 1 for the anneals.
_INITIAL_WEIGHTS, ANNEALS = 0, 1

Initialization = Callable[[LinearHead, int], NDArray[np.float64]]


def uniform(head: LinearHead, seed: int) -> NDArray[np.float64]:
    """Uniform in ±1/√d, biases too: the usual start of a fully connected layer (and PyTorch's)."""
    limit = 1 / np.sqrt(max(head.n_parameters - 1, 1))
    generator = np.random.default_rng(child_seed(seed, _INITIAL_WEIGHTS))
    return generator.uniform(-limit, limit, size=(head.n_parameters, head.n_outputs))


def zeros(head: LinearHead, seed: int) -> NDArray[np.float64]:
    """All zero: every class equally likely. The problem is convex, so nothing is lost by starting there."""
    return np.zeros((head.n_parameters, head.n_outputs))


INITIALIZATIONS: dict[str, Initialization] = {"uniform": uniform, "zeros": zeros}
