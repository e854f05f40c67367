"""Nonnegative/binary matrix factorisation with label rows, every code a QUBO (Asaoka and Kudo 2023)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, check_non_negative

from annealfit._support.arrays import Array
from annealfit._support.errors import check_number
from annealfit.models.family.codes import CodingTransformer
from annealfit.models.family.solving import QUBOClassifier
from annealfit.problems.problem import Problems


@dataclass(repr=False, eq=False)
class BinaryMatrixFactorization(QUBOClassifier, CodingTransformer):
    """`X ≈ HW` by QUBO: `‖x − Wᵀh‖²` over codes h on 2^K levels from 0 to 1, W ≥ 0. Transformer and classifier.

    Asaoka and Kudo, "Nonnegative/binary matrix factorization for image classification using quantum annealing",
    Scientific Reports 13 (2023). The codes of all rows share the curvature `WWᵀ`. Codes and W are fitted in turn. With
    labels, a column per class is added to X, so that W learns which components belong to which class. New rows have
    no labels: their codes come from X alone, and so the columns of the classes are fitted once more, by least
    squares, to the codes that the training rows have without labels.

    Parameters
    ----------
    n_components : int
        Rows of W, M. A problem has M·K variables.
    bits : int
        Bits per entry of a code, K. With one H is binary.
    label_weight : float
        The root mean square of a row's label columns over that of its features.
    max_iter : int
        How often codes and W are fitted in turn.
    sampler : Sampler, dimod sampler, word or None
        What solves the problems; None is `GreedyDescent()`.
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : array of shape (M, D)
        W.
    label_components_, intercept_ : arrays of shape (M, C) and (C,), after a fit with labels
        By which codes predict the columns of the classes.
    classes_ : the labels, sorted, shape (C,), after a fit with labels
    objective_ : array of shape (max_iter,)
        Mean squared error of rows with their labels over the mean square, before each fit of W.
    n_iter_, n_solves_, n_variables_ : iterations, problems solved by `fit`, variables of a problem

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = BinaryMatrixFactorization(40, random_state=0).fit(X, y)
    >>> model.transform(X).shape, model.score(X, y) > 0.8
    ((1797, 40), True)

    """

    _arrays: ClassVar = {"components_": "MD", "objective_": "I", "label_components_": "MC", "intercept_": "C"}

    n_components: int = 40
    bits: int = 1
    _: KW_ONLY
    label_weight: float = 0.3
    max_iter: int = 10
    sampler: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit W to rows X (N, D), none of whose values is below 0, and N labels of any type; None fits X alone."""
        generator = self._start()
        check_number("label_weight", self.label_weight, minimum=0)
        X, present = self._labelled(X, y)
        check_non_negative(X, "BinaryMatrixFactorization.fit")
        self._n_features_out = int(self.n_components)
        weight = self.label_weight * np.sqrt(np.vecdot(X, X).mean())
        both = self._alternate(np.hstack([X, weight * present]), 0.0, generator, lowest=0.0)
        self.components_ = np.ascontiguousarray(both[:, : X.shape[1]])
        if y is None:
            return self
        solves = self.n_solves_
        with self._solver(self._seed) as solver:
            found = self._codes(X, self.components_, 0.0, solver)
        self.n_solves_ += solves
        design = np.column_stack([found, np.ones(len(found))])
        fitted = np.linalg.lstsq(design, present, rcond=None)[0]
        self.label_components_, self.intercept_ = fitted[:-1], fitted[-1]
        return self

    def transform(self, X: Any) -> Array:
        """Return the codes of rows, H (N, M)."""
        rows = self._rows(X)
        with self._solver(self._seed, count=False) as solver:
            return self._codes(rows, self.components_, 0.0, solver)

    def inverse_transform(self, X: Any) -> Array:
        """Return the rows HW of codes, (N, D)."""
        check_is_fitted(self)
        return np.asarray(X, dtype=np.float64) @ self.components_

    def problems(self, X: Any) -> Problems:
        """Return the problems of coding rows with the fitted W."""
        return self._code_problems(self._rows(X), self.components_, 0.0)

    def _scores(self, X: Any) -> Array:
        """Return the predicted columns of the classes, (N, C)."""
        check_is_fitted(self, "label_components_", msg="fit with labels first: %(name)s.fit(X, y)")
        return self.transform(X) @ self.label_components_ + self.intercept_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.target_tags.required = False
        return tags
