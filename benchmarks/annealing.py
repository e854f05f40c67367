"""One training iteration's anneals against dwave-samplers on the same problems.

Ten classes, one read, β from 0.01 to 3, on problems from digits (d = 18) or from Gaussian features of the
same correlation (larger d). dwave-samplers is given each problem as a BQM made from one array, the fastest
way there is; making it counts, because the problem is new at every iteration.
"""

from benchmarks.timing import least_seconds, print_table

import numpy as np
from dwave.samplers import SimulatedAnnealingSampler

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import SimulatedAnnealer

BETA_RANGE = (0.01, 3.0)
CLASSES = 10


def training_problems(n_features: int, bits: int) -> list[QuadraticProblem]:
    """The ten problems of the first iteration of a training."""
    if n_features == 18:
        data = load_dataset("digits", seed=42)
        X, y = RandomConvFeatures(random_state=42).fit_transform(data.X_train), data.y_train
    else:
        generator = np.random.default_rng(0)
        X = generator.normal(size=(2000, n_features)) + generator.normal(size=(2000, 1))
        y = generator.integers(0, CLASSES, 2000)
    return AnnealedClassifier.from_paper(bits).set_params(random_state=42).problems(X, y)


def dwave_seconds(problems: list[QuadraticProblem], sweeps: int, repeats: int) -> float:
    sampler = SimulatedAnnealingSampler()

    def iteration() -> None:
        for problem in problems:
            sampler.sample(problem.to_bqm(), num_reads=1, num_sweeps=sweeps, beta_range=BETA_RANGE, seed=1)

    return least_seconds(iteration, repeats=repeats)


def native_seconds(problems: list[QuadraticProblem], sweeps: int, *, reads: int = 1, threads: int = 1) -> float:
    annealer = SimulatedAnnealer(sweeps, reads, BETA_RANGE, num_threads=threads)
    seeds = list(range(len(problems)))
    annealer.solve(problems, seeds)  # compiled, if it was not yet
    return least_seconds(lambda: annealer.solve(problems, seeds), repeats=200, budget_seconds=5)


def iteration_table(*, quick: bool) -> None:
    cases = [(18, 20, 100), (18, 10, 100), (18, 5, 100), (18, 20, 1000), (18, 10, 1000), (18, 5, 1000)]
    cases += [(128, 10, 100)] if quick else [(128, 10, 100), (512, 10, 100)]
    rows = []
    for n_features, bits, sweeps in cases:
        problems = training_problems(n_features, bits)
        ours = native_seconds(problems, sweeps)
        # At d = 512 one class takes dwave-samplers many seconds: one is measured and counted ten times.
        measured = problems[:1] if n_features >= 512 else problems
        theirs = dwave_seconds(measured, sweeps, repeats=5) * len(problems) / len(measured)
        flips = problems[0].n_variables * sweeps * CLASSES
        cells = (n_features, bits, sweeps, f"{theirs * 1e3:.1f}", f"{ours * 1e3:.3f}")
        rows.append([*map(str, cells), f"{ours / flips * 1e9:.2f}", f"{theirs / ours:.0f}×"])
    print_table(
        "One iteration, ten classes, one read, one thread: dwave-samplers ÷ SimulatedAnnealer",
        ["d", "K", "sweeps", "dwave ms", "ours ms", "ns per flip", "ratio"],
        rows,
    )


def threads_table() -> None:
    problems, sweeps, reads = training_problems(18, 20), 100, 16
    theirs = dwave_seconds(problems, sweeps, repeats=3) * reads
    rows = []
    for threads in (1, 2):
        ours = native_seconds(problems, sweeps, reads=reads, threads=threads)
        rows.append([str(threads), f"{theirs * 1e3:.0f}", f"{ours * 1e3:.2f}", f"{theirs / ours:.0f}×"])
    print_table(
        f"The same with {reads} reads (160 lanes), d = 18, K = 20, against {reads} times dwave-samplers' one-read time",
        ["threads", "dwave ms (1 thread)", "ours ms", "ratio"],
        rows,
    )


def growth_table() -> None:
    """Exponents fitted to the time of 1000 sweeps: in K at D = 19, in D at K = 10."""

    def exponent(sizes: list[int], seconds: list[float]) -> float:
        return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])

    bits = [5, 10, 20, 30]
    by_bits = [native_seconds(training_problems(18, k), 1000) for k in bits]
    features = [31, 63, 127, 255, 511]
    by_features = [native_seconds(training_problems(d, 10), 100) for d in features]
    rows = [
        ["K", str(bits), f"{exponent(bits, by_bits):.2f}", "2 (the paper)"],
        [
            "D",
            str([d + 1 for d in features]),
            f"{exponent([d + 1 for d in features], by_features):.2f}",
            "2 (the paper)",
        ],
    ]
    print_table("How time grows: time ~ size^exponent", ["size", "values", "ours", "dense annealer"], rows)


def run(*, quick: bool) -> None:
    iteration_table(quick=quick)
    threads_table()
    growth_table()


if __name__ == "__main__":
    run(quick=True)
