"""The lowest energies of the catalogue's instances, searched for and put on record where they are better or new.

python tools/best_known.py [--again] ["PATTERN" …]

Without --again only those that are not on record yet, with the coefficients they have now. First a proof is tried, then
searches from several seeds: anneals, then rounds of short anneals from the best state, in which pairs of parameters
move too. Both depend on seeds and on counts alone, so that they find the same again on any machine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from annealfit._support.files import write_json
from annealfit.problems.curvature import Curvature
from annealfit.problems.importing import digest
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import LatticeSolver, LevelAnnealer
from annealfit.samplers.native.levels import COLD, LevelChains, soft_partners
from annealfit.studies.instances import RECORD_FILE, SEED, WITHIN, BestKnown, make_problem, select_instances

PROOF_WORK = 3e11  # multiplications of a proof: some minutes
SEEDS = (SEED, SEED + 1, SEED + 2)
SEARCH = {"type": "reheated chains", "reads": 16, "sweeps": 500, "rounds": 40, "sweeps_per_round": 50, "partners": 8}
REHEATED_TO = (4.0, 8.0, 16.0)  # β of the hot end, in the unit in which `LevelAnnealer` begins at 1 and ends at `COLD`


def find_best(problem: QuadraticProblem) -> BestKnown:
    """Return the lowest energy: proven, if that takes minutes, else the best found and how many searches reach it."""
    nodes = int(PROOF_WORK / problem.n_parameters**2)
    proof = LatticeSolver(time_limit=None, max_nodes=nodes).sample(problem, seed=SEED)
    tried = _record(problem, proof.best_bits, {"type": "LatticeSolver", "nodes": nodes}, proven=proof.info["proven"])
    if tried.proven:
        return replace(tried, found_by={"type": "LatticeSolver"})
    found = [_record(problem, _search(problem, seed), {**SEARCH, "seed": seed}, proven=False) for seed in SEEDS]
    best = min([*found, tried], key=lambda one: one.energy)
    reached = sum(one.energy <= best.energy + WITHIN * abs(best.energy) for one in found)
    return replace(best, searches=len(found), reached=reached)


def _search(problem: QuadraticProblem, seed: int) -> NDArray[np.uint8]:
    """Return the best bits (D, K) of one search."""
    annealer = LevelAnnealer(num_reads=SEARCH["reads"], num_sweeps=SEARCH["sweeps"])
    samples = annealer.sample(problem, seed=seed)
    weights, top = 1 << np.arange(problem.encoding.bits), (1 << problem.encoding.bits) - 1
    best, lowest = (samples.best_bits @ weights).astype(np.int64), samples.best_energy
    curvature, lanes = Curvature(np.asarray(problem.curvature)), SEARCH["reads"]
    partners = soft_partners(curvature, SEARCH["partners"])
    spacing = 2 * problem.encoding.range / top
    unit = 1 / (curvature.typical_stiffness * spacing**2)
    hot, cold = np.resize(REHEATED_TO, lanes) * unit, COLD * unit
    betas = hot * (cold / hot) ** np.linspace(0, 1, SEARCH["sweeps_per_round"])[:, None]
    generator = np.random.default_rng(seed)
    for _ in range(SEARCH["rounds"]):
        chains = LevelChains(
            curvature,
            np.tile(problem.gradient, (lanes, 1)),
            np.full((lanes, len(best)), spacing),
            -0.5 * top,
            top,
            np.tile(best, (lanes, 1)),
            generator.integers(0, 2**63, lanes).astype(np.uint64),
            partners,
        )
        chains.anneal(betas)
        chains.polish()
        energies = chains.energies()
        if energies.min() < lowest:
            best, lowest = chains.levels[energies.argmin()].copy(), energies.min()
    return ((best[:, None] >> np.arange(problem.encoding.bits)) & 1).astype(np.uint8)


def _record(
    problem: QuadraticProblem, bits: NDArray[np.uint8], found_by: dict[str, object], *, proven: bool
) -> BestKnown:
    flat, sha256 = bits.ravel(), digest(problem.to_qubo())
    text, date = "".join(map(str, flat.tolist())), f"{datetime.now(UTC):%Y-%m-%d}"
    return BestKnown(float(problem.energy(flat)), proven, found_by, text, sha256, problem.n_couplings, date)


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
        if same and found.proven and before.energy < found.energy:  # by rounding
            found = replace(found, energy=before.energy, bits=before.bits)
        # What is found again, to rounding, replaces the record: it is known to reproduce then.
        if not same or found.proven or found.energy <= before.energy + 1e-12 * abs(before.energy):
            record[instance.name] = asdict(found)
            write_json(RECORD_FILE, record)
        change = (found.energy - before.energy) / abs(before.energy) if same else 0.0
        print(f"{instance.name}: {found.energy!r}, {change:+.2g} of the record's; {found.strength}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
