"""Layers like those of a network, and answers by brute force: what the tests of quantisation share."""

from __future__ import annotations

import itertools

import numpy as np

from annealfit.quantization import Grid


def random_layer(seed: int, n_inputs: int, n_outputs: int, n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n_inputs, n_outputs) and inputs that are correlated and above 0, as after a ReLU."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=(n_inputs, n_inputs)) + 0.5
    inputs = np.maximum(generator.normal(size=(n_rows, n_inputs)) @ mixing + 0.5, 0)
    return generator.normal(size=(n_inputs, n_outputs)), inputs


def output_error(weights: np.ndarray, quantized: np.ndarray, inputs: np.ndarray) -> float:
    """‖X(W − Q)‖² / ‖XW‖², as plainly as it can be written."""
    return float(((inputs @ (weights - quantized)) ** 2).sum() / ((inputs @ weights) ** 2).sum())


def all_levels(grid: Grid, n_inputs: int) -> np.ndarray:
    """Every choice of levels there is, (count^D, D)."""
    return np.array(list(itertools.product(grid.levels, repeat=n_inputs)), dtype=float)


def least_errors(weights: np.ndarray, inputs: np.ndarray, grid: Grid, scales: np.ndarray | None = None) -> np.ndarray:
    """The least squared error of each output over all levels, with given scales or with the best one of all."""
    choices = all_levels(grid, len(weights))
    outputs = inputs @ choices.T  # (N, choices)
    least = []
    for output, column in enumerate(weights.T):
        wanted = inputs @ column
        if scales is None:
            squares = (outputs**2).sum(axis=0)
            best = np.divide(wanted @ outputs, squares, out=np.zeros(len(choices)), where=squares > 0)
            best = np.maximum(best, 0)
        else:
            best = np.full(len(choices), scales[output])
        least.append((((wanted[:, None] - best * outputs) ** 2).sum(axis=0)).min())
    return np.array(least)
