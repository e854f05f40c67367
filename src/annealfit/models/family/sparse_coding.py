"""Binary sparse coding of rows or image patches, every code a QUBO (Nguyen and Kenyon 2019)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import isqrt
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, check_number
from annealfit.models.family.codes import CodingTransformer
from annealfit.problems.problem import Problems

PATCHES_AT_ONCE = 1 << 16  # bounds the memory of a transform


@dataclass(repr=False, eq=False)
class BinarySparseCoding(CodingTransformer):
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
        Code the patches of so many pixels in height and width, each without its mean; rows are images then, of shape
        (N, H, W) or square and flat. None codes whole rows.
    stride : int
        Pixels between patches.
    pool : int or None
        Add up the codes of the patches in the cells of a grid of so many rows and columns. None keeps every patch's.
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

    _numbers = (*CodingTransformer._numbers, "penalty_")
    _arrays: ClassVar = {"components_": "MQ", "objective_": "I"}  # Q are the pixels of a patch

    n_components: int = 64
    bits: int = 1
    _: KW_ONLY
    sparsity: float = 0.05
    patch_size: int | None = None
    stride: int = 1
    pool: int | None = None
    max_iter: int = 10
    max_samples: int = 20_000
    sampler: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the dictionary to rows (N, D) or images; y is not used."""
        generator = self._start()
        check_number("stride", self.stride, Integral, minimum=1)
        check_number("max_samples", self.max_samples, Integral, minimum=1)
        check_number("sparsity", self.sparsity, minimum=0)
        for name in ("patch_size", "pool"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Integral, minimum=1)
        patches = self._patches(self._checked(X, reset=True))
        cells = patches.shape[1:3] if self.pool is None else (int(self.pool),) * 2
        if min(patches.shape[1:3]) < max(cells):
            raise InvalidInputError(f"pool is {self.pool}; there are {patches.shape[1]} × {patches.shape[2]} patches")
        self._n_features_out = cells[0] * cells[1] * int(self.n_components)
        rows = self._drawn(patches, generator)
        self.penalty_ = self.sparsity * (float(np.vecdot(rows, rows).mean()) or 1.0)
        self.components_ = self._alternate(rows, self.penalty_, generator, lowest=-np.inf)
        return self

    def transform(self, X: Any) -> Array:
        """Return the codes of rows (N, M), or those of all patches or cells of each image side by side (N, P·M)."""
        patches = self._patches(self._rows(X))
        found = np.empty((len(patches), self._n_features_out), dtype=patches.dtype)
        images = max(1, PATCHES_AT_ONCE // (patches.shape[1] * patches.shape[2]))
        with self._solver(self._seed, count=False) as solver:
            for first in range(0, len(patches), images):
                part = slice(first, first + images)
                codes = self._codes(self._flat(patches[part]), self.components_, self.penalty_, solver)
                codes = self._pooled(codes.reshape(*patches[part].shape[:3], -1))
                found[part] = codes.reshape(len(codes), -1)
        return found

    def problems(self, X: Any) -> Problems:
        """Return the problems of coding rows, or all patches of images, with the fitted dictionary."""
        return self._code_problems(self._flat(self._patches(self._rows(X))), self.components_, self.penalty_)

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
        return self._flat(patches[np.unravel_index(places, patches.shape[:3])])

    def _pooled(self, codes: Array) -> Array:
        """Return the sums of codes (N, rows of patches, columns of them, M) in the cells of the grid."""
        if self.pool is not None:
            for axis in (1, 2):
                starts = np.arange(self.pool) * codes.shape[axis] // self.pool
                codes = np.add.reduceat(codes, starts, axis=axis)
        return codes

    def _flat(self, patches: Array) -> Array:
        """Return patches (…, height, width) as rows in double precision, those of images without their means."""
        rows = patches.reshape(-1, patches.shape[-2] * patches.shape[-1]).astype(np.float64)
        return rows if self.patch_size is None else rows - rows.mean(axis=1, keepdims=True)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
