"""The proven optimum: how many problems `LatticeSolver` proves within ten seconds, and what it takes.

The ten problems of the first iteration of a training on digits, one thread. Centred coordinates subtract from every
feature its mean and let the bias absorb it, which changes the bits and nothing else. Milliseconds are those of a single
problem; what problems of one curvature share (order, factor, diagonals) is the column shared, once for all ten.
"""

from benchmarks.timing import print_table

import argparse
import statistics
from collections.abc import Sequence
from typing import Any


from annealfit import AnnealedClassifier, Method, RandomConvFeatures, load_dataset
from annealfit.problems.problem import Problems
from annealfit.samplers import LatticeSolver, Samples, SimulatedAnnealer

HEADINGS = ["d", "K", "variables", "coordinates", "proven", "nodes", "most", "ms", "slowest", "shared ms", "worst gap"]


def digits_training(
    n_filters: int, bits: int, *, centred: bool, **settings: object
) -> tuple[AnnealedClassifier, Any, Any]:
    """A training on digits, and its features and labels."""
    data = load_dataset("digits", seed=42)
    X = RandomConvFeatures(n_filters=n_filters, random_state=42).fit_transform(data.X_train)
    coordinates = "centred" if centred else "raw"
    classifier = AnnealedClassifier(bits=bits, random_state=42, method=Method(coordinates=coordinates))
    return classifier.set_params(**settings), X, data.y_train


def first_problems(n_filters: int, bits: int, *, centred: bool, **settings: object) -> Problems:
    """The ten problems of the first iteration."""
    training, X, y = digits_training(n_filters, bits, centred=centred, **settings)
    return training.problems(X, y)


def late_problems(bits: int, *, centred: bool) -> Problems:
    """The ten problems after five iterations, where ranges and gains are small."""
    keeper = _Keeper()
    training, X, y = digits_training(2, bits, centred=centred, sampler=keeper, max_iter=6, tol=0.0)
    training.fit(X, y)
    return keeper.problems


class _Keeper(SimulatedAnnealer):
    """The native annealer, which keeps the problems it was handed last."""

    def solve(self, problems: Problems, seeds: Sequence[int]) -> list[Samples]:
        self.__dict__["problems"] = problems
        return super().solve(problems, seeds)


def row(problems: Problems, coordinates: str, time_limit: float) -> list[str]:
    solver = LatticeSolver(time_limit=time_limit, num_threads=1)
    infos = [solver.sample(problem).info for problem in problems]
    nodes = [info["nodes"] for info in infos]
    milliseconds = [1e3 * info["sampling_seconds"] for info in infos]
    return [
        str(problems.n_parameters - 1),
        str(problems.bits),
        str(problems[0].n_variables),
        coordinates,
        f"{sum(info['proven'] for info in infos)} of {len(infos)}",
        f"{statistics.median(nodes):,.0f}",
        f"{max(nodes):,}",
        f"{statistics.median(milliseconds):.2f}",
        f"{max(milliseconds):.1f}",
        f"{1e3 * min(info['preprocessing_seconds'] for info in infos):.1f}",
        f"{max(info['gap'] for info in infos):.1e}",
    ]


def run(*, quick: bool) -> None:
    LatticeSolver().prepare()
    time_limit = 2.0 if quick else 10.0
    frames = {"raw": False, "centred": True}
    sizes = {2: 5, 4: 5} if quick else {2: 5, 4: 5, 8: 4}
    rows = [
        row(first_problems(n_filters, bits, centred=centred), name, time_limit)
        for n_filters, most_bits in sizes.items()
        for name, centred in frames.items()
        for bits in range(1, most_bits + 1)
    ]
    print_table(f"Proven within {time_limit:.0f} s, default range; medians of ten problems", HEADINGS, rows)
    rows = [
        row(
            first_problems(2, bits, centred=centred, method__curvature="gram", method__update_range=0.5),
            name,
            time_limit,
        )
        for name, centred in frames.items()
        for bits in range(1, 4 if quick else 6)
    ]
    print_table("The same with the paper's curvature and range, δ = 0.5", HEADINGS, rows)
    rows = [
        row(late_problems(bits, centred=centred), name, time_limit)
        for name, centred in frames.items()
        for bits in range(1, 4)
    ]
    print_table("The same after five iterations", HEADINGS, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lattice", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the sizes that take longest")
    run(quick=parser.parse_args().quick)
