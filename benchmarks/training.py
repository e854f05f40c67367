"""Whole trainings: against the paper's clock, scikit-learn's solver, and the paper's SGD."""

import warnings

from benchmarks.timing import least_seconds, print_table

import numpy as np
from sklearn.linear_model import LogisticRegression

from annealfit import AnnealedClassifier, RandomConvFeatures, load_dataset
from annealfit.studies.paper_tables import paper_table
from annealfit.models.baselines import SGD_RATE, solve_logistic, train_sgd
from annealfit.training.objectives import LinearHead
from annealfit.training.policies import uniform


def papers_clock(X: np.ndarray, y: np.ndarray) -> None:
    rows_of_mnist = [row for row in paper_table("execution_seconds") if row["dataset"] == "mnist"]
    rows = []
    for row in rows_of_mnist:
        bits, theirs = int(row["bits"]), float(row["mean_seconds"])
        classifier = AnnealedClassifier.from_paper(bits, preset="matched").set_params(random_state=42)
        seconds = least_seconds(lambda: classifier.fit(X, y), repeats=2)  # noqa: B023
        rows.append([str(bits), f"{theirs:.0f}", f"{seconds:.2f}", f"{theirs / seconds:.0f}×"])
    print_table(
        "1000 iterations, 100 sweeps, ten classes, d = 18: the paper's time (on its machine) and ours",
        ["K", "paper s", "ours s", "ratio"],
        rows,
    )


def time_to_the_optimum(X: np.ndarray, y: np.ndarray) -> None:
    """Each method is given just the iterations it needs to come within 0.1 % of the least loss."""
    head = LinearHead.of_arrays(X, y, 10, 1e-3)
    target = 1.001 * head.at(solve_logistic(X, y, 1e-3).weights).loss

    def lbfgs(iterations: int) -> LogisticRegression:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # stopped early on purpose
            return LogisticRegression(C=1 / (1e-3 * len(X)), tol=1e-12, max_iter=iterations).fit(X, y)

    def reached(model: LogisticRegression) -> bool:
        return head.at(np.vstack([model.coef_.T, model.intercept_])).loss <= target

    needed = next(n for n in range(1, 1000) if reached(lbfgs(n)))
    theirs = least_seconds(lambda: lbfgs(needed), repeats=30, budget_seconds=5)
    rows = [["scikit-learn lbfgs", str(needed), f"{theirs * 1e3:.1f}", "1.0×"]]
    for bits in (1, 2, 3):
        seeds = range(5)
        counts, times = [], []
        for seed in seeds:
            history = AnnealedClassifier(bits, tol=0, random_state=seed).fit(X, y).history_
            count = next(row["iteration"] for row in history if row["loss"] <= target)
            classifier = AnnealedClassifier(bits, max_iter=count, tol=0, random_state=seed)
            counts.append(count)
            times.append(least_seconds(lambda: classifier.fit(X, y), repeats=10, budget_seconds=3))  # noqa: B023
        ours = float(np.mean(times))
        label = f"annealfit {bits} bit{'s' if bits > 1 else ''} (5 seeds)"
        rows.append([label, f"{np.mean(counts):.0f}", f"{ours * 1e3:.1f}", f"{ours / theirs:.1f}×"])
    print_table(
        "Digits, time to 1.001 × the least regularised loss, from zero weights",
        ["method", "iterations", "ms", "time ÷ lbfgs"],
        rows,
    )


def time_to_sgds_accuracy(X: np.ndarray, y: np.ndarray) -> None:
    head = LinearHead.of_arrays(X, y, 10, 1e-3)
    start = uniform(head, 42)
    theirs = least_seconds(lambda: train_sgd(head, start), repeats=5, budget_seconds=5)
    accuracy = train_sgd(head, start).history[-1]["accuracy"]
    history = AnnealedClassifier(tol=0, random_state=42).fit(X, y).history_
    # The first iteration from which on the accuracy stays at least that high.
    count = 1 + max((row["iteration"] for row in history if row["accuracy"] < accuracy), default=0)
    classifier = AnnealedClassifier(max_iter=count, tol=0, random_state=42)
    ours = least_seconds(lambda: classifier.fit(X, y), repeats=10, budget_seconds=5)
    print_table(
        f"Digits, time to the training accuracy of the paper's SGD ({accuracy:.1%}; 1000 steps at rate {SGD_RATE})",
        ["method", "iterations", "ms", "SGD ÷ ours"],
        [
            ["SGD", "1000", f"{theirs * 1e3:.0f}", ""],
            ["annealfit 3 bits", str(count), f"{ours * 1e3:.1f}", f"{theirs / ours:.0f}×"],
        ],
    )


def run(*, quick: bool) -> None:
    data = load_dataset("digits", seed=42)
    X = RandomConvFeatures(random_state=42).fit_transform(data.X_train)
    papers_clock(X, data.y_train)
    time_to_the_optimum(X, data.y_train)
    time_to_sgds_accuracy(X, data.y_train)
