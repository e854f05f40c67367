"""Certificates and the solved logistic regression against the optimum in 50 digits, by Newton's method in decimals."""

import warnings
from decimal import Decimal, localcontext

import numpy as np
import pytest

from annealfit import AnnealedClassifier
from annealfit.data.datasets import Dataset
from annealfit.studies import Prepared, execute
from annealfit.training.objectives import LinearHead

DIGITS = 50
REGULARIZATION = 1e-3


def least_loss(X, y, n_classes):
    """The least of `mean log Σ_c exp(z_nc) − z_n,y_n + ½λ‖W‖²`, to 40 digits or more; two classes have one output.

    The bias of the first class is 0: adding a number to all biases changes nothing.
    """
    with localcontext(prec=DIGITS):
        rows = [[Decimal(float(value)) for value in row] for row in X]
        outputs, width = (1 if n_classes == 2 else n_classes), len(rows[0])
        # For every parameter its class, its feature (None is the bias), and its penalty.
        first = n_classes - outputs
        terms = [(c, j, Decimal(REGULARIZATION)) for c in range(first, n_classes) for j in range(width)]
        terms += [(c, None, Decimal(0)) for c in range(1, n_classes)]
        point = [Decimal(0)] * len(terms)
        loss, slopes, hessian = second_order(rows, y, n_classes, terms, point)
        for _ in range(300):
            step, length = solved(hessian, slopes), Decimal(1)
            while True:
                moved = [value - length * change for value, change in zip(point, step, strict=True)]
                found = second_order(rows, y, n_classes, terms, moved)
                if found[0] <= loss or length < Decimal(10) ** -9:
                    break
                length /= 2
            decrease, point, (loss, slopes, hessian) = loss - found[0], moved, found
            if abs(decrease) < Decimal(10) ** -42:
                return loss
    raise AssertionError("Newton's method did not converge")


def second_order(rows, y, n_classes, terms, point):
    """Loss, gradient and Hessian."""
    count = Decimal(len(rows))
    loss = sum(penalty * value * value for (_, _, penalty), value in zip(terms, point, strict=True)) / 2
    slopes = [penalty * value for (_, _, penalty), value in zip(terms, point, strict=True)]
    hessian = [[terms[a][2] * (a == b) for b in range(len(terms))] for a in range(len(terms))]
    for row, label in zip(rows, y, strict=True):
        inputs = [Decimal(1) if j is None else row[j] for _, j, _ in terms]
        logits = [Decimal(0)] * n_classes
        for (c, _, _), value, given in zip(terms, point, inputs, strict=True):
            logits[c] += value * given
        top = max(logits)
        shares = [(logit - top).exp() for logit in logits]
        total = sum(shares)
        loss += (total.ln() + top - logits[label]) / count
        shares = [share / total for share in shares]
        for a, (c, _, _) in enumerate(terms):
            slopes[a] += (shares[c] - (c == label)) * inputs[a] / count
            for b, (k, _, _) in enumerate(terms):
                hessian[a][b] += (shares[c] * (c == k) - shares[c] * shares[k]) * inputs[a] * inputs[b] / count
    return loss, slopes, hessian


def solved(matrix, values):
    """Solve linear equations by elimination with pivots."""
    table = [[*row, value] for row, value in zip(matrix, values, strict=True)]
    for place in range(len(table)):
        best = max(range(place, len(table)), key=lambda row: abs(table[row][place]))
        table[place], table[best] = table[best], table[place]
        for row in range(len(table)):
            if row != place and table[row][place]:
                factor = table[row][place] / table[place][place]
                table[row] = [one - factor * other for one, other in zip(table[row], table[place], strict=True)]
    return [table[place][-1] / table[place][place] for place in range(len(table))]


def awkward(kind, n_classes):
    generator = np.random.default_rng(n_classes)
    y = np.arange(14) % n_classes
    X = generator.normal(size=(14, 2)) + 0.7 * np.eye(3)[y][:, :2]
    change = {
        "usual": lambda: X,
        "offset": lambda: X + 1e6,
        "one wide column": lambda: X * [1.0, 1e5],
        "tiny": lambda: X * 1e-6,
        "nearly the same": lambda: np.column_stack([X[:, 0], X[:, 0] + 1e-5 * X[:, 1]]),
        "separable": lambda: X + 30.0 * np.eye(3)[y][:, :2],
    }
    return change[kind](), y


KINDS = ("usual", "offset", "one wide column", "tiny", "nearly the same", "separable")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_called_the_optimum_is_it_and_no_certificate_is_above(kind, n_classes):
    X, y = awkward(kind, n_classes)
    least = float(least_loss(X, y, n_classes))
    data = Dataset(kind, X, y, X, y, tuple("abc"[:n_classes]))
    fitted = execute.fit_optimum(Prepared.of(data, None), REGULARIZATION)
    head = LinearHead.of_arrays(X, y, n_classes, REGULARIZATION)
    reached = head.at(fitted.weights).exact_loss
    assert reached >= least * (1 - 1e-12)
    if fitted.stop_reason == "tolerance":
        assert reached <= least * (1 + execute.OPTIMUM_TOL)
    else:  # without a certificate no figure is called the optimum
        assert kind in ("offset", "one wide column")
    generator = np.random.default_rng(0)
    for noise in (0.0, 1e-9, 1e-6, 1e-3, 1.0, 1e3):
        point = head.at(fitted.weights * (1 + noise * generator.normal(size=fitted.weights.shape)))
        assert point.lower_bound() <= least * (1 + 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = AnnealedClassifier(regularization=REGULARIZATION, max_iter=200, random_state=0).fit(X, y)
    ours = classifier.history_[-1]["loss"]
    assert least * (1 - 1e-12) <= ours <= least + classifier.optimality_gap_ + 1e-12


def test_a_solution_that_is_far_from_the_optimum_is_not_called_it(monkeypatch):
    X, y = awkward("usual", 3)
    data = Dataset("stopped", X, y, X, y, tuple("abc"))
    solve = execute.solve_logistic

    def stopped(*arguments):
        found = solve(*arguments)
        found.weights[:] *= 0.97
        return found

    monkeypatch.setattr(execute, "solve_logistic", stopped)
    fitted = execute.fit_optimum(Prepared.of(data, None), REGULARIZATION)
    head = LinearHead.of_arrays(X, y, 3, REGULARIZATION)
    assert head.at(fitted.weights).loss > float(least_loss(X, y, 3)) * (1 + execute.OPTIMUM_TOL)
    assert fitted.stop_reason == "stalled"
