"""Rows of a layer on a simulated quantum annealer: `python -m benchmarks.quantized_rows`.

One bit per weight, normal weights that read features of digits (correlated, all above 0), one row per call to a mock
of the ideal Pegasus P16 with published noise. Errors are relative squared errors of the outputs.
"""

from benchmarks.timing import print_table

import argparse

import numpy as np

from annealfit import RandomConvFeatures, load_dataset
from annealfit.quantization import Sampled, quantize_layer
from annealfit.samplers import MockQPU, QPUSampler

FEATURES_OF_A_FILTER = 9
OUTPUTS, READS = 4, 100


def layer_on_digits(inputs: int, seed: int = 42) -> tuple[np.ndarray, np.ndarray]:
    """Weights (inputs, outputs) and what they read, features that are not constant."""
    data = load_dataset("digits", seed=seed)
    filters = RandomConvFeatures(n_filters=-(-2 * inputs // FEATURES_OF_A_FILTER), random_state=seed)
    features = filters.fit_transform(data.X_train)
    live = np.flatnonzero(features.std(axis=0) > 0)[:inputs]
    return np.random.default_rng(seed).normal(size=(inputs, OUTPUTS)), features[:, live]


def run(*, quick: bool) -> None:
    rows = []
    for inputs in (60,) if quick else (60, 120, 180):
        weights, seen = layer_on_digits(inputs)
        with QPUSampler(MockQPU("P16", seed=1), num_reads=READS) as device:
            plain, settled, annealed = (
                quantize_layer(weights, seen, bits=1, method=method).errors
                for method in (Sampled(device), Sampled(device, settle=True), "annealed")
            )
        found = [annealed[word] for word in ("nearest", "gptq", "descent", "annealed")]
        rows.append([str(inputs), *(f"{e:.4f}" for e in (*found, plain["QPUSampler"], settled["QPUSampler"]))])
        print("#", *rows[-1], flush=True)
    headings = ["weights", "nearest", "GPTQ", "GPTQ + descent", "annealed", "mock QPU", "mock QPU, settled"]
    print_table(f"Rows at 1 bit, {OUTPUTS} outputs, {READS} reads", headings, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized_rows", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="rows of 60 weights alone")
    run(quick=parser.parse_args().quick)
