"""DenseAnnealingSampler against dwave-samplers on general dense models, at equal sweeps and temperatures."""

from benchmarks.timing import least_seconds, print_table

import dimod
import numpy as np
from dwave.samplers import SimulatedAnnealingSampler

from annealfit.samplers import DenseAnnealingSampler

SWEEPS = 100


def run(*, quick: bool) -> None:
    rows = []
    for size in (100, 500, 1000) if quick else (100, 500, 1000, 2000):
        couplings = np.triu(np.random.default_rng(size).normal(size=(size, size)), 1)
        bqm = dimod.BinaryQuadraticModel(couplings, "SPIN")
        beta_range = (0.1 / np.sqrt(size), 10 / np.sqrt(size))
        for reads in (16, 100):
            settings = {"num_reads": reads, "num_sweeps": SWEEPS, "beta_range": beta_range, "seed": 1}
            theirs_sampler, ours_sampler = SimulatedAnnealingSampler(), DenseAnnealingSampler()
            their_energy = theirs_sampler.sample(bqm, **settings).record.energy.mean()
            our_energy = ours_sampler.sample(bqm, **settings).record.energy.mean()
            theirs = least_seconds(lambda: theirs_sampler.sample(bqm, **settings), repeats=2, budget_seconds=5)  # noqa: B023
            one, two = (
                least_seconds(lambda: ours_sampler.sample(bqm, num_threads=n, **settings), repeats=5)  # noqa: B023
                for n in (1, 2)
            )
            rows.append(
                [
                    str(size), str(reads), f"{theirs * 1e3:.0f}", f"{one * 1e3:.1f}", f"{two * 1e3:.1f}",
                    f"{theirs / one:.1f}×", f"{theirs / two:.1f}×", f"{their_energy:.1f}", f"{our_energy:.1f}",
                ]
            )  # fmt: skip
    print_table(
        f"Dense spin glasses, {SWEEPS} sweeps: dwave-samplers (1 thread) against DenseAnnealingSampler, whole calls",
        ["n", "reads", "dwave ms", "1 thread ms", "2 threads ms", "ratio 1", "ratio 2", "dwave energy", "our energy"],
        rows,
    )
