"""The problems of other models that annealing trains, for the catalogue of instances; only of those not on record yet.

python tools/model_instances.py

One bit of a problem that is not convex gets a larger diagonal, which adds a constant to every energy.
Coefficients are rounded to the catalogue's grid and stored whole, since what a model was fitted to changes with every
version. `tools/best_known.py` finds their lowest energies.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from annealfit._support.files import replacing
from annealfit.models import (
    QUBOSVC,
    AnnealedRBM,
    BinaryMatrixFactorization,
    BinarySparseCoding,
    QBoostClassifier,
    QUBORidgeClassifier,
)
from annealfit.problems.problem import Problems
from annealfit.studies.instances import (
    COEFFICIENT_BITS,
    MODEL_INSTANCES,
    MODELS_FILE,
    RANGE_BITS,
    SEED,
    Instance,
    round_to_grid,
)

DIGITS = load_digits()
PAIR = np.isin(DIGITS.target, (3, 8))
X, Y = DIGITS.data[PAIR] / 16, DIGITS.target[PAIR]
MIDDLE = 12  # of the 24 margins


def problems_of(instance: Instance) -> Problems:
    """Return the problems of a model of this kind, as many as the instances need."""
    bits, size = instance.bits, instance.size
    match instance.model:
        case "ridge":
            return QUBORidgeClassifier(bits).problems(X, Y)
        case "svm":
            return QUBOSVC(bits).problems(X[:size], Y[:size])
        case "boosting":
            return QBoostClassifier(bits, n_estimators=size, random_state=SEED).problems(X, Y)[MIDDLE:]
        case "sparse_coding":
            coding = BinarySparseCoding(size, bits, patch_size=5, random_state=SEED).fit(DIGITS.data / 16)
            return coding.problems(DIGITS.data[:1] / 16)[5:]  # from the middle of the image
        case "factorization":
            return BinaryMatrixFactorization(size, bits, random_state=SEED).fit(X, Y).problems(X[:2])
        case "boltzmann":
            images = DIGITS.images[:, :7, 1:7].reshape(-1, 42)
            chosen = np.isin(DIGITS.target, (1, 2, 3, 4))
            machine = AnnealedRBM(size - 42 - 4, bits, max_iter=60, random_state=SEED)
            return machine.fit(images[chosen], DIGITS.target[chosen]).problems()
    raise ValueError(instance.model)


def main() -> None:
    """Make what is missing."""
    found = dict(np.load(MODELS_FILE)) if MODELS_FILE.exists() else {}
    for instance in MODEL_INSTANCES:
        if instance.name not in found:
            problem = problems_of(instance)[instance.class_index]
            ranges = np.full(instance.size, round_to_grid(problem.encoding.range, RANGE_BITS))
            curvature = np.array(problem.curvature)
            if instance.bits == 1:  # the squares of ±δ are constant: with them the problem is convex, and can be proven
                least, largest = np.linalg.eigvalsh(curvature)[[0, -1]]
                curvature += max(0.0, 1e-6 * largest - least) * np.eye(instance.size)
            rounded = [round_to_grid(part, COEFFICIENT_BITS) for part in (curvature, problem.gradient)]
            found[instance.name] = np.vstack([*rounded, ranges])
            print(instance.name, flush=True)
    with replacing(MODELS_FILE) as file:
        np.savez_compressed(file, **found)


if __name__ == "__main__":
    main()
