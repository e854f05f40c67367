"""Other people's samplers on the ten problems of a training iteration: time, and energy above the certificate."""

import importlib.util

from benchmarks.annealing import training_problems
from benchmarks.timing import least_seconds, print_table

import numpy as np
from dwave.samplers import SimulatedAnnealingSampler, SteepestDescentSampler, TabuSampler

from annealfit.problems.bounds import lower_bounds
from annealfit.samplers import DimodSampler, RoundedSampler, Sampler, SimulatedAnnealer
from annealfit.samplers.catalogue import make_sampler


def samplers(cold: float) -> dict[str, Sampler]:
    """Each with its usual settings; the annealers with 100 sweeps down to the same temperature."""
    found: dict[str, Sampler] = {
        "SimulatedAnnealer": SimulatedAnnealer(num_threads=1),
        "rounded (no annealing)": RoundedSampler(),
        "dwave simulated annealing": DimodSampler(
            SimulatedAnnealingSampler(), normalize=False, num_sweeps=100, beta_range=(cold / 1e4, cold)
        ),
        "dwave tabu (20 ms)": DimodSampler(TabuSampler(), timeout=20),
        "dwave steepest descent": DimodSampler(SteepestDescentSampler()),
    }
    if importlib.util.find_spec("openjij"):
        found["openjij SASampler"] = make_sampler("openjij", beta_min=cold / 1e4, beta_max=cold)
    return found


def run(*, quick: bool) -> None:
    for bits in (3, 20):
        problems = training_problems(18, bits)
        bounds = lower_bounds(problems)
        seeds = list(range(len(problems)))
        _, cold = SimulatedAnnealer().sample(problems[0]).info["beta_range"]
        rows = []
        for name, sampler in samplers(cold).items():
            seconds = least_seconds(lambda: sampler.solve(problems, seeds), repeats=3, budget_seconds=5)  # noqa: B023
            energies = np.array([answer.best_energy for answer in sampler.solve(problems, seeds)])
            rows.append([name, f"{seconds * 1e3:.2f}", f"{energies.sum():.5f}", f"{(energies - bounds).sum():.5f}"])
        print_table(
            f"Ten problems of digits, d = 18, K = {bits} (sum of lower bounds {bounds.sum():.5f})",
            ["sampler", "ms", "energy", "above the bound"],
            rows,
        )
    if not importlib.util.find_spec("openjij"):
        print("openjij is not installed; pip install openjij adds its row")
