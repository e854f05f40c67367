"""Least squares as QUBOs (Date, Arthur and Pusey-Nazzaro 2021), refined around the answer until it is certified."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, validate_data

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import check_number
from annealfit.models.family.solving import QUBOClassifier, QUBOEstimator, Solver
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems

WIDER, NARROWER = 1.5, 0.5  # by what a range changes after an answer at its ends, and after any other
FLOOR = 1e-14  # of the sum of squares: a gap below it is rounding


class _LeastSquares:
    """`‖√ω(Xw + b − y)‖² + α‖w‖²` over standardised coordinates: the curvature has ones on its diagonal."""

    def __init__(self, X: Array, targets: Array, weights: Array, alpha: float, centred: bool) -> None:
        total = weights.sum()
        self.means = weights @ X / total if centred else np.zeros(X.shape[1])
        self.target_means = weights @ targets / total if centred else np.zeros(targets.shape[1])
        rows, own = X - self.means, targets - self.target_means
        weighted = rows * weights[:, None]
        matrix = weighted.T @ rows + alpha * np.eye(X.shape[1])
        scales = np.sqrt(matrix.diagonal())
        self.scales = np.where(scales > 0, scales, 1.0)
        self.curvature = Curvature.computed(matrix / np.outer(self.scales, self.scales))
        self.gradients = -(weighted.T @ own / self.scales[:, None]).T  # (P, D), at 0
        self.squares = weights @ own**2  # of the answer 0, (P,)

    def gaps(self, residuals: Array) -> Array:
        """Return by how much the objective is above its minimum (P,), from its gradients (P, D)."""
        return np.vecdot(residuals, self.curvature.solve(residuals))


@dataclass(repr=False, eq=False)
class _QUBORidge(QUBOEstimator):
    """What regression and classification share."""

    _numbers = (*QUBOEstimator._numbers, "n_iter_")
    _arrays: ClassVar = {"coef_": "PD", "intercept_": "P", "optimality_gap_": "P"}

    bits: int = 3
    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    update_range: float | None = None
    max_iter: int = 200
    tol: float = 1e-6
    sampler: Any = None
    random_state: Any = None

    @abstractmethod
    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Return the rows (N, D) and columns of targets (N, P), checked."""

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to rows X (N, D) and y: N labels of any type, or the targets (N,) or (N, P) of a regression."""
        system = self._least_squares(X, y, sample_weight)
        with self._solver() as solver:
            points = self._descend(system, solver)
        self.coef_ = points / system.scales
        self.intercept_ = system.target_means - self.coef_ @ system.means
        return self

    def problems(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Problems:
        """Return the problems of the first iteration, one per target, for other solvers."""
        system = self._least_squares(X, y, sample_weight)
        return self._problems(system, system.gradients, self._first_ranges(system))

    def _least_squares(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> _LeastSquares:
        check_number("alpha", self.alpha, minimum=0)
        check_number("max_iter", self.max_iter, Integral, minimum=1)
        check_number("tol", self.tol, minimum=0)
        if self.update_range is not None:
            check_number("update_range", self.update_range, above=0)
        X, targets = self._checked(X, y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return _LeastSquares(X, targets, weights, float(self.alpha), bool(self.fit_intercept))

    def _problems(self, system: _LeastSquares, residuals: Array, ranges: Array) -> Problems:
        return Problems((system.curvature,), residuals, ranges, int(self.bits))

    def _first_ranges(self, system: _LeastSquares) -> Array:
        """Return the largest coefficients of the features taken one by one, (P,)."""
        if self.update_range is not None:
            return np.full(len(system.gradients), float(self.update_range))
        largest = np.abs(system.gradients).max(axis=1)
        return np.where(largest > 0, largest, 1.0)

    def _descend(self, system: _LeastSquares, solver: Solver) -> Array:
        """Return the coefficients (P, D) in standardised coordinates."""
        points, residuals = np.zeros_like(system.gradients), system.gradients.copy()
        ranges, scale = self._first_ranges(system), np.where(system.squares > 0, system.squares, 1.0)
        self.n_iter_ = 0
        while self.n_iter_ < self.max_iter:
            going = np.flatnonzero(system.gaps(residuals) > max(self.tol, FLOOR) * scale)
            if len(going) == 0:
                break
            self.n_iter_ += 1
            problems = self._problems(system, residuals[going], ranges[going])
            bits, energies = solver.solve(problems)
            updates = problems.decode(bits)
            gained = energies < 0
            points[going[gained]] += updates[gained]
            residuals = points @ system.curvature.matrix + system.gradients
            at_ends = (np.abs(updates) >= 0.999 * ranges[going, None]).mean(axis=1) > 0.5
            ranges[going] *= np.where(gained & at_ends, WIDER, NARROWER)
        self.optimality_gap_ = system.gaps(residuals)
        return points


class QUBORidge(RegressorMixin, MultiOutputMixin, _QUBORidge):
    """Ridge regression by QUBO solves: `‖Xw + b − y‖² + α‖w‖²`, one problem per target and iteration.

    Date, Arthur and Pusey-Nazzaro, "QUBO formulations for training machine learning models", Scientific Reports 11
    (2021), give every coefficient K bits over a fixed range. Here the bits encode an update `u` of the coefficients,
    `uᵀ(XᵀX + αI)u + 2gᵀu` with the gradient `g` at the current ones, and the range is adapted to the answers, so that
    any number of bits reaches the optimum. All targets share the curvature.

    Parameters
    ----------
    bits : int
        Bits per coefficient, K. A problem has D·K variables.
    alpha : float
        Weight of the penalty, as in scikit-learn's `Ridge`.
    fit_intercept : bool
        Fit `b`, by centring features and targets.
    update_range : float or None
        Range δ of the first updates, in units in which the curvature has ones on its diagonal. None is the largest
        coefficient of a fit with one feature alone.
    max_iter : int
        Most iterations. One is the published method.
    tol : float
        A target is done when its objective is within this share of its sum of squares of the optimum.
    sampler : Sampler, dimod sampler, word or None
        What solves the problems; None is `LevelAnnealer()`.
    random_state : int, RandomState or None

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (P, D) and (P,); for one target (D,) and a float
    optimality_gap_ : array of shape (P,)
        The objective is so much above its optimum, exactly: `gᵀ(XᵀX + αI)⁻¹g`.
    n_iter_, n_solves_, n_variables_ : iterations, problems solved, variables of a problem

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(QUBORidge(random_state=0).fit(X, y).score(X, y), 3)
    0.451

    """

    _numbers = (*_QUBORidge._numbers, "_targets_ndim")

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to rows X (N, D) and targets y (N,) or (N, P)."""
        super().fit(X, y, sample_weight)
        self._squeeze()
        return self

    def predict(self, X: Any) -> Array:
        """Return the predicted targets of rows, (N,) or (N, P)."""
        return self._rows(X) @ self.coef_.T + self.intercept_

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._targets_ndim = np.ndim(y)
        return X, as_real(y, "y", ndim=np.ndim(y)).reshape(len(X), -1)

    def _squeeze(self) -> None:
        if self._targets_ndim == 1:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"coef_": np.atleast_2d(self.coef_), "intercept_": np.atleast_1d(self.intercept_)}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._squeeze()


class QUBORidgeClassifier(QUBOClassifier, _QUBORidge):
    """Classifier by `QUBORidge` on targets ±1: one target per class, one for two classes.

    The parameters are those of `QUBORidge`. With enough iterations it is scikit-learn's `RidgeClassifier`.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (C, D) and (C,); for two classes (1, D) and (1,)
    classes_ : the labels, sorted, shape (C,)
    optimality_gap_ : array with an entry per target
    n_iter_, n_solves_, n_variables_ : iterations, problems solved, variables of a problem

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(QUBORidgeClassifier(random_state=0).fit(X, y).score(X, y), 2)
    0.85

    """

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=np.float64)
        return X, self._signs(y).T

    def _scores(self, X: Any) -> Array:
        return self._rows(X) @ self.coef_.T + self.intercept_
