"""What the next iteration needs, and where it starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annealfit.randomness import child_seed

# Paths below a training's seed (see `annealfit.randomness`): 0 for the initial weights, 1 for the anneals.
_INITIAL_WEIGHTS, ANNEALS = 0, 1


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training between two iterations. Replaced as a whole, so an interrupt never sees half of one."""

    iteration: int
    weights: NDArray[np.float64]  # W, (D, C), the bias in the last row
    ranges: NDArray[np.float64]  # δ of every problem, (B,)
    bits: int


def uniform_weights(n_parameters: int, n_classes: int, seed: int) -> NDArray[np.float64]:
    """Uniform in ±1/√d, biases too: the usual start of a fully connected layer (and PyTorch's)."""
    limit = 1 / np.sqrt(max(n_parameters - 1, 1))
    generator = np.random.default_rng(child_seed(seed, _INITIAL_WEIGHTS))
    return generator.uniform(-limit, limit, size=(n_parameters, n_classes))


def zero_weights(n_parameters: int, n_classes: int, seed: int) -> NDArray[np.float64]:
    """All zero: every class equally likely. The problem is convex, so nothing is lost by starting there."""
    return np.zeros((n_parameters, n_classes))


INITIALIZATIONS: dict[str, Callable[[int, int, int], NDArray[np.float64]]] = {
    "uniform": uniform_weights,
    "zeros": zero_weights,
}
