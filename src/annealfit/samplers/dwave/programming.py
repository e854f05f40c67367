"""Several problems as one program of a chip: a tile each, scaled to the device's range, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import SamplerError, require
from annealfit.hardware.chip import Chip
from annealfit.hardware.embeddings import EXTRA, Embedding, qubits_of
from annealfit.hardware.limits import (
    COUPLING_ERROR,
    DeviceRanges,
    TileLimit,
    coupling_limits,
    device_scale,
    share_below,
    torque_compensation,
)
from annealfit.problems.problem import QuadraticProblem

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


# Blocks of about this size need the fewest calls: ten of them fit a chip at once, with short chains.
BLOCK_VARIABLES = 40


class Tiles:
    """The tiles of a device's chip, and the composites that program them; both are made once for every size."""

    def __init__(self, device: Any, chip: Chip) -> None:
        self.device, self.chip = device, chip
        self._composites: dict[tuple[int, int], tuple[Any, int]] = {}
        self._limits: dict[tuple[int, int], list[list[TileLimit]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_composites": {}}  # made again where they are needed

    def calls(self, problems: Sequence[QuadraticProblem]) -> list[list[int]]:
        """Positions of the problems that go out together: of one size, and as many as there are tiles."""
        of_size: dict[int, list[int]] = {}
        for position, problem in enumerate(problems):
            of_size.setdefault(problem.n_variables, []).append(position)
        calls = []
        for positions in of_size.values():
            together = len(self.embeddings(problems[positions[0]], len(positions)))
            calls += [positions[start : start + together] for start in range(0, len(positions), together)]
        return calls

    def embeddings(self, problem: QuadraticProblem, at_most: int) -> Sequence[Embedding]:
        """Up to so many disjoint embeddings of problems of this size."""
        found = self.chip.tiles(problem.n_variables, at_most)
        if not found:
            raise SamplerError(self._too_large(problem))
        return found

    def limits(self, problem: QuadraticProblem, count: int) -> list[list[TileLimit]]:
        """What the couplings of each of so many tiles may add up to at a qubit."""
        key = problem.n_variables, count
        if key not in self._limits:
            published = coupling_limits(self.device.properties)
            tiles = self.embeddings(problem, count)
            self._limits[key] = [[TileLimit.of(limit, tile, self.chip.graph) for limit in published] for tile in tiles]
        return self._limits[key]

    def composite(self, problem: QuadraticProblem, count: int) -> tuple[Any, int]:
        """The device as a sampler for so many problems of this size side by side, and the qubits they take."""
        key = problem.n_variables, count
        if key not in self._composites:
            system = require("dwave.system", extra=EXTRA, purpose="embedding problems on a QPU")
            gauges = require("dwave.preprocessing.composites", extra=EXTRA, purpose="spin-reversal transforms")
            tiles = self.embeddings(problem, count)
            fixed = system.FixedEmbeddingComposite(self.device, side_by_side(tiles))
            # Above the embedding, so that a chain is flipped as a whole and stays ferromagnetic: only then may it use
            # the extended range of couplings.
            self._composites[key] = gauges.SpinReversalTransformComposite(fixed), qubits_of(tiles)
        return self._composites[key]

    def _too_large(self, problem: QuadraticProblem) -> str:
        largest, n_parameters, bits = self.chip.largest_clique, problem.n_parameters, problem.encoding.bits
        block = min(largest, BLOCK_VARIABLES)
        fewer_bits = f"use at most bits={largest // n_parameters}, or " if largest >= n_parameters else ""
        return (
            f"{problem.n_variables} variables ({n_parameters} parameters of {bits} {'bit' if bits == 1 else 'bits'}) "
            f"do not embed on {self.chip.name}: its largest clique is {largest}; {fewer_bits}solve in blocks: "
            f"BlockSampler(sampler, max_variables={block}), or --blocks {block}"
        )
