"""The lowest energies of the catalogue's instances, searched for and put on record where they are better or new.

python tools/best_known.py [--again] ["PATTERN" …]

Without --again only those that are not on record yet, with the coefficients they have now.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from annealfit._support.description import without_neutral
from annealfit._support.files import write_json
from annealfit.problems.importing import digest
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import LatticeSolver, LevelAnnealer, Sampler, SimulatedAnnealer
from annealfit.studies.instances import RECORD_FILE, SEED, BestKnown, make_problem, select_instances

MOST_PROVABLE = 200  # parameters beyond which a proof is out of reach, and even preparing the search takes minutes


def find_best(problem: QuadraticProblem, *, seconds: float = 20.0) -> BestKnown:
    """Search for the lowest energy: by proof if that takes at most so many seconds, else by many anneals."""
    found: BestKnown | None = None
    for sampler in _searches(problem, seconds):
        samples = sampler.sample(problem, seed=SEED)
        bits = samples.bits[int(np.argmin(samples.energies))].ravel()
        energy = float(problem.energy(bits))
        proven = bool(samples.info.get("proven", False))
        if found is None or proven or energy < found.energy - 1e-12 * abs(found.energy):
            described = {**without_neutral(sampler.describe()), "seed": SEED}
            found_by = {name: value for name, value in described.items() if value is not None}
            text = "".join(map(str, bits.tolist()))
            found = BestKnown(energy, proven, found_by, text, digest(problem.to_qubo()), problem.n_couplings)
        if proven:
            break
    assert found is not None
    return found


def _searches(problem: QuadraticProblem, seconds: float) -> Iterator[Sampler]:
    if problem.n_parameters > MOST_PROVABLE:
        yield LevelAnnealer(num_reads=100, num_sweeps=500)
        yield SimulatedAnnealer(num_reads=100, num_sweeps=2000)
        return
    yield LatticeSolver(time_limit=seconds)
    yield LevelAnnealer(num_reads=1000, num_sweeps=500)
    yield LevelAnnealer(num_reads=1000, num_sweeps=500, start="random")
    yield SimulatedAnnealer(num_reads=1000, num_sweeps=1000)


def main(arguments: list[str]) -> None:
    """Search for each instance in turn; the record is written after each."""
    again, patterns = "--again" in arguments, [word for word in arguments if word != "--again"]
    record = json.loads(RECORD_FILE.read_text(encoding="utf-8")) if RECORD_FILE.exists() else {}
    for instance in select_instances(patterns):
        problem = make_problem(instance)
        before = BestKnown(**record[instance.name]) if instance.name in record else None
        if before and before.sha256 == digest(problem.to_qubo()) and (before.proven or not again):
            continue
        found = find_best(problem)
        same = before is not None and before.sha256 == found.sha256
        if not same or found.proven or (before is not None and found.energy < before.energy):
            record[instance.name] = asdict(found)
            write_json(RECORD_FILE, record)
        print(f"{instance.name}: {found.energy!r}{', proven' if found.proven else ''} ({found.found_by['type']})")


if __name__ == "__main__":
    main(sys.argv[1:])
