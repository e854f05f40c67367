"""Several problems as one program of a chip: a tile each, scaled to the device's range, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import SamplerError, require
from annealfit.hardware.analog_error import COUPLING_ERROR, DeviceRanges, device_scale, share_below, torque_compensation
from annealfit.hardware.coupling_limits import TileLimit
from annealfit.hardware.embeddings import EXTRA, Embedding
from annealfit.problem import QuadraticProblem

if TYPE_CHECKING:
    import dimod


@dataclass(frozen=True, eq=False)
class Program:
    """Variable `t·n + i` of the model is variable i of problem t, which has n of them."""

    problems: tuple[QuadraticProblem, ...]
    model: dimod.BinaryQuadraticModel  # in spins, every problem filling the device's range by itself
    chain_strengths: dict[int, float]  # of every variable
    scales: tuple[float, ...]  # by which each problem's coefficients were divided

    @classmethod
    def of(
        cls,
        problems: Sequence[QuadraticProblem],
        ranges: DeviceRanges,
        chain_prefactor: float,
        limits: Sequence[Sequence[TileLimit]] = (),
    ) -> Program:
        """The program of problems with one number of variables; `limits` are those of each problem's tile.

        Each problem is scaled for itself: a class whose update has become small still gets the whole range.
        """
        dimod = require("dimod", extra=EXTRA, purpose="programming a QPU")
        size = problems[0].n_variables
        rows, columns = np.triu_indices(size, 1)
        linear, biases, strengths, scales = [], [], [], []
        for problem, of_tile in zip(problems, limits or [()] * len(problems), strict=True):
            fields, couplings, _ = problem.to_ising()
            pairs = couplings[rows, columns]
            strength = torque_compensation(couplings, chain_prefactor)
            scale = device_scale(fields, couplings, strength, ranges)
            scale = max(scale, *(limit.excess(pairs, strength) for limit in of_tile), 0.0)
            linear.append(fields / scale)
            biases.append(pairs / scale)
            strengths.append(strength / scale)
            scales.append(scale)
        shifts = size * np.arange(len(problems))[:, None]
        model = dimod.BinaryQuadraticModel.from_numpy_vectors(
            np.concatenate(linear),
            ((rows + shifts).ravel(), (columns + shifts).ravel(), np.concatenate(biases)),
            0.0,
            dimod.SPIN,
        )
        of_variable = dict(enumerate(np.repeat(strengths, size).tolist()))
        return cls(tuple(problems), model, of_variable, tuple(scales))

    def describe(self) -> list[dict[str, float]]:
        """How each problem was programmed: its scale, and the chain strength in the device's units."""
        size = len(self.model.variables) // len(self.problems)
        return [
            {"coefficient_scale": scale, "chain_strength": self.chain_strengths[number * size]}
            for number, scale in enumerate(self.scales)
        ]

    def unresolved_share(self) -> float:
        """The share of the couplings below the analog error, in the problem where it is largest."""
        return max(
            share_below(problem.to_ising()[1], scale, COUPLING_ERROR[1])
            for problem, scale in zip(self.problems, self.scales, strict=True)
        )

    def read(self, sampleset: Any) -> list[NDArray[np.uint8]]:
        """The bits (reads, n) of every problem in a sample set of the model."""
        size = len(self.model.variables)
        if set(sampleset.variables) != set(range(size)):
            raise SamplerError(f"the device answered for {len(sampleset.variables)} variables of {size}")
        order = np.argsort(np.fromiter(sampleset.variables, dtype=np.int64))
        rows = (sampleset.record.sample[:, order] > 0).astype(np.uint8)
        bits = np.repeat(rows, sampleset.record.num_occurrences, axis=0)
        return np.split(bits, len(self.problems), axis=1)


def side_by_side(tiles: Sequence[Embedding]) -> Embedding:
    """One embedding of all tiles, its variables numbered as a `Program`'s.

    >>> side_by_side([{0: (7,), 1: (8, 9)}, {0: (3,), 1: (4,)}])
    {0: (7,), 1: (8, 9), 2: (3,), 3: (4,)}
    """
    return {
        position * len(tile) + variable: tile[variable]
        for position, tile in enumerate(tiles)
        for variable in sorted(tile)
    }
