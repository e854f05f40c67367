"""The models of the family on what their papers used: `OMP_NUM_THREADS=1 python -m benchmarks.family [NAME]...`.

Names: sparse-coding, factorization, boltzmann, optdigits, boosting, vectors, rates. All of them take about half an
hour and need MNIST. Accuracies are of the official test images.
"""

import sys
import time

from benchmarks.timing import print_table

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification, make_moons
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from annealfit import (
    QUBOSVC,
    AnnealedRBM,
    BinaryMatrixFactorization,
    BinarySparseCoding,
    QBoostClassifier,
    load_dataset,
)
from annealfit.samplers import DimodSampler, GreedyDescent, SimulatedAnnealer

SEEDS = (0, 1, 2, 3, 4)


def mnist(size, n_train="all"):
    data = load_dataset("mnist", n_train=n_train, n_test="all", size=size, seed=0)
    parts = [part.reshape(len(part), -1).astype(np.float32) for part in (data.X_train, data.X_test)]
    return parts[0], data.y_train, parts[1], data.y_test


def sparse_coding():
    """Binary codes of patches, 12×12 images, a logistic regression on the codes."""
    X, y, X_test, y_test = mnist(12)
    rows = []
    for atoms, size, pool in ((47, 5, None), (128, 5, 4), (256, 5, 4)):
        coding = BinarySparseCoding(atoms, patch_size=size, pool=pool, random_state=0)
        began = time.perf_counter()
        coding.fit(X)
        fitted = time.perf_counter()
        codes, test_codes = coding.transform(X), coding.transform(X_test)
        coded = time.perf_counter()
        head = LogisticRegression(C=0.02, max_iter=60).fit(codes, y)
        patches = (12 - size + 1) ** 2 * (len(X) + len(X_test))
        told = f"{100 * head.score(test_codes, y_test):.2f}", f"{time.perf_counter() - coded:.0f}"
        rate = patches / (coded - fitted)
        rows.append([str(atoms), str(codes.shape[1]), told[0], f"{fitted - began:.0f}", f"{rate:,.0f}", told[1]])
        print_table("Sparse coding", ["atoms", "features", "test %", "fit s", "patches/s", "head s"], rows[-1:])


def factorization():
    """Binary matrix factorisation with label rows, 28×28 images."""
    X, y, X_test, y_test = mnist(28)
    rows = []
    for components in (40, 200):
        began = time.perf_counter()
        model = BinaryMatrixFactorization(components, max_iter=5, random_state=0).fit(X, y)
        seconds = time.perf_counter() - began
        rows.append([str(components), f"{100 * model.score(X_test, y_test):.2f}", f"{seconds:.0f}"])
    print_table("Matrix factorisation", ["components", "test %", "fit s"], rows)


def boltzmann(units=256, passes=8):
    """A restricted Boltzmann machine with a unit per label, 28×28 images."""
    X, y, X_test, y_test = mnist(28)
    began = time.perf_counter()
    model = AnnealedRBM(units, learning_rate=0.5, max_iter=passes, random_state=0).fit(X, y)
    seconds = time.perf_counter() - began
    row = [str(units), f"{100 * model.score(X_test, y_test):.2f}", f"{seconds:.0f}"]
    print_table("Boltzmann machine", ["hidden units", "test %", "fit s"], [row])


def optdigits():
    """Digits 1 to 4 without the outer columns and the last row, as Benedetti et al. take them."""
    digits = load_digits()
    chosen = np.isin(digits.target, (1, 2, 3, 4))
    X, y = digits.images[chosen][:, :7, 1:7].reshape(-1, 42), digits.target[chosen]
    scores = []
    for seed in SEEDS:
        parts = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
        model = AnnealedRBM(64, max_iter=100, random_state=seed).fit(parts[0], parts[2])
        scores.append(100 * model.score(parts[1], parts[3]))
    told = [f"{np.mean(scores):.2f}", f"{np.std(scores, ddof=1):.2f}"]
    print_table("Boltzmann machine, digits 1 to 4 of 7×6 pixels", ["test %", "± over splits"], [told])


def two_classes():
    digits = load_digits()
    chosen = np.isin(digits.target, (3, 8))
    yield "breast cancer", *load_breast_cancer(return_X_y=True)
    yield "digits 3 and 8", digits.data[chosen], digits.target[chosen]
    yield "synthetic", *make_classification(1000, 20, n_informative=8, random_state=0)


