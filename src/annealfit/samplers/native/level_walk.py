"""LevelWalk: chains over levels that start where they are told, along single parameters and soft pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.problems.curvature import Curvature
from annealfit.samplers.native.chains import Workers, blocks_of_lanes


@dataclass(eq=False)
class LevelWalk:
    """Chains ("lanes") over the levels of problems that share a metric; `levels` is what they are at, and changes.

    Parameter j of a lane has the value `spacing_j · (level_j + origin)`, a spacing of its own and a level in
    0 … top. Besides single parameters a chain moves pairs of them: each with its `partners`, by the same number of
    levels, in the direction in which their coupling helps. Energies are `uᵀGu + 2gᵀu` as everywhere, and β is their
    inverse temperature. Every parameter of the metric must have a curvature above 0.

    >>> metric = Curvature([[2.0, 1.9], [1.9, 2.0]])
    >>> walk = LevelWalk(
    ...     metric, np.array([[0.3, -0.3]]), np.ones((1, 2)), origin=-1.0, top=2,
    ...     levels=np.array([[1, 1]]), seeds=np.array([1], dtype=np.uint64), partners=soft_partners(metric, 1),
    ... )
    >>> walk.settle()  # one parameter alone gains nothing; both together do
    >>> walk.levels.tolist(), walk.energies().round(3).tolist()
    ([[0, 2]], [-1.0])
    """

    metric: Curvature
    gradients: Array  # (L, D)
    spacings: Array  # (L, D)
    origin: float
    top: int
    levels: NDArray[np.int64]  # (L, D)
    seeds: NDArray[np.uint64]  # (L,)
    partners: NDArray[np.intp]  # (D, M); M may be 0
    num_threads: int | None = None
    _counters: NDArray[np.uint64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.levels = np.array(self.levels, dtype=np.int64, order="C")
        self._counters = np.zeros(len(self.seeds), dtype=np.uint64)

    @property
    def values(self) -> Array:
        """What the levels stand for, (L, D)."""
        return self.spacings * (self.levels + self.origin)

    def energies(self) -> Array:
        """The energy of each lane, (L,)."""
        return self.metric.energies(self.gradients, self.values)

    def anneal(self, betas: Array) -> None:
        """Sweep once for each row of `betas` (S, L), a heat bath along every line."""
        from annealfit.samplers.native._walk import walk_levels  # numba takes a moment to load

        def anneal(block: slice, levels: NDArray[np.int64], fields: Array) -> None:
            own = np.ascontiguousarray(betas[:, block])
            chance = self.seeds[block], self._counters[block]
            walk_levels(self.metric.matrix, self.spacings[block], self.top, own, levels, fields, *chance, self.partners)

        self._in_blocks(anneal)

    def settle(self) -> None:
        """Descend until no move along any line lowers the energy."""
        from annealfit.samplers.native._walk import settle_levels

        def settle(block: slice, levels: NDArray[np.int64], fields: Array) -> None:
            settle_levels(self.metric.matrix, self.spacings[block], self.top, levels, fields, self.partners)

        self._in_blocks(settle)

    def _in_blocks(self, work: Callable[[slice, NDArray[np.int64], Array], None]) -> None:
        """Have the levels and fields of all lanes overwritten, block by block, in threads."""
        fields = self.values @ self.metric.matrix + self.gradients
        cancelled = False

        def run(block: slice) -> None:
            if not cancelled:
                work(block, self.levels[block], fields[block])

        blocks = blocks_of_lanes(len(self.levels))
        with Workers(self.num_threads, len(blocks)) as workers:
            try:
                workers.map(run, blocks)
            finally:
                cancelled = True  # after Ctrl-C, lets the other threads end with their block


def soft_partners(metric: Curvature, count: int) -> NDArray[np.intp]:
    """For each parameter the ones that are most strongly coupled to it, (D, count) or fewer: by `G_ij/√(G_ii·G_jj)`."""
    sizes = np.sqrt(metric.diagonal)
    strengths = np.abs(metric.matrix) / np.outer(sizes, sizes)
    np.fill_diagonal(strengths, -1.0)
    count = min(count, metric.size - 1)
    return np.ascontiguousarray(np.argsort(-strengths, axis=1, kind="stable")[:, :count])
