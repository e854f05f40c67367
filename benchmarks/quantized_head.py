"""Low-bit heads: levels along the loss beside straight-through training: `python -m benchmarks.quantized_head`.

A head on frozen random features (standardised), λ = 0.001, from scikit-learn's optimum. Straight-through training
(Bengio et al. 2013) is Adam on real weights whose rounded values make the loss, scales learned as well (Esser et al.
2020), 1,500 steps over all rows at the best of three rates; the best rounded weights on the way count, and their scales
and biases are fitted to the loss at the end, as ours are. Losses are those of the training rows, penalty included.
"""

from benchmarks.timing import print_table

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from annealfit import RandomConvFeatures, load_dataset
from annealfit.training.objectives import LinearHead
from annealfit.quantization import Grid, LowBitHead, Refinement, quantize_layer
from annealfit.quantization.refinement import _fit_scales

Found = tuple[str, str, np.ndarray, float]  # levels, method, weights (D + 1, C), processor seconds

PENALTY = 1e-3
STRAIGHT_THROUGH = "straight through"
RATES = (3e-3, 1e-2, 3e-2)
GRIDS = {"1 bit": (1, "symmetric"), "ternary": (2, "ternary"), "2 bits": (2, "symmetric")}


def features_of(name: str, seed: int) -> tuple[Any, ...]:
    settings = {"digits": {"size": 8}, "mnist": {"n_train": 3000, "n_test": 5000, "size": 14}}[name]
    data = load_dataset(name, seed=seed, **settings)
    n_filters = {"digits": 8, "mnist": 4}[name]
    features = RandomConvFeatures(n_filters=n_filters, random_state=seed, standardize="features").fit(data.X_train)
    X, X_test = features.transform(data.X_train), features.transform(data.X_test)
    return X, np.asarray(data.y_train), X_test, np.asarray(data.y_test)


def straight_through(head: LinearHead, start: np.ndarray, grid: Grid, rate: float, steps: int) -> LowBitHead:
    """Adam on real weights (D, C) and on the logarithms of scales, the gradient of rounding taken as 1."""
    weights, biases = start[:-1].copy(), start[-1].copy()
    logarithms = np.log(grid.scales_of(weights.T, np.array([0]))[:, 0])
    parameters = [weights, biases, logarithms]
    means = [(np.zeros_like(own), np.zeros_like(own)) for own in parameters]
    best, least = None, np.inf
    for step in range(1, steps + 1):
        scales = np.exp(logarithms)
        units = weights / scales
        found = LowBitHead(grid.nearest(units), scales, biases.copy(), grid)
        point = head.at(found.weights)
        if point.loss < least:
            best, least = found, point.loss
        slopes = point.gradients.T
        inside = np.abs(units) <= grid.reach + grid.step / 2
        of_scales = (slopes[:-1] * np.where(inside, found.levels - units, found.levels)).sum(axis=0)
        gradients = [
            slopes[:-1] * (inside if grid.count > 2 else 1.0),
            slopes[-1],
            of_scales * scales / np.sqrt(len(weights) * grid.reach),
        ]
        now = rate * (1 - step / steps)
        for own, (mean, square), gradient in zip(parameters, means, gradients, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            own -= now * mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    assert best is not None
    return _fit_scales(head, best)[0]


def study(name: str, seeds: int, steps: int) -> dict[tuple[str, str], np.ndarray]:
    """Loss, test accuracy in % and processor seconds (seeds, 3) of every kind of levels and method."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(seeds):
        X, y, X_test, y_test = features_of(name, seed)
        head = LinearHead.of_arrays(X, y, 10, PENALTY)
        optimum = LogisticRegression(C=1 / (PENALTY * len(X)), max_iter=3000).fit(X, y)
        start = np.vstack([optimum.coef_.T, optimum.intercept_])
        for levels, method, weights, seconds in heads(head, X, start, seed, steps):
            right = (X_test @ weights[:-1] + weights[-1]).argmax(axis=1) == y_test
            own = [head.at(weights).loss, 100 * float(right.mean()), seconds]
            found.setdefault((levels, method), []).append(own)
            print(f"# {name}, seed {seed}:", levels, method, np.round(own, 4).tolist(), flush=True)
    return {key: np.array(rows) for key, rows in found.items()}


def heads(head: LinearHead, X: np.ndarray, start: np.ndarray, seed: int, steps: int) -> Iterator[Found]:
    """The head as it was, and by every method at every kind of levels."""
    yield "32 bits", "optimum", start, 0.0
    for levels, (bits, kind) in GRIDS.items():
        for method in ("gptq", "annealed"):
            began = time.process_time()
            layer = quantize_layer(start[:-1], X, bits=bits, levels=kind, bias=start[-1], method=method)
            yield levels, f"rounded: {method}", np.vstack([layer.weights, layer.bias]), time.process_time() - began
        grid = layer.grid
        rounded = LowBitHead((layer.levels.astype(np.int64) - grid.lowest) // grid.step, layer.scales, layer.bias, grid)
        for scope in ("per_class", "joint"):
            began = time.process_time()
            refined, _ = Refinement(scope).refine(head, rounded, seed)
            yield levels, f"along the loss, {scope}", refined.weights, time.process_time() - began
        began = time.process_time()
        tried = [straight_through(head, start, grid, rate, steps) for rate in RATES]
        seconds = (time.process_time() - began) / len(RATES)
        best = min(tried, key=lambda one: head.at(one.weights).loss)
        yield levels, STRAIGHT_THROUGH, best.weights, seconds
        began = time.process_time()
        both, _ = Refinement("joint").refine(head, best, seed)
        yield levels, "straight through, then joint", both.weights, seconds + time.process_time() - began


def run(*, quick: bool, names: Sequence[str] = ("digits", "mnist"), seeds: int = 3) -> None:
    seeds, steps = (1, 300) if quick else (seeds, 1500)
    headings = [
        "levels",
        "method",
        "loss",
        "test accuracy, %",
        "CPU seconds",
        "loss / straight through",
        "points above",
    ]
    for name in names[:1] if quick else names:
        found = study(name, seeds, steps)
        print_table(
            f"Low-bit heads on {name}: mean ± standard deviation of {seeds} seeds",
            headings,
            [_row(key, rows, found.get((key[0], STRAIGHT_THROUGH))) for key, rows in found.items()],
        )


def _row(key: tuple[str, str], rows: np.ndarray, opponents: np.ndarray | None) -> list[str]:
    """The last two cells are of differences seed by seed, which have less spread than the means."""
    loss, accuracy, seconds = rows.T
    cells = [*key, _spread(loss, 4), _spread(accuracy, 2), f"{seconds.mean():.1f}"]
    if opponents is None:
        return [*cells, "", ""]
    return [*cells, _spread(loss / opponents[:, 0], 3), _spread(accuracy - opponents[:, 1], 2)]


def _spread(values: np.ndarray, digits: int) -> str:
    return f"{values.mean():.{digits}f} ± {values.std(ddof=min(1, len(values) - 1)):.{digits}f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized_head", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], "digits", "mnist"], help="data sets; both without")
    parser.add_argument("--quick", action="store_true", help="one seed of digits, few steps")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    run(quick=given.quick, names=given.names or ("digits", "mnist"), seeds=given.seeds)
