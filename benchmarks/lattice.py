"""The proven optimum: how many problems `LatticeSolver` proves within ten seconds, and what it takes.

The ten problems of the first iteration of a training on digits, one thread. Centred coordinates subtract from every
feature its mean and let the bias absorb it, which changes the bits and nothing else. Milliseconds are those of a single
problem; what problems of one curvature share (order, factor, diagonals) is the column shared, once for all ten.
"""

from benchmarks.timing import print_table

import argparse
import statistics

import numpy as np

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.coordinates import LinearCoordinates
from annealfit.problems import Problems
from annealfit.samplers import LatticeSolver

HEADINGS = ["d", "K", "variables", "coordinates", "proven", "nodes", "most", "ms", "slowest", "shared ms", "worst gap"]


def digits_problems(n_filters: int, bits: int, *, centred: bool, update_range: float | None = None) -> Problems:
    """The ten problems of the first iteration; the default range unless another is given."""
    data = load_dataset("digits", seed=42)
    X = RandomConvFeatures(n_filters=n_filters, random_state=42).fit_transform(data.X_train)
    settings = {} if update_range is None else {"update_range": update_range}
    if centred:
        matrix = np.eye(X.shape[1] + 1)
        matrix[-1, :-1] = -X.mean(axis=0)
        settings["coordinates"] = LinearCoordinates(matrix)
    return AnnealedClassifier(bits=bits, random_state=42, **settings).problems(X, data.y_train)


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
        row(digits_problems(n_filters, bits, centred=centred), name, time_limit)
        for n_filters, most_bits in sizes.items()
        for name, centred in frames.items()
        for bits in range(1, most_bits + 1)
    ]
    print_table(f"Proven within {time_limit:.0f} s, default range; medians of ten problems", HEADINGS, rows)
    rows = [
        row(digits_problems(2, bits, centred=centred, update_range=0.5), name, time_limit)
        for name, centred in frames.items()
        for bits in range(1, 4 if quick else 6)
    ]
    print_table("The same with the paper's range, δ = 0.5", HEADINGS, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lattice", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the sizes that take longest")
    run(quick=parser.parse_args().quick)
