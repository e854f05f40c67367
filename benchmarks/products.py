"""Products with rows in single and double precision: `python -m benchmarks.products`.

Milliseconds of one thread, the least of many, alternating. "single" is what `Method(arithmetic="auto")` computes from
100 features on: outputs from a centred copy in single precision, sums in double precision. "double" is NumPy's BLAS.
"""

import time

from benchmarks.timing import print_table

import numpy as np

from annealfit.data.rows import InMemoryRows


def least_milliseconds(*functions, rounds):
    """The least time of each function, taken alternately so that all meet the same machine."""
    least = [np.inf] * len(functions)
    for _ in range(rounds):
        for position, function in enumerate(functions):
            began = time.thread_time()
            function()
            least[position] = min(least[position], time.thread_time() - began)
    return 1e3 * np.array(least)


def compared(n_rows, n_features, n_outputs, rounds):
    """A row of the table: outputs and a gradient, in single and in double precision."""
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(n_rows, n_features)), np.zeros(n_rows, dtype=np.intp)
    weights = generator.normal(size=(n_features + 1, n_outputs))
    kinds = [InMemoryRows(features, labels, 2, arithmetic=arithmetic) for arithmetic in ("auto", "double")]

    def product(rows):
        return lambda: [chunk.moments(chunk.project(weights)) for chunk in rows.chunks()]

    single, double = least_milliseconds(*map(product, kinds), rounds=rounds)
    name = f"{n_rows} rows, d = {n_features}, {n_outputs} outputs"
    return [name, f"{single:.2f}", f"{double:.2f}", f"{single / double:.2f}×"]


def run(*, quick):
    shapes = [(2000, 128), (5000, 512)] if quick else [(1000, 128), (5000, 128), (5000, 512), (5000, 2000)]
    outputs = (10,) if quick else (1, 3, 10, 100)
    print_table(
        "Outputs and a gradient of rows, `WᵀXᵀ` and `VX`",
        ["rows", "single ms", "double ms", "ratio"],
        [compared(*shape, count, rounds=10 if quick else 30) for shape in shapes for count in outputs],
    )


if __name__ == "__main__":
    run(quick=False)
