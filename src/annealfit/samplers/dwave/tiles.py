"""Where problems sit on a chip: a tile each, embedded once, and as many tiles in one call as there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from annealfit.errors import SamplerError, require
from annealfit.hardware.chip import Chip
from annealfit.hardware.coupling_limits import TileLimit, coupling_limits
from annealfit.hardware.embeddings import EXTRA, Embedding, qubits_of
from annealfit.problem import QuadraticProblem
from annealfit.samplers.dwave.programming import side_by_side

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
