"""Answers scored: energies computed anew, against the best known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import check_number
from annealfit.problems.importing import digest
from annealfit.studies.instances.answers import WITHIN, Answers
from annealfit.studies.instances.catalogue import Instance
from annealfit.studies.instances.generating import make_problem
from annealfit.studies.instances.known_energies import BestKnown, best_known_for


@dataclass(frozen=True, eq=False)
class Score:
    """How the reads for one instance did."""

    instance: Instance
    energies: NDArray[np.float64]  # (reads,), computed from the bits
    known: BestKnown
    within: float
    best_bits: str

    @property
    def best_energy(self) -> float:
        """The lowest of the reads."""
        return float(self.energies.min())

    @property
    def residual(self) -> float:
        """How far the lowest energy is above the best known, as a share of the latter; below 0 it is a new best."""
        return (self.best_energy - self.known.energy) / self._scale

    @property
    def success(self) -> float:
        """The share of reads that reached the best known energy."""
        return float((self.energies <= self.known.energy + self.within * self._scale).mean())

    @property
    def verdict(self) -> str:
        """In words: where the best read stands."""
        if self.residual > self.within:
            return "above"
        if self.residual < -self.within:
            return "below a proven optimum: please report it" if self.known.proven else "new best"
        return "optimal" if self.known.proven else "best known"

    @property
    def _scale(self) -> float:
        return abs(self.known.energy) or 1.0


def score_answers(answers: Answers, *, within: float = WITHIN) -> Score:
    """Compute the energies of all reads, and compare.

    A read counts as a success if its energy is within this share of the best known energy.
    """
    check_number("within", within, minimum=0)
    problem = make_problem(answers.instance)
    known = best_known_for(answers.instance, problem, digest(problem.to_qubo()))
    energies = problem.energy(answers.bits)
    bits = answers.bits[int(np.argmin(energies))]
    return Score(answers.instance, energies, known, within, "".join(map(str, bits.tolist())))
