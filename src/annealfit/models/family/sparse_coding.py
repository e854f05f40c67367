"""Binary sparse coding of rows or image patches, every code a QUBO (Nguyen and Kenyon 2019)."""

from __future__ import annotations

from math import isqrt
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.randomness import child_seed, seed_of
from annealfit.models.family.solving import QUBOEstimator, Solver
from annealfit.problems.curvature import Curvature
from annealfit.problems.levels import Levels
from annealfit.problems.problem import Problems
from annealfit.samplers import GreedyDescent

DRAWS = 1  # the path of the seed of what `fit` draws, below that of a fit
RIDGE = 1e-3  # of the number of rows: keeps atoms that are never or always used together apart
PATCHES_AT_ONCE = 1 << 16  # bounds the memory of a transform


class BinarySparseCoding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, QUBOEstimator):
    """Codes of rows or image patches x by QUBO: `‖x − Da‖² + λ|a|₁` over codes a on 2^K levels from 0 to 1.

    Nguyen and Kenyon, "Image classification using quantum inference on the D-Wave 2X" (2018, 2019). The codes of all
    rows share the curvature `DᵀD`. Dictionary and codes are fitted in turn: codes by the sampler, then the dictionary
    by least squares. Atoms that are used nowhere become the rows that are coded worst. Any classifier can follow in a
    pipeline.

    Parameters
    ----------
    n_components : int
        Atoms of the dictionary, M. A problem has M·K variables.
    bits : int
        Bits per entry of a code, K. With one an atom is used or not.
    sparsity : float
        λ as a share of the mean squared norm of the rows or patches.
    patch_size : int or None
        Code the patches of so many pixels in height and width; rows are images then, of shape (N, H, W) or square
        and flat. None codes whole rows.
    stride : int
        Pixels between patches.
    max_iter : int
        How often codes and dictionary are fitted in turn; 0 leaves a dictionary of rows.
    max_samples : int
        Most rows or patches that the dictionary is fitted to, drawn at random.
    sampler : Sampler, dimod sampler, word or None
        What solves the problems; None is `GreedyDescent()`.
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : array of shape (M, D)
        The dictionary, one atom a row.
    penalty_ : float
        λ.
    objective_ : array of shape (max_iter,)
        Mean objective of the coded rows over the mean squared norm, before each fit of the dictionary.
    n_iter_, n_solves_, n_variables_ : iterations, problems solved by `fit`, variables of a problem

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> coding = BinarySparseCoding(16, patch_size=4, stride=2, random_state=0)
    >>> coding.fit_transform(X).shape  # 9 patches
    (1797, 144)

    """

    def __init__(
        self,
        n_components: int = 64,
        bits: int = 1,
        *,
        sparsity: float = 0.02,
        patch_size: int | None = None,
        stride: int = 1,
        max_iter: int = 10,
        max_samples: int = 20_000,
        sampler: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.bits = bits
        self.sparsity = sparsity
        self.patch_size = patch_size
        self.stride = stride
        self.max_iter = max_iter
        self.max_samples = max_samples
        self.sampler = sampler
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the dictionary to rows (N, D) or images; y is not used."""
        for name, minimum in (("n_components", 1), ("stride", 1), ("max_iter", 0), ("max_samples", 1)):
            check_number(name, getattr(self, name), Integral, minimum=minimum)
        check_number("sparsity", self.sparsity, minimum=0)
        if self.patch_size is not None:
            check_number("patch_size", self.patch_size, Integral, minimum=1)
        patches = self._patches(self._checked(X, reset=True))
        self._n_features_out = patches.shape[1] * patches.shape[2] * int(self.n_components)
        self._seed = seed_of(self.random_state)
        generator = np.random.default_rng(child_seed(self._seed, DRAWS))
        rows = self._drawn(patches, generator)
        scale = float(np.vecdot(rows, rows).mean()) or 1.0
        self.penalty_ = self.sparsity * scale
        # Some atoms add up to a row, so each begins as half of one.
        self.components_ = 0.5 * rows[generator.permutation(np.resize(np.arange(len(rows)), int(self.n_components)))]
        objectives = []
        with self._solver(self._seed) as solver:
            for _ in range(self.max_iter):
                codes = self._codes(rows, solver)
                errors = rows - codes @ self.components_
                squares = np.vecdot(errors, errors)
                objectives.append((squares.mean() + self.penalty_ * codes.sum(axis=1).mean()) / scale)
                self._fit_dictionary(rows, codes, squares)
        self.objective_, self.n_iter_ = np.array(objectives), len(objectives)
        return self

    def transform(self, X: Any) -> Array:
        """Return the codes of rows (N, M), or those of all patches of each image side by side (N, P·M)."""
        patches = self._patches(self._rows(X))
        found = np.empty((len(patches), self._n_features_out), dtype=patches.dtype)
        images = max(1, PATCHES_AT_ONCE // (patches.shape[1] * patches.shape[2]))
        with self._solver(self._seed, count=False) as solver:
            for first in range(0, len(patches), images):
                part = slice(first, first + images)
                found[part] = self._codes(_flat(patches[part]), solver).reshape(found[part].shape)
        return found

    def problems(self, X: Any) -> Problems:
        """Return the problems of coding rows, or all patches of images, with the fitted dictionary."""
        return self._problems(_flat(self._patches(self._rows(X))))

    def inverse_transform(self, X: Any) -> Array:
        """Return the rows `Da` of codes, (N, D), or the patches of images, (N, P·D)."""
        codes = np.asarray(X, dtype=np.float64)
        if codes.ndim != 2 or codes.shape[1] != self._n_features_out:
            raise InvalidInputError(f"codes have shape {codes.shape}; expected (N, {self._n_features_out})")
        return (codes.reshape(-1, int(self.n_components)) @ self.components_).reshape(len(codes), -1)

    def _default_sampler(self) -> Any:
        return GreedyDescent()

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._checked(X, reset=False)

    def _checked(self, X: Any, *, reset: bool) -> Array:
        """Return rows (N, D) or images (N, H, W), whose pixels in all are the features."""
        if self.patch_size is not None and np.ndim(X) == 3:
            images = np.asarray(X)
            flat = self._checked(images.reshape(len(images), -1), reset=reset)
            return flat.reshape(images.shape)
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)

    def _patches(self, rows: Array) -> Array:
        """Return a view of patches (N, rows of them, columns of them, height, width), or of rows (N, 1, 1, 1, D)."""
        if self.patch_size is None:
            return rows[:, None, None, None]
        if rows.ndim == 2:
            side = isqrt(rows.shape[1])
            if side * side != rows.shape[1]:
                raise InvalidInputError(
                    f"X has {rows.shape[1]} columns, which is no square image; pass images of shape (N, H, W)"
                )
            rows = rows.reshape(len(rows), side, side)
        size, step = int(self.patch_size), int(self.stride)
        if size > min(rows.shape[1:]):
            raise InvalidInputError(f"patch_size is {size}; images of {rows.shape[1:]} have no such patches")
        return np.lib.stride_tricks.sliding_window_view(rows, (size, size), axis=(1, 2))[:, ::step, ::step]

    def _drawn(self, patches: Array, generator: np.random.Generator) -> Array:
        """Return at most `max_samples` of the patches, (S, D)."""
        count = int(np.prod(patches.shape[:3]))
        places = np.arange(count)
        if count > self.max_samples:
            places = np.sort(generator.choice(count, int(self.max_samples), replace=False))
        return _flat(patches[np.unravel_index(places, patches.shape[:3])])

    @property
    def _levels(self) -> Levels:
        return Levels(0.0, 1.0, self.bits)

    def _problems(self, rows: Array) -> Problems:
        curvature = Curvature.computed(self.components_ @ self.components_.T)
        return self._levels.problems(curvature, self.penalty_ / 2 - rows @ self.components_.T)

    def _codes(self, rows: Array, solver: Solver) -> Array:
        return self._levels.decode(solver.solve(self._problems(rows), same_seed=True)[0])

    def _fit_dictionary(self, rows: Array, codes: Array, squares: Array) -> None:
        """Set the dictionary to the least squares fit of the codes; unused atoms to the worst coded rows."""
        moments = codes.T @ codes + RIDGE * len(rows) * np.eye(codes.shape[1])
        # A step from the present dictionary, which the ridge holds fast: the objective does not rise.
        self.components_ += np.linalg.solve(moments, codes.T @ (rows - codes @ self.components_))
        unused = np.flatnonzero(~codes.any(axis=0))
        worst = np.argsort(-squares, kind="stable")[: len(unused)]
        self.components_[unused[: len(worst)]] = rows[worst]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _flat(patches: Array) -> Array:
    """Return patches (…, height, width) as rows in double precision."""
    return patches.reshape(-1, patches.shape[-2] * patches.shape[-1]).astype(np.float64)
