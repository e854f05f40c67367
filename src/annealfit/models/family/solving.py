"""What the models of the family share: a sampler in use, with an account of what it solved, and checks of settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit._support.arrays import Array, unique_labels
from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit._support.files import StrPath, read_tensors, write_tensors
from annealfit._support.randomness import child_seeds, seed_of
from annealfit._support.schema import Field, TensorFields
from annealfit.models.family import saving
from annealfit.problems.encoding import Encoding
from annealfit.problems.levels import Levels
from annealfit.problems.problem import Problems
from annealfit.samplers import Sampler, Samples
from annealfit.samplers.catalogue import opened_sampler
from annealfit.samplers.protocol import solve_checked

PROBLEMS_AT_ONCE = 1 << 14  # bounds memory: a problem's answer is an object


class Solver:
    """A sampler in use: solves batches of problems, and counts."""

    def __init__(self, sampler: Sampler, seed: int) -> None:
        self.sampler, self.seed = sampler, seed
        self.calls = self.n_solves = self.n_variables = 0

    def solve(self, problems: Problems, *, same_seed: bool = False) -> tuple[NDArray[np.uint8], Array]:
        """Return the best bits (P, D, K) and energies (P,) of problems with a common curvature."""
        bits = np.empty((len(problems), problems.n_parameters, problems.bits), dtype=np.uint8)
        energies = np.empty(len(problems))
        for place, answer in enumerate(self.answers(problems, same_seed=same_seed)):
            bits[place], energies[place] = answer.best_bits, answer.best_energy
        return bits, energies

    def answers(self, problems: Problems, *, same_seed: bool = False) -> Iterator[Samples]:
        """Yield the answers to problems with a common curvature.

        Seeds are children of the solver's by call and problem. With the `same_seed` for all, an answer depends on its
        problem alone and not on its place among others, as is asked of a transformer.
        """
        count = len(problems)
        seeds = np.full(count, self.seed) if same_seed else child_seeds(self.seed, self.calls, np.arange(count))
        self.calls += 1
        self.n_solves += count
        self.n_variables = max(self.n_variables, problems.n_parameters * problems.bits)
        for first in range(0, count, PROBLEMS_AT_ONCE):
            part = slice(first, first + PROBLEMS_AT_ONCE)
            for place, answer in enumerate(solve_checked(self.sampler, problems[part], seeds[part].tolist()), first):
                if answer.failure is not None:
                    raise SamplerError(f"problem {place + 1} of {count} was not solved: {answer.failure}")
                yield answer


class QUBOEstimator(BaseEstimator):
    """A model whose problems have `bits` bits per parameter and are solved by `sampler`.

    After `fit`, `n_solves_` is the number of problems solved and `n_variables_` that of the bits of the largest.
    """

    # What a file holds besides settings and labels: numbers, and arrays with a letter for each dimension. D are the
    # features, C the classes, P the targets of a classifier; other letters are equal where they stand for one model.
    _numbers: ClassVar[tuple[str, ...]] = ("n_solves_", "n_variables_")
    _arrays: ClassVar[dict[str, str]]
    _default_sampler: ClassVar[str | None] = None  # the word of what solves the problems if the user names nothing

    bits: int
    sampler: Any
    random_state: Any
    n_solves_: int
    n_variables_: int

    def save(self, path: StrPath) -> None:
        """Write the fitted model to one safetensors file (no pickle)."""
        write_tensors(path, type(self).__name__, *self.to_tensors())

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a model written by `save`; corrupt, truncated or foreign files are refused."""
        return cls.from_tensors(*read_tensors(path, cls.__name__))

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fitted model as tensors and a JSON manifest, to be stored in a file of any kind."""
        return saving.to_tensors(self)

    @classmethod
    def from_tensors(cls, tensors: Any, manifest: Any) -> Self:
        """Invert `to_tensors`; what does not describe such a model is refused."""
        return saving.from_tensors(cls, TensorFields.of(tensors), Field.of(manifest))

    def _state(self) -> dict[str, Any]:
        """Return the numbers and the arrays that predictions need."""
        return {name: getattr(self, name) for name in (*self._numbers, *self._arrays) if hasattr(self, name)}

    def _restore(self, state: dict[str, Any]) -> None:
        """Take over what `_state` returned."""
        self.__dict__.update(state)

    @property
    def _levels(self) -> Levels:
        """The values of a parameter that is not below 0."""
        return Levels(0.0, 1.0, self.bits)

    def _rows(self, X: Any) -> Array:
        """Return the rows (N, D) that a fitted model is asked about, checked."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)

    @contextmanager
    def _solver(self, seed: int | None = None, *, count: bool = True) -> Iterator[Solver]:
        """Open the sampler; at the end the account is kept, unless it is a transform's or a prediction's."""
        Encoding(self.bits, 1.0)
        own = seed_of(self.random_state) if seed is None else seed
        with opened_sampler(self._default_sampler if self.sampler is None else self.sampler, own) as sampler:
            solver = Solver(sampler, own)
            yield solver
        if count:
            self.n_solves_, self.n_variables_ = solver.n_solves, solver.n_variables


class QUBOClassifier(ClassifierMixin, QUBOEstimator):
    """A model that gives every class a score."""

    classes_: NDArray[Any]

    @abstractmethod
    def _scores(self, X: Any) -> Array:
        """Return the scores of the classes (N, C); of two classes, that of the second may stand alone, (N, 1)."""

    def decision_function(self, X: Any) -> Array:
        """Return the scores of the classes (N, C); of two classes, by how much that of the second is larger, (N,)."""
        scores = self._scores(X)
        if len(self.classes_) > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label with the largest score, (N,)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    def _signs(self, y: Any) -> Array:
        """Set `classes_` and return ±1 for each class against the others, (P, N); P is 1 for two classes."""
        signs = np.where(self._present(y).T, 1.0, -1.0)
        return signs if len(signs) > 2 else signs[1:]

    def _labelled(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Return the rows (N, D), checked, and their labels as 0 and 1 (N, C); without labels C is 0."""
        if y is None:
            for name in ("classes_", "label_components_"):  # of an earlier fit
                self.__dict__.pop(name, None)
            X = validate_data(self, X, dtype=np.float64)
            return X, np.empty((len(X), 0))
        X, y = validate_data(self, X, y, dtype=np.float64)
        return X, self._present(y).astype(np.float64)

    def _present(self, y: Any) -> NDArray[np.bool_]:
        """Set `classes_` and return whether each row is of each class, (N, C); there are two classes at least."""
        self.classes_ = unique_labels(y)
        check_classification_targets(y)
        codes = np.searchsorted(self.classes_, y)
        if len(self.classes_) < 2:
            raise InvalidInputError(f"y has one class, {self.classes_.tolist()}; a classifier needs at least two")
        return codes[:, None] == np.arange(len(self.classes_))
