"""Readings of the paper's annealer that might explain its tables: why 5 and 10 bits train worse than 15 and 20.

`python -m benchmarks.precision_pattern [ITERATIONS]`: training accuracy on the published "MNIST" images (mean of two
seeds, 300 iterations by default) with 5, 10, 15 and 20 bits under each reading, and the mean distance to the paper's
four numbers. β is in units of the largest coefficient, as printed; "reads" keeps the best read.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.timing import print_table  # first: it sets one thread

import dimod
import numpy as np

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.problems.export import largest_coefficient
from annealfit.samplers import DenseAnnealingSampler, Sampler, Samples, SimulatedAnnealer

BITS = (5, 10, 15, 20)
PAPER = (37.2, 76.5, 83.7, 84.0)  # training accuracy, "MNIST"
SEEDS = (42, 43)
HOT, PRINTED = 0.01, 3.0


def annealer(*, beta: float = PRINTED, sweeps: int = 100, reads: int = 1, schedule: str = "geometric") -> Sampler:
    return SimulatedAnnealer(sweeps, reads, (HOT, beta), beta_schedule_type=schedule, normalize=True)


@dataclass(frozen=True)
class Thresholded(Sampler):
    """Anneals the dense QUBO without the coefficients below a share of the largest."""

    share: float
    beta: float = PRINTED

    def solve(self, problems, seeds):
        answers = []
        for problem, seed in zip(problems, seeds, strict=True):
            quadratic, _ = problem.to_qubo()
            largest = largest_coefficient(problem)
            quadratic[np.abs(quadratic) < self.share * largest] = 0.0
            bqm = dimod.BinaryQuadraticModel(quadratic / largest, "BINARY")
            found = DenseAnnealingSampler().sample(
                bqm, num_reads=1, num_sweeps=100, beta_range=(HOT, self.beta), seed=seed % 2**31
            )
            order = np.argsort(found.variables)
            answers.append(Samples.of(problem, found.record.sample[:, order]))
        return answers


READINGS: dict[str, Callable[[int], Sampler]] = {
    "as printed (literal)": lambda bits: annealer(),
    "final β 3·2^(K−3) (matched)": lambda bits: annealer(beta=PRINTED * 2.0 ** (bits - 3)),
    "final β K⁴/45 (fitted)": lambda bits: annealer(beta=bits**4 / 45),
    "linear schedule": lambda bits: annealer(schedule="linear"),
    "sweeps 100·K": lambda bits: annealer(sweeps=100 * bits),
    "linear schedule, sweeps 100·K": lambda bits: annealer(schedule="linear", sweeps=100 * bits),
    "reads K": lambda bits: annealer(reads=bits),
    "reads K²/5": lambda bits: annealer(reads=bits * bits // 5),
    "linear schedule, reads K": lambda bits: annealer(schedule="linear", reads=bits),
    "sweeps 20·K, reads K": lambda bits: annealer(sweeps=20 * bits, reads=bits),
    "final β 3·K": lambda bits: annealer(beta=PRINTED * bits),
    "final β 3·K²": lambda bits: annealer(beta=PRINTED * bits**2),
    **{
        f"coefficients below {share:g} dropped": lambda bits, share=share: Thresholded(share)
        for share in (1e-3, 1e-2, 0.1)
    },
    "matched, below 0.01 dropped": lambda bits: Thresholded(1e-2, PRINTED * 2.0 ** (bits - 3)),
}


def train_accuracy(reading: Callable[[int], Sampler], bits: int, iterations: int, seed: int) -> float:
    data = load_dataset("mnist", seed=seed, images="published")
    features = RandomConvFeatures(filters="published").fit_transform(data.X_train)
    clf = AnnealedClassifier.from_paper(bits=bits, preset="literal")
    clf.set_params(sampler=reading(bits), max_iter=iterations, random_state=seed)
    return 100 * clf.fit(features, data.y_train).score(features, data.y_train)


def run(iterations: int) -> None:
    rows = [["the paper", *map(str, PAPER), ""]]
    for name, reading in READINGS.items():
        accuracy = partial(train_accuracy, reading)
        found = [np.mean([accuracy(bits, iterations, seed) for seed in SEEDS]) for bits in BITS]
        distance = np.abs(np.subtract(found, PAPER)).mean()
        rows.append([name, *(f"{value:.1f}" for value in found), f"{distance:.1f}"])
        print(f"{name}: {' '.join(rows[-1][1:])}", file=sys.stderr)
    title = f'Training accuracy in %, published "MNIST", {iterations} iterations, by bits'
    print_table(title, ["reading", *map(str, BITS), "distance"], rows)


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
