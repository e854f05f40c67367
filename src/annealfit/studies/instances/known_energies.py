"""The lowest energies known: kept with the bits that have them, so that nobody needs to take them on trust."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from annealfit._support.description import without_neutral
from annealfit._support.errors import InvalidInputError
from annealfit.problems.importing import digest
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import LatticeSolver, LevelAnnealer, Sampler, SimulatedAnnealer
from annealfit.studies.instances.catalogue import SEED, Instance

RECORD_FILE = Path(__file__).with_name("best_known.json")
MOST_PROVABLE = 200  # parameters beyond which a proof is out of reach, and even preparing the search takes minutes


@dataclass(frozen=True)
class BestKnown:
    """The lowest energy known of an instance, the bits that have it, and who found them."""

    energy: float
    proven: bool  # no bits have a lower one; else it is the best of many tries
    found_by: dict[str, Any]  # the sampler and its settings
    bits: str  # of 0 and 1, variable 0 first
    sha256: str  # of the coefficients it was found for
    couplings: int


def best_known(instance: Instance) -> BestKnown:
    """What is on record for an instance."""
    try:
        return BestKnown(**_record()[instance.name])
    except KeyError as error:
        raise InvalidInputError(f"{instance.name} has no best known energy; find one: tools/best_known.py") from error


def best_known_for(instance: Instance, problem: QuadraticProblem, found_digest: str) -> BestKnown:
    """What is on record, for the problem as it was made here.

    If its coefficients are not those on record, the recorded bits are still an answer, but a proof is no longer one.
    """
    known = best_known(instance)
    if found_digest == known.sha256:
        return known
    energy = problem.energy(parse_bits(known.bits))
    return replace(known, energy=energy, proven=False, sha256=found_digest, couplings=problem.n_couplings)


def find_best(problem: QuadraticProblem, *, seconds: float = 20.0) -> BestKnown:
    """Search for the lowest energy: by proof if that is done within so many seconds, else by many anneals."""
    found: BestKnown | None = None
    for sampler in _searches(problem, seconds):
        samples = sampler.sample(problem, seed=SEED)
        bits = samples.bits[int(np.argmin(samples.energies))].ravel()
        energy = float(problem.energy(bits))
        proven = bool(samples.info.get("proven", False))
        if found is None or proven or energy < found.energy - 1e-12 * abs(found.energy):
            found_by = {**without_neutral(sampler.describe()), "seed": SEED}
            found_by = {name: value for name, value in found_by.items() if value is not None}
            text = "".join(map(str, bits.tolist()))
            found = BestKnown(energy, proven, found_by, text, digest(problem.to_qubo()), problem.n_couplings)
        if proven:
            break
    assert found is not None
    return found


def parse_bits(text: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bits from a text of 0 and 1.

    >>> parse_bits("0110").tolist()
    [0, 1, 1, 0]
    """
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8) - ord("0")


def _searches(problem: QuadraticProblem, seconds: float) -> Iterator[Sampler]:
    if problem.n_parameters > MOST_PROVABLE:
        yield LevelAnnealer(num_reads=100, num_sweeps=500)
        yield SimulatedAnnealer(num_reads=100, num_sweeps=2000)
        return
    yield LatticeSolver(time_limit=seconds)
    yield LevelAnnealer(num_reads=1000, num_sweeps=500)
    yield LevelAnnealer(num_reads=1000, num_sweeps=500, start="random")
    yield SimulatedAnnealer(num_reads=1000, num_sweeps=1000)


@cache
def _record() -> dict[str, dict[str, Any]]:
    record: dict[str, dict[str, Any]] = json.loads(RECORD_FILE.read_text(encoding="utf-8"))
    return record
