"""What a sampler answers: the reads of one problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.errors import InvalidInputError, SamplerError
from annealfit.problem import QuadraticProblem
from annealfit.samplers.protocol.costs import Receipt


class SolveInfo(TypedDict, total=False):
    """What the samplers of this package say about a solve, each what it knows; seconds are those of the whole solve.

    Samplers of other people may say more: an `info` is any mapping from names to values.
    """

    preprocessing_seconds: float
    sampling_seconds: float
    postprocessing_seconds: float
    # annealers
    num_sweeps: int  # done, which is fewer than asked where the anneal ended early
    beta_range: tuple[float, float]  # inverse temperatures of the first and the last sweep, in units of energy
    beta_schedule_type: str
    # a search for the proven optimum
    proven: bool  # whether no bits have a lower energy than the answer
    gap: float  # by how much the answer can be above the optimum at most; 0 if it is proven
    lower_bound: float
    nodes: int  # how many times the search set a parameter to a level
    # what the coefficients were divided by before they went to a dimod sampler or a device
    coefficient_scale: float
    # a device
    chain_strength: float  # in the device's units
    raw_energy: float  # the best read's before polishing
    receipt: Receipt  # what the calls cost, shared by the problems of one solve
    # a problem that was solved in blocks: the answers of its blocks, in turn
    blocks: tuple[Samples, ...]


@dataclass(frozen=True, eq=False)
class Samples:
    """The reads of one problem, with energies computed by us and never taken on trust.

    A sampler that could not solve a problem, and whose next try might, answers with `Samples.failed`.
    """

    bits: NDArray[np.uint8]  # (reads, D, K)
    energies: NDArray[np.float64]  # (reads,)
    info: Mapping[str, Any] = field(default_factory=dict)  # see `SolveInfo`
    failure: str | None = None  # why there are no reads

    @classmethod
    def of(cls, problem: QuadraticProblem, bits: ArrayLike, info: Mapping[str, Any] | None = None) -> Samples:
        """Check the bits of shape (reads, D, K) or (reads, D·K) and compute their energies."""
        try:
            given = np.asarray(bits)
            if given.ndim == 2:  # flat; said here, because with one parameter the shapes look alike
                given = given.reshape(len(given), problem.n_parameters, problem.encoding.bits)
            checked = problem.as_bits(given)
        except (InvalidInputError, TypeError, ValueError) as error:
            raise SamplerError(f"the sampler returned something that is not bits: {error}") from error
        if checked.ndim != 3 or len(checked) == 0:
            raise SamplerError(
                f"the sampler returned {'no reads' if checked.ndim == 3 else f'an array of shape {checked.shape}'}; "
                f"expected (reads, {problem.n_parameters}, {problem.encoding.bits}) with at least one read"
            )
        return cls(checked, problem.energy(checked), info or {})

    @classmethod
    def failed(cls, problem: QuadraticProblem, reason: str, info: Mapping[str, Any] | None = None) -> Samples:
        """No reads, and why: a lost connection, say. Training keeps the problem's weights and goes on."""
        none = np.empty((0, problem.n_parameters, problem.encoding.bits), dtype=np.uint8)
        return cls(none, np.empty(0), info or {}, reason)

    @property
    def best_bits(self) -> NDArray[np.uint8]:
        """The bits of lowest energy, shape (D, K)."""
        return self.bits[self._best]

    @property
    def best_energy(self) -> float:
        """The lowest energy."""
        return float(self.energies[self._best])

    @property
    def _best(self) -> int:
        if self.failure is not None:
            raise SamplerError(f"the problem was not solved: {self.failure}")
        return int(self.energies.argmin()) if len(self.energies) > 1 else 0
