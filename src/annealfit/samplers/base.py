"""What a sampler is: problems in, bits out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit.errors import InvalidInputError, SamplerError
from annealfit.problem import QuadraticProblem
from annealfit.samplers.preflight import Preflight


@dataclass(frozen=True, eq=False)
class Samples:
    """The reads of one problem, with energies computed by us and never taken on trust.

    A sampler that could not solve a problem, and whose next try might, answers with `Samples.failed`.
    """

    bits: NDArray[np.uint8]  # (reads, D, K)
    energies: NDArray[np.float64]  # (reads,)
    info: Mapping[str, Any] = field(default_factory=dict)  # timing, effective schedule
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


class Sampler(ABC):
    """A sampler is an immutable value with one method to implement: `solve`.

    >>> from annealfit.encoding import Encoding
    >>> class AllOnes(Sampler):
    ...     def solve(self, problems, seeds):
    ...         return [Samples.of(p, np.ones((1, p.n_variables))) for p in problems]
    >>> problem = QuadraticProblem([[1.0]], [-1.0], Encoding(bits=2, range=1.0))
    >>> AllOnes().sample(problem).best_energy
    -1.0
    """

    @abstractmethod
    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Sample every problem with its own seed; the answer must not depend on the other problems."""

    def sample(self, problem: QuadraticProblem, *, seed: int = 0) -> Samples:
        """Sample one problem."""
        return self.solve([problem], [seed])[0]

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """What the sampler adds to the history's row of an iteration that got these answers: always the same columns.

        Most samplers add nothing; one that is paid for by use says what it cost.
        """
        return {}

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        """What solving these problems would cost; None for a sampler that costs nothing but this computer's time."""
        return None

    def close(self) -> None:  # noqa: B027 (most samplers hold nothing)
        """Let go of what the sampler holds: a connection, say. Leaving a `with` block does it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # no address: a checkpoint compares samplers by their repr

    def __sklearn_clone__(self) -> Sampler:
        return self  # immutable, and possibly holding a connection that cannot be copied