def boosting():
    """QBoost beside AdaBoost, 100 weak learners to choose from."""
    rows = []
    for name, X, y in two_classes():
        found = []
        for seed in range(10):
            parts = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
            ours = QBoostClassifier(random_state=seed).fit(parts[0], parts[2])
            theirs = AdaBoostClassifier(n_estimators=100, random_state=seed).fit(parts[0], parts[2])
            found.append([100 * m.score(parts[1], parts[3]) for m in (ours, theirs)] + [len(ours.estimators_)])
        mean, differences = np.mean(found, axis=0), np.subtract(*np.transpose(found)[:2])
        difference = f"{differences.mean():+.2f} ± {differences.std(ddof=1) / len(found) ** 0.5:.2f}"
        rows.append([name, f"{mean[0]:.2f}", f"{mean[1]:.2f}", difference, f"{mean[2]:.0f} of 100"])
    print_table("Boosting, ten splits", ["data", "QBoost %", "AdaBoost %", "difference", "learners"], rows)


def vectors():
    """A support vector machine of 1,000 rows with 2 bits beside SVC; its energy beside the lower bound."""
    rows = []
    digits, moons = load_digits(return_X_y=True), make_moons(1500, noise=0.25, random_state=0)
    for name, (X, y) in (("digits", digits), ("moons", moons)):
        X = StandardScaler().fit_transform(X)
        began = time.perf_counter()
        ours = QUBOSVC(bits=2, random_state=0).fit(X[:1000], y[:1000])
        seconds = time.perf_counter() - began
        theirs = SVC().fit(X[:1000], y[:1000])
        gap = (ours.energies_ - ours.lower_bounds_).max() / np.abs(ours.lower_bounds_).max()
        scores = [100 * model.score(X[1000:], y[1000:]) for model in (ours, theirs)]
        rows.append([name, *(f"{score:.2f}" for score in scores), f"{100 * gap:.2f} %", f"{seconds:.1f}"])
    print_table("Support vectors, N = 1,000", ["data", "QUBOSVC %", "SVC %", "above the bound", "seconds"], rows)


def rates():
    """Problems per second beside dwave-samplers with a BQM for each."""
    X, y, *_ = mnist(12, 2000)
    coding = BinarySparseCoding(47, patch_size=5, max_iter=3, random_state=0).fit(X)
    problems = coding.problems(X[:200])
    ours, theirs = GreedyDescent(), DimodSampler(num_sweeps=100)
    found = []
    for sampler, part in ((ours, problems), (theirs, problems[:200])):
        sampler.solve(part[:2], [0, 1])
        seconds, energies = _timed(lambda sampler=sampler, part=part: sampler.solve(part, list(range(len(part)))))
        found.append((len(part) / seconds, np.mean([answer.best_energy for answer in energies[:200]])))
    rows = [["codes of patches, 47 bits", *(f"{rate:,.0f}" for rate, _ in found), f"{found[0][0] / found[1][0]:,.0f}"]]
    rows[0].append(f"{found[0][1]:.4f}, {found[1][1]:.4f}")
    rbm = AnnealedRBM(64, max_iter=1, random_state=0).fit(X[:200], y[:200])
    generator, machine = np.random.default_rng(0), rbm._machine()
    states = generator.random((64, len(machine.visible))).round()
    sampler = DimodSampler(num_sweeps=10, num_reads=64, beta_range=(0.1, 1.0))
    native = SimulatedAnnealer(num_sweeps=10, num_reads=64, beta_range=(0.1, 1.0))
    chains = _timed(lambda: [machine.swept(states, rbm._levels, generator) for _ in range(10)])[0] / 10
    told = [_timed(lambda each=each: each.solve(rbm._problems(machine), [0]))[0] for each in (native, sampler)]
    rows.append(
        ["64 states of a machine, chains", f"{1 / chains:,.0f}", f"{1 / told[1]:,.1f}", f"{told[1] / chains:,.0f}", ""]
    )
    rows.append(["the same, annealed", f"{1 / told[0]:,.1f}", f"{1 / told[1]:,.1f}", f"{told[1] / told[0]:,.0f}", ""])
    print_table("Per second", ["problem", "ours", "dwave-samplers", "ratio", "mean energies"], rows)


def _timed(function, repeats=3):
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - began)
    return best, result


CASES = {
    "sparse-coding": sparse_coding,
    "factorization": factorization,
    "boltzmann": boltzmann,
    "optdigits": optdigits,
    "boosting": boosting,
    "vectors": vectors,
    "rates": rates,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        CASES[name]()
