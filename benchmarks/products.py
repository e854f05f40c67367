"""Few outputs of rows, by our compiled code and by NumPy's BLAS, and from a copy: `python -m benchmarks.products`.

Processor milliseconds of one thread, the least of many, both in turns.
"""

import time

from benchmarks.timing import print_table

import numpy as np

from annealfit.data.rows import TableChunk, products
from annealfit.data.rows.in_single import CopiedChunk

ROWS = 5000


def least_milliseconds(*functions, turns):
    """Of each function, taken in turns so that all meet the same machine."""
    least = [np.inf] * len(functions)
    for _ in range(turns):
        for position, function in enumerate(functions):
            began = time.thread_time()
            function()
            least[position] = min(least[position], time.thread_time() - began)
    return 1e3 * np.array(least)


def compared(n_features, n_outputs, dtype, turns):
    """A row of the table."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(ROWS, n_features)).astype(dtype)
    weights = generator.normal(size=(n_outputs, n_features)).astype(dtype)
    products.compile_for(features.dtype)
    ours, theirs = least_milliseconds(
        lambda: products.project(features, weights), lambda: weights @ features.T, turns=turns
    )
    name = f"{np.dtype(dtype).name}, d = {n_features}, {n_outputs} outputs"
    return [name, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}×"]


def from_a_copy(n_rows, n_features, turns, n_outputs=10):
    """A row of the table: a step and its gradient from rows in double precision, and from a copy in single."""
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(n_rows, n_features)), np.zeros(n_rows, dtype=np.intp)
    updates = generator.normal(size=(n_features + 1, n_outputs))
    values = generator.normal(size=(n_outputs, n_rows))
    copied, as_they_are = CopiedChunk(features, labels), TableChunk(features, labels)
    copied.step(updates)  # makes the copy
    quick, exact = least_milliseconds(
        *(lambda chunk=chunk: (chunk.step(updates), chunk.moments(values)) for chunk in (copied, as_they_are)),
        turns=turns,
    )
    return [f"{n_rows} rows, d = {n_features}", f"{quick:.2f}", f"{exact:.2f}", f"{quick / exact:.2f}×"]


def run(*, quick):
    sizes = (100, 512) if quick else (100, 128, 512, 2048)
    outputs = (10,) if quick else (3, 5, 10, 15)
    print_table(
        f"Outputs of {ROWS} rows, `WXᵀ`",
        ["rows", "ours ms", "BLAS ms", "ratio"],
        [
            compared(size, count, dtype, turns=10 if quick else 30)
            for dtype in (np.float64, np.float32)
            for size in sizes
            for count in outputs
        ],
    )
    shapes = [(2000, 128), (5000, 512)] if quick else [(1000, 128), (2000, 128), (5000, 128), (5000, 512), (5000, 2000)]
    print_table(
        "A step and a gradient of ten outputs",
        ["rows", "from a copy in single precision ms", "as they are ms", "ratio"],
        [from_a_copy(*shape, turns=10 if quick else 30) for shape in shapes],
    )


if __name__ == "__main__":
    run(quick=False)
