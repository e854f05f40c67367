"""The trainings of `literal` and `matched` on digits, weight for weight, against stored reference values.

    python tests/reference/paper_trainings.py            compare all of them (minutes)
    python tests/reference/paper_trainings.py --write    store what this version gives as the reference

A training is a long chain of decisions: one last bit that differs anywhere ends in other weights. So the comparison
is bit for bit, and it only makes sense where the linear algebra library rounds as it did when the reference was
written (another processor, another OpenBLAS kernel). `same_rounding` tells, from products of random matrices.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset

REFERENCE = Path(__file__).with_name("paper_trainings.npz")
PRESETS, SEEDS, BITS = ("literal", "matched"), (42, 43, 44), (5, 10, 15, 20)
SWEEPS = (100, 1000)  # of the paper's benchmark and of its study of digits


def train(preset: str, seed: int, bits: int, sweeps: int) -> np.ndarray:
    """Weights and biases (19, 10), and a last row: loss, cross-entropy, accuracy of the last iteration, and zeros."""
    data = load_dataset("digits", seed=seed)
    classifier = AnnealedClassifier.from_paper(bits, preset=preset, num_sweeps=sweeps).set_params(random_state=seed)
    with threadpool_limits(1):
        X = RandomConvFeatures(n_filters=2, kernel_size=3, pool_size=2, random_state=seed).fit_transform(data.X_train)
        classifier.fit(X, data.y_train)
    last = classifier.history_[-1]
    figures = np.zeros(10)
    figures[:3] = last["loss"], last["cross_entropy"], last["accuracy"]
    return np.vstack([classifier.coef_.T, classifier.intercept_, figures])


def rounding_of_this_machine() -> str:
    """A digest of the last bits of the products and functions that a training is made of, none of them ours."""
    generator = np.random.default_rng(0)
    features, weights = generator.random((1000, 19)), generator.normal(size=(19, 10))
    with threadpool_limits(1):
        logits = weights.T @ features.T
        found = (features.T @ features, logits, np.exp(logits), np.log(features), np.exp(logits) @ features)
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in found)).hexdigest()


def same_rounding() -> bool:
    """Whether the reference was written on a machine that rounds like this one."""
    with np.load(REFERENCE, allow_pickle=False) as stored:
        return str(stored["rounding"]) == rounding_of_this_machine()


def name_of(preset: str, seed: int, bits: int, sweeps: int) -> str:
    return f"{preset}-seed{seed}-{bits}bits-{sweeps}sweeps"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store instead of comparing")
    if parser.parse_args().write:
        trained = {name_of(*run): train(*run) for run in product(PRESETS, SEEDS, BITS, SWEEPS)}
        np.savez_compressed(REFERENCE, allow_pickle=False, rounding=np.array(rounding_of_this_machine()), **trained)
        return 0
    if not same_rounding():
        print("the reference was written on a machine whose linear algebra rounds differently: expect differences")
    differing = 0
    with np.load(REFERENCE, allow_pickle=False) as stored:
        for run in product(PRESETS, SEEDS, BITS, SWEEPS):
            name = name_of(*run)
            found, expected = train(*run), stored[name]
            same = np.array_equal(found, expected)
            differing += not same
            print(f"{name:35s} {'same' if same else f'differs by up to {np.abs(found - expected).max():.3g}'}")
    print(f"{differing} of {len(PRESETS) * len(SEEDS) * len(BITS) * len(SWEEPS)} trainings differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
