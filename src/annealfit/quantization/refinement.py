"""Training with low-bit weights: the levels of a classifier head, moved along its true loss.

Rounding a layer keeps its outputs; what counts in a head is its loss. From the rounded start every step models the loss
by its Gauss–Newton curvature at the weights as they are, anneals the levels of that model, fits scales and biases to
the loss itself, and is kept only if the loss has fallen.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import check_number, choose
from annealfit._support.randomness import child_seeds
from annealfit._support.threads import blas_threads
from annealfit.data.rows import Chunk
from annealfit.problems.curvature import Curvature
from annealfit.quantization.grids import Grid
from annealfit.samplers.native.levels import LevelChains, soft_partners
from annealfit.training.objectives import LinearHead
from annealfit.training.objectives.linear_head import HeadPoint

SCOPES = ("joint", "per_class")

MOST_JOINT_PARAMETERS = 2048  # beyond, the curvature of all classes together takes too long to anneal
_PATIENCE = 6  # steps in a row that were not kept, each tried with another damping
_READS, _SWEEPS = 8, 30  # of the anneal of every step, from the levels as they are
# β times what a step of one level costs, of the reads at the first sweep, from warm to cold, and at the last one.
_FIRST_BETAS, _LAST_BETA = (0.3, 20.0), 100.0
_PARTNERS = 8
# Levenberg's damping, in units of the curvature's mean diagonal: at first, at least, and by what it changes.
_DAMPING, _LEAST_DAMPING, _SMALLER, _LARGER = 0.3, 1e-3, 3.0, 4.0
_NEWTON_STEPS, _HALVINGS = 8, 12
_GAIN = 1e-7  # of the loss: less is no progress


@dataclass(frozen=True, eq=False)
class LowBitHead:
    """A head whose weights are levels of a grid times a scale for each output: numbers of levels (d, outputs)."""

    numbers: NDArray[np.int64]
    scales: Array  # (outputs,)
    biases: Array  # (outputs,)
    grid: Grid

    @property
    def levels(self) -> NDArray[np.int64]:
        """The levels themselves."""
        return self.grid.at(self.numbers)

    @property
    def weights(self) -> Array:
        """(d + 1, outputs), the biases in the last row."""
        return np.vstack([self.scales * self.levels, self.biases])


@dataclass(frozen=True)
class Refinement:
    """How the levels of a head are moved along its loss.

    Parameters
    ----------
    scope : {"joint", "per_class"} or None
        Whether a step models all classes together, with their couplings, or each by itself, with twice its curvature,
        which bounds the couplings. None is joint up to 2,048 weights: it is much better.
    max_steps : int
        Steps at most, those that are not kept included.

    """

    scope: str | None = None
    max_steps: int = 40

    def __post_init__(self) -> None:
        if self.scope is not None:
            choose("scope", self.scope, SCOPES)
        check_number("max_steps", self.max_steps, Integral, minimum=1)

    def refine(self, head: LinearHead, start: LowBitHead, seed: int) -> tuple[LowBitHead, list[float]]:
        """The refined head, and the loss at the start, of its fitted scales, and after every step that was kept."""
        with blas_threads(head.multiplications):
            losses = [head.at(start.weights).loss]
            best, point = _fit_scales(head, start)
            losses.append(point.loss)
            damping, failures = _DAMPING, 0
            for step in range(self.max_steps):
                proposal = self._step(point, best, damping, child_seeds(seed, step, np.arange(_READS)))
                changed = not np.array_equal(proposal.numbers, best.numbers)
                if changed:
                    found, reached = _fit_scales(head, proposal)
                if changed and reached.loss < point.loss - _GAIN:
                    best, point, failures = found, reached, 0
                    damping = max(damping / _SMALLER, _LEAST_DAMPING)
                    losses.append(point.loss)
                    continue
                failures += 1
                if failures >= _PATIENCE or (not changed and damping <= _LEAST_DAMPING):
                    break
                # Where nothing moves the model is too stiff; where the loss rises it is not stiff enough.
                damping = damping * _LARGER if changed else max(damping / _LARGER, _LEAST_DAMPING)
        return best, losses

    def _step(self, point: HeadPoint, now: LowBitHead, damping: float, seeds: NDArray[np.uint64]) -> LowBitHead:
        """The levels of lowest energy in the model of the loss."""
        outputs, size = now.numbers.shape[::-1]
        joint = self.scope == "joint" or (self.scope is None and outputs * size <= MOST_JOINT_PARAMETERS)
        groups = [list(range(outputs))] if joint else [[output] for output in range(outputs)]
        if joint:
            curvatures = _joint_curvature(point)
        else:
            blocks = point.output_grams() + np.diag(point.head.ridge)
            curvatures = min(outputs, 2) * blocks[:, None, :, None, :]
        numbers = now.numbers.copy()
        for group, curvature in zip(groups, curvatures, strict=True):
            metric, slopes = _without_biases(curvature, point.gradients[group], damping)
            positive = np.maximum(now.scales[group], np.finfo(float).tiny ** 0.25)  # 0 where all weights are
            spacings = np.repeat(now.grid.step * positive, size)
            own = now.numbers[:, group].T.ravel()
            weights = (now.scales[group] * now.levels[:, group]).T.ravel()
            chains = LevelChains(
                metric,
                np.tile(slopes - metric.times(weights), (_READS, 1)),
                np.tile(spacings, (_READS, 1)),
                now.grid.origin,
                now.grid.count - 1,
                np.tile(own, (_READS, 1)),
                seeds,
                soft_partners(metric, _PARTNERS),
            )
            unit = float(np.median(metric.diagonal * spacings**2))
            first = np.geomspace(*_FIRST_BETAS, _READS)
            chains.anneal(np.geomspace(first, np.full(_READS, _LAST_BETA), _SWEEPS) / unit)
            chains.polish()
            numbers[:, group] = chains.levels[chains.energies().argmin()].reshape(len(group), size).T
        return LowBitHead(numbers, now.scales, now.biases, now.grid)


def _joint_curvature(point: HeadPoint) -> Array:
    """The Hessian over all outputs, `Σ_n a_n (diag π − ππᵀ) ⊗ xxᵀ / Σ_n a_n + I ⊗ Λ`, shape (1, O, D, O, D)."""
    outputs, size = point.head.n_outputs, point.head.n_parameters
    pairs = list(combinations_with_replacement(range(outputs), 2))

    def terms(chunk: Chunk) -> tuple[Array, ...]:
        of_rows = point.outputs.probabilities(chunk)
        return tuple(
            chunk.gram(chunk.weighted(of_rows[c] * ((1.0 if c == other else 0.0) - of_rows[other])))
            for c, other in pairs
        )

    found = np.empty((1, outputs, size, outputs, size))
    for (c, other), gram in zip(pairs, point.head.rows.mean(terms), strict=True):
        found[0, c, :, other] = gram + (np.diag(point.head.ridge) if c == other else 0.0)
        found[0, other, :, c] = found[0, c, :, other].T
    return found


def _without_biases(curvature: Array, gradients: Array, damping: float) -> tuple[Curvature, Array]:
    """The model over the weights alone, the biases at their best for each, damped; its slopes (O·d,)."""
    outputs, size = curvature.shape[0], curvature.shape[1] - 1
    of_weights = curvature[:, :-1, :, :-1].reshape(outputs * size, outputs * size)
    between = curvature[:, :-1, :, -1].reshape(outputs * size, outputs)
    of_biases = curvature[:, -1, :, -1]
    # A bias of all classes at once changes nothing, so the matrix is singular.
    of_biases = of_biases + (1e-9 * float(np.trace(of_biases)) / outputs or 1.0) * np.eye(outputs)
    made_up = np.linalg.solve(of_biases, np.column_stack([between.T, gradients[:, -1]]))
    matrix = of_weights - between @ made_up[:, :-1]
    matrix = (matrix + matrix.T) / 2
    slopes = gradients[:, :-1].ravel() - between @ made_up[:, -1]
    least = 1e-12 * float(matrix.diagonal().mean()) or 1.0  # a feature that is always 0 has no curvature of its own
    return Curvature(matrix + least * np.eye(len(matrix))).damped(damping), slopes


def _fit_scales(head: LinearHead, given: LowBitHead) -> tuple[LowBitHead, HeadPoint]:
    """The same levels with the scales and biases of least loss: Newton's method, steps halved until the loss falls."""
    outputs = head.n_outputs
    levels = np.column_stack([given.levels.T, np.zeros(outputs)]).astype(float)
    ones = np.zeros_like(levels)
    ones[:, -1] = 1.0
    directions = np.stack([levels, ones])  # of the scales, and of the biases
    point, scales = head.at(given.weights), given.scales
    for _ in range(_NEWTON_STEPS):
        slopes = np.einsum("acj,cj->ac", directions, point.gradients).ravel()
        curvature = point.curvature_along(directions)
        ridge = 1e-9 * float(np.trace(curvature)) / len(curvature) or 1.0
        step = -np.linalg.solve(curvature + ridge * np.eye(len(curvature)), slopes).reshape(2, outputs)
        for halving in range(_HALVINGS):
            multiple = 0.5**halving * step
            if (scales + multiple[0] > 0).all():
                reached = point.moved(np.einsum("ac,acj->cj", multiple, directions))
                if reached.loss < point.loss:
                    break
        else:
            break
        gained, point, scales = point.loss - reached.loss, reached, scales + multiple[0]
        if gained < 0.01 * _GAIN:
            break
    fitted = LowBitHead(given.numbers, scales, point.weights[-1].copy(), given.grid)
    return fitted, head.at(fitted.weights)
