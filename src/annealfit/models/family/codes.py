"""Codes of rows by QUBO over a dictionary, and fits of codes and dictionary in turn."""

from __future__ import annotations

from numbers import Integral
from typing import ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from annealfit._support.arrays import Array
from annealfit._support.errors import check_number
from annealfit._support.randomness import child_seed, seed_of
from annealfit.models.family.solving import QUBOEstimator, Solver
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems

DRAWS = 1  # the path of the seed of what `fit` draws, below that of a fit
RIDGE = 1e-3  # of the number of rows: keeps atoms that are used together always apart


class CodingTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, QUBOEstimator):
    """A transformer whose output is codes a of rows x by `‖x − Da‖² + λ|a|₁`, all on the curvature `DᵀD`."""

    _numbers = (*QUBOEstimator._numbers, "n_iter_", "_seed", "_n_features_out")
    _default_sampler: ClassVar = "greedy"

    n_components: int
    max_iter: int
    components_: Array
    _seed: int

    def _code_problems(self, rows: Array, dictionary: Array, penalty: float) -> Problems:
        curvature = Curvature.computed(dictionary @ dictionary.T)
        return self._levels.problems(curvature, penalty / 2 - rows @ dictionary.T)

    def _codes(self, rows: Array, dictionary: Array, penalty: float, solver: Solver) -> Array:
        """Return the codes (N, M) of rows (N, D) over a dictionary (M, D)."""
        return self._levels.decode(solver.solve(self._code_problems(rows, dictionary, penalty), same_seed=True)[0])

    def _start(self) -> np.random.Generator:
        """Check the settings of the fit; returns what its draws come from, and sets the seed of its solves."""
        check_number("n_components", self.n_components, Integral, minimum=1)
        check_number("max_iter", self.max_iter, Integral, minimum=0)
        self._seed = seed_of(self.random_state)
        return np.random.default_rng(child_seed(self._seed, DRAWS))

    def _alternate(self, rows: Array, penalty: float, generator: np.random.Generator, *, lowest: float) -> Array:
        """Return the dictionary (M, D), of entries from `lowest`, that is fitted to rows in turn with their codes.

        Sets `objective_` and `n_iter_`, and counts the solves.
        """
        scale = float(np.vecdot(rows, rows).mean()) or 1.0
        # Some atoms add up to a row, so each begins as half of one.
        dictionary = 0.5 * rows[generator.permutation(np.resize(np.arange(len(rows)), int(self.n_components)))]
        objectives = []
        with self._solver(self._seed) as solver:
            for _ in range(self.max_iter):
                codes = self._codes(rows, dictionary, penalty, solver)
                errors = rows - codes @ dictionary
                squares = np.vecdot(errors, errors)
                objectives.append((squares.mean() + penalty * codes.sum(axis=1).mean()) / scale)
                dictionary = fitted_dictionary(rows, codes, dictionary, lowest=lowest)
                # Atoms that no code uses become the rows that are coded worst.
                unused = np.flatnonzero(~codes.any(axis=0))
                worst = np.argsort(-squares, kind="stable")[: len(unused)]
                dictionary[unused[: len(worst)]] = rows[worst]
        self.objective_, self.n_iter_ = np.array(objectives), len(objectives)
        return dictionary


def fitted_dictionary(rows: Array, codes: Array, dictionary: Array, *, lowest: float) -> Array:
    """Return the dictionary (M, D) of entries from `lowest` that fits rows to codes, from the present one.

    Without a limit it is that of least squares, with a ridge on its change. With one it is a sweep of coordinate
    descent over the atoms. Neither lets the squared error rise.
    """
    moments, products = codes.T @ codes, codes.T @ rows
    if lowest == -np.inf:
        moments[np.diag_indices_from(moments)] += RIDGE * len(rows)
        return dictionary + np.linalg.solve(moments, products - codes.T @ (codes @ dictionary))
    fitted = dictionary.copy()
    for atom in np.flatnonzero(moments.diagonal()):
        step = (products[atom] - moments[atom] @ fitted) / moments[atom, atom]
        fitted[atom] = np.maximum(lowest, fitted[atom] + step)
    return fitted
