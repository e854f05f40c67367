"""Support vector machines as QUBOs (Willsch et al. 2020; Date et al. 2021): the dual over K-bit multipliers."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.validation import validate_data

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number, choose
from annealfit.models.family.solving import QUBOClassifier, QUBOEstimator
from annealfit.problems.bounds import lower_bounds
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems

KERNELS = ("linear", "rbf")
MOST_ROWS = 10_000  # whose kernel matrix takes 0.8 GB


@dataclass(repr=False, eq=False)
class QUBOSVC(QUBOClassifier):
    """Support vector machine by QUBO: `½αᵀ(yyᵀ∘K)α − 1ᵀα + ½ξ(yᵀα)²`, α on 2^K levels from 0 to C.

    Willsch, Willsch, De Raedt and Michielsen, "Support vector machines on the D-Wave quantum annealer", Computer
    Physics Communications 248 (2020). In `v = y∘α` the curvature is `K + ξ`, whatever the labels, so the problems of
    one class against the others share it and are solved together. The bias is the one that minimises the hinge loss
    of the rows. Each problem has N·K variables: `BlockSampler` solves it on annealers that are too small.

    Parameters
    ----------
    bits : int
        Bits per multiplier, K.
    C : float
        Largest multiplier, as in scikit-learn's `SVC`.
    kernel : {"rbf", "linear"}
    gamma : {"scale", "auto"} or float
        Of `exp(−γ‖x − x'‖²)`, as in scikit-learn.
    constraint : float
        ξ, the weight of `yᵀα = 0`. A large one makes the problem hard: flips of single bits all break the equation.
    n_answers : int
        Solve so many times with other seeds, and use the mean of the multipliers.
    sampler : Sampler, dimod sampler, word or None
        What solves the problems; None is `LevelAnnealer()`.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : the labels, sorted, shape (C,)
    support_ : positions of the rows with a multiplier above 0, (S,)
    support_vectors_ : those rows, (S, D)
    dual_coef_ : array of shape (P, S)
        `y∘α` of each class against the others; for two classes P is 1.
    intercept_ : array of shape (P,)
    energies_, lower_bounds_ : arrays of shape (P,)
        Twice the objective at the best answer, and a proven lower bound of it over all bits.
    n_solves_, n_variables_ : problems solved, variables of a problem

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = QUBOSVC(random_state=0).fit(X, y)
    >>> clf.n_variables_, clf.score(X, y) > 0.95
    (300, True)

    """

    _numbers = (*QUBOEstimator._numbers, "gamma_")
    _arrays: ClassVar = {
        **{"support_": "S", "support_vectors_": "SD", "dual_coef_": "PS", "intercept_": "P"},
        **{"energies_": "P", "lower_bounds_": "P"},
    }

    bits: int = 2
    C: float = 1.0
    kernel: str = "rbf"
    _: KW_ONLY
    gamma: str | float = "scale"
    constraint: float = 0.1
    n_answers: int = 1
    sampler: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows X (N, D) and N labels of any type."""
        X, signs = self._prepare(X, y)
        kernel = self._kernel(X, X)
        problems = self._problems(kernel, signs)
        with self._solver() as solver:
            solved = [solver.solve(problems) for _ in range(self.n_answers)]
        products = np.mean([self._products(bits, signs) for bits, _ in solved], axis=0)
        middle = signs * self.C / 2
        constants = np.vecdot(
            middle @ problems.shared_curvature.matrix - 2 * signs, middle
        )  # twice the objective there
        self.energies_ = np.min([energies for _, energies in solved], axis=0) + constants
        self.lower_bounds_ = lower_bounds(problems, tight=True) + constants
        self.intercept_ = np.array([_bias(row @ kernel, own) for row, own in zip(products, signs, strict=True)])
        found = np.flatnonzero(products.any(axis=0))
        self.support_, self.support_vectors_, self.dual_coef_ = self._order[found], X[found], products[:, found]
        return self

    def problems(self, X: Any, y: Any) -> Problems:
        """Return the problems, one per class against the others, for other solvers: bits of `v = y∘α`.

        Rows are in an order in which the classes take turns, so that every block of a `BlockSampler` has all of them.
        """
        X, signs = self._prepare(X, y)
        return self._problems(self._kernel(X, X), signs)

    def _scores(self, X: Any) -> Array:
        """Return `Σ_n y_n α_n K(x_n, x) + b` of each class, (N, P)."""
        return self._kernel(self._rows(X), self.support_vectors_) @ self.dual_coef_.T + self.intercept_

    def _prepare(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Return the rows and the signs ±1 of each class (P, N); sets what predictions need to know of them."""
        check_number("C", self.C, above=0)
        check_number("constraint", self.constraint, minimum=0)
        check_number("n_answers", self.n_answers, Integral, minimum=1)
        choose("kernel", self.kernel, KERNELS)
        X, y = validate_data(self, X, y, dtype=np.float64)
        if len(X) > MOST_ROWS:
            raise InvalidInputError(
                f"X has {len(X)} rows, whose kernel matrix takes {len(X) ** 2 * 8 / 2**30:.1f} GiB; "
                f"the limit is {MOST_ROWS} rows: train on fewer"
            )
        signs = self._signs(y)
        if isinstance(self.gamma, str):
            variance = float(X.var()) if choose("gamma", self.gamma, ("scale", "auto")) == "scale" else 1.0
            self.gamma_ = 1 / (X.shape[1] * (variance or 1.0))
        else:
            check_number("gamma", self.gamma, above=0)
            self.gamma_ = float(self.gamma)
        self._order = _alternating(np.searchsorted(self.classes_, y))
        return X[self._order], signs[:, self._order]

    def _kernel(self, rows: Array, others: Array) -> Array:
        return pairwise_kernels(rows, others, metric=self.kernel, filter_params=True, gamma=self.gamma_)

    def _problems(self, kernel: Array, signs: Array) -> Problems:
        """Return `vᵀ(K + ξ)v − 2yᵀv` around the middle `yC/2` of the multipliers: a shift of the gradient."""
        curvature = Curvature(kernel + self.constraint)
        gradients = self.C / 2 * signs @ curvature.matrix - signs
        return Problems((curvature,), gradients, np.full(len(signs), self.C / 2), int(self.bits))

    def _products(self, bits: NDArray[np.uint8], signs: Array) -> Array:
        """Return `v = y∘α` (P, N): levels from 0 to C where y is 1, from −C to 0 where it is −1, with an exact 0."""
        top = 2 ** int(self.bits) - 1
        levels = bits @ (1 << np.arange(self.bits))
        return self.C / top * np.where(signs > 0, levels, levels - top)


def _alternating(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return an order of rows in which the classes take turns.

    >>> _alternating(np.array([0, 0, 0, 1, 1])).tolist()
    [0, 3, 1, 4, 2]
    """
    turns = np.empty(len(codes), dtype=np.intp)
    for label in range(codes.max() + 1):
        own = np.flatnonzero(codes == label)
        turns[own] = np.arange(len(own))
    return np.lexsort((codes, turns))


def _bias(scores: Array, signs: Array) -> float:
    """Return the `b` that minimises `Σ_n max(0, 1 − y_n(f_n + b))`, the middle of them if there are several.

    The slope is minus the number of positive rows with `b < 1 − f`, plus that of negative rows with `b > −1 − f`: it
    rises by 1 at each of the points `y − f`.

    >>> _bias(np.array([2.0, -2.0, -3.0]), np.array([1.0, -1.0, -1.0]))
    0.0
    """
    positive = int((signs > 0).sum())
    points = np.sort(signs - scores)
    return float((points[positive - 1] + points[positive]) / 2)
