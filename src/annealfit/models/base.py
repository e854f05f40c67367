"""What the estimators share: fitting, checkpoints, problems for other solvers, low-bit copies, files."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numba  # noqa: F401  (loaded with the estimators, so that the first fit need not wait for it)
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from annealfit._support.arrays import Array
from annealfit._support.errors import BudgetExhaustedError, CheckpointError, InvalidInputError, check_number
from annealfit._support.files import StrPath, read_tensors, remove_leftovers, write_tensors
from annealfit._support.randomness import seed_of
from annealfit._support.schema import Field, TensorFields
from annealfit._support.settings import Settings
from annealfit._support.threads import blas_threads
from annealfit.models import files
from annealfit.models.data import LabelledTable, TrainingData, training_tables
from annealfit.models.messages import load_compiled_code, narrating, warn_of_end
from annealfit.models.predictions import LinearPredictions
from annealfit.models.settings import (
    check_settings,
    checkpoint_of,
    sampler_of,
    training_settings,
    translate_old,
    upgrade_settings,
)
from annealfit.problems.problem import Problems
from annealfit.samplers import Sampler
from annealfit.samplers.catalogue import default_sampler, opened_sampler, resolve_sampler
from annealfit.samplers.protocol import Preflight
from annealfit.training import Checkpoint, HistoryRow, Method, TrainingResult, run
from annealfit.training.checkpoint import CheckpointFile, checkpoint_file, is_folder, stored_seed
from annealfit.training.method import as_method
from annealfit.training.objectives import LinearHead
from annealfit.training.trainer import Callback

if TYPE_CHECKING:
    from annealfit.models.low_bit import LowBitReport
    from annealfit.quantization import Grid, Refinement


class _Attributes:
    """Parameters of the subclasses, and attributes of a fitted estimator."""

    bits: int
    max_iter: int
    regularization: float
    tol: float = 0.0  # of an estimator without certificates
    _kind_of_file: str

    history_: list[HistoryRow]
    quantization_: LowBitReport


@dataclass(kw_only=True, repr=False, eq=False)
class AnnealedEstimator(LinearPredictions, _Attributes, ClassifierMixin, BaseEstimator):
    """A classifier trained by annealing. A subclass turns data into an objective and keeps the weights found."""

    method: str | Method = "annealfit"
    sampler: Any = None
    class_weight: Mapping[Any, float] | str | None = None
    patience: int | None = 50
    time_limit: float | None = None
    validation_fraction: float | None = None
    early_stopping: bool = False
    warm_start: bool = False
    random_state: Any = None
    callbacks: Sequence[Callback] | None = None
    checkpoint: StrPath | Checkpoint | None = None
    verbose: int = 0

    @abstractmethod
    def _checked_inputs(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        """Return X and y as arrays; with `reset` the estimator stores the number of features, else it is compared."""

    @abstractmethod
    def _data_of_tables(
        self, table: LabelledTable, held_out: LabelledTable | None, classes: NDArray[Any], seed: int
    ) -> TrainingData:
        """Return the objective of a table, and that of the validation table."""

    @abstractmethod
    def _first_weights(self, data: TrainingData, seed: int) -> Any:
        """Return the initial weights."""

    @abstractmethod
    def _trainer(self, data: TrainingData, sampler: Sampler, seed: int) -> Any:
        """Return the trainer of the objective."""

    def _training_data(self, X: Any, y: Any, sample_weight: Any, validation_data: Any, seed: int) -> TrainingData:
        return self._data_of_tables(*training_tables(self, X, y, sample_weight, validation_data, seed), seed)

    def _check_settings(self) -> None:
        check_settings(self)
        as_method(self.method).resolved()

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        validation_data: Any = None,
    ) -> Self:
        """Train on X and N labels of any type; at least two classes.

        X are features of shape (N, d), dense or sparse, or a table that need not fit into memory: a memory-mapped or
        HDF5 array, a Dask array (docs/large.md); for a network, images. `sample_weight` (N,) are the weights of the
        rows: integers are repetitions, zero is absence. `validation_data` is a tuple (X, y) on which every iteration
        is evaluated.

        Ctrl-C raises `KeyboardInterrupt` after the checkpoint, if there is one, is written; the classifier holds the
        weights that were reached.
        """
        with rollback_on_error(self):
            self._check_settings()
            seed = self._seed()
            load_compiled_code()
            data = self._training_data(X, y, sample_weight, validation_data, seed)
            with opened_sampler(sampler_of(self), seed) as sampler:
                sampler.prepare()
                began = time.perf_counter()
                trainer = self._trainer(data, sampler, seed)
                state, history, file = self._start(trainer, data, seed)
                seconds = time.perf_counter() - began
                trainer.preflight(state)  # before anything is paid for
                with narrating(self.verbose, self.max_iter) as narrators:
                    callbacks = [*narrators, *(self.callbacks or ())]
                    result = run(
                        trainer, state, history=history, callbacks=callbacks, checkpoint=file, seconds_before=seconds
                    )
            if result.stop_reason == "interrupted" and not result.history:
                raise KeyboardInterrupt
            self._store(data, result)
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return self

    def _seed(self) -> int:
        """Return the seed. A seed that was drawn at random is read from the checkpoint that is resumed."""
        checkpoint = checkpoint_of(self)
        if checkpoint is not None and checkpoint.resume and not isinstance(self.random_state, Integral):
            if is_folder(checkpoint.path):
                raise InvalidInputError(
                    f"resume=True with the folder of checkpoints {checkpoint.path} needs random_state to be a number, "
                    "by which the training's own file is found"
                )
            if Path(checkpoint.path).exists():
                return stored_seed(Path(checkpoint.path))
        return seed_of(self.random_state)

    def _start(
        self, trainer: Any, data: TrainingData, seed: int
    ) -> tuple[Any, list[HistoryRow], CheckpointFile | None]:
        """Return the state and the history to start from, and the file to save them in."""
        checkpoint = checkpoint_of(self)
        if checkpoint is None:
            return trainer.start(self._first_weights(data, seed)), [], None
        validation = None if data.held_out is None else data.held_out.digest()
        settings = training_settings(self, trainer.sampler, seed, data.source.digest(), validation)
        path = checkpoint_file(checkpoint.path, settings)
        file = CheckpointFile(path, int(checkpoint.every), settings, upgrade_settings(self, trainer.sampler))
        if not path.exists():
            file.check_writable()
            return trainer.start(self._first_weights(data, seed)), [], file
        if not checkpoint.resume:
            folder = "a folder, which keeps the checkpoints of different trainings apart"
            other = "another folder" if is_folder(checkpoint.path) else folder
            raise CheckpointError(
                f"{path} exists; pass Checkpoint(path, resume=True) to continue it, remove it to start anew, "
                f"or name {other}"
            )
        remove_leftovers(path.parent)
        state, history = file.load()
        _check_shapes(path, state.weights, self._first_weights(data, seed))
        trainer.sampler.restore_usage(history)
        return state, history, file

    def _initial_head(self, head: LinearHead, seed: int) -> Array:
        """Return the weights that the method's initialization gives, checked."""
        initialization = as_method(self.method).resolved().initialization
        weights, expected = np.asarray(initialization(head, seed)), (head.n_parameters, head.n_outputs)
        if weights.shape != expected or weights.dtype.kind not in "fiu" or not np.isfinite(weights).all():
            raise InvalidInputError(
                f"the initialization gave {weights.dtype} of shape {weights.shape}; expected finite numbers, {expected}"
            )
        return weights.astype(float, copy=False)

    def _check_warm_start(self, classes: NDArray[Any], n_features: int) -> None:
        if not np.array_equal(self.classes_, classes) or self.coef_.shape[1] != n_features:
            raise InvalidInputError(
                f"warm_start=True continues a training on {self.coef_.shape[1]} features and the classes "
                f"{self.classes_.tolist()}; these data have {n_features} and {classes.tolist()}"
            )

    def _set_weights(self, weights: Any) -> None:
        """Store the weights that a training found."""
        self._set_head(weights)

    def _set_head(self, weights: NDArray[np.float64]) -> None:
        """Store the weights (D, outputs) of the head, the biases in the last row."""
        self.coef_ = np.ascontiguousarray(weights[:-1].T)
        self.intercept_ = weights[-1].copy()

    @property
    def _head_weights(self) -> Array:
        """The fitted weights of the head (D, outputs), the biases in the last row."""
        return np.vstack([self.coef_.T, self.intercept_])

    def problems(self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None, *, after: int = 0) -> Problems:
        """Return the problems of the iteration that follows `after` others, for other solvers.

        A head has one problem per class. The sampler solves the iterations before.

        >>> from sklearn.datasets import load_iris
        >>> from annealfit import AnnealedClassifier
        >>> first, *_ = AnnealedClassifier(bits=2, random_state=0).problems(*load_iris(return_X_y=True))
        >>> first.n_variables
        10
        """
        check_number("after", after, Integral, minimum=0)
        if not after:
            trainer, state = self._before_training(X, y, sample_weight, default_sampler())
            return trainer.problems(state)
        with opened_sampler(sampler_of(self), self._seed()) as sampler:
            trainer, state = self._before_training(X, y, sample_weight, sampler)
            result = run(trainer, state, callbacks=[lambda iteration: iteration.state.iteration >= after])
            if result.stop_reason == "interrupted":
                raise KeyboardInterrupt
            if result.stop_reason == "budget":
                raise BudgetExhaustedError(
                    f"the sampler's budget is used up after {result.state.iteration} of {after} iterations; "
                    "ask for problems of an earlier one, or raise the budget"
                )
            return trainer.problems(result.state)

    def preflight(self, X: Any, y: ArrayLike | None = None, sample_weight: Any = None) -> Preflight | None:
        """Return what one step of every layer costs on the sampler's device; None without a device.

        A device that cannot take such problems raises, before anything is paid for. Without a device the settings are
        checked and the data are not read.
        """
        self._check_settings()
        with opened_sampler(sampler_of(self), self._seed()) as sampler:
            if not sampler.has_preflight:
                return None
            trainer, state = self._before_training(X, y, sample_weight, sampler)
            return trainer.preflight(state)

    def _before_training(self, X: Any, y: Any, sample_weight: Any, sampler: Sampler) -> tuple[Any, Any]:
        """Return the trainer and the first state of a new training of a clone."""
        blank = clone(self).set_params(checkpoint=None, warm_start=False)
        blank._check_settings()
        seed = blank._seed()
        data = blank._training_data(X, y, sample_weight, None, seed)
        trainer = blank._trainer(data, sampler, seed)
        return trainer, trainer.start(blank._first_weights(data, seed))

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `sampler__num_reads` and `method__curvature` reach into the sampler and the method."""
        names = set(type(self)._get_param_names())
        nested = {name: value for name, value in params.items() if "__" in name}
        old = {name: value for name, value in params.items() if name not in names and name not in nested}
        super().set_params(**{name: value for name, value in params.items() if name in names})
        if old:
            translate_old(self, old, stacklevel=3)
        for name, value in nested.items():
            outer, _, inner = name.partition("__")
            current = self._as_settings(outer)
            if not isinstance(current, Settings):
                raise ValueError(f"Invalid parameter {name!r}: {outer} is {current!r}, which has no {inner}")
            setattr(self, outer, current.set_params(**{inner: value}))
        return self

    def _as_settings(self, name: str) -> Any:
        """Return a parameter as an object with settings: words and paths become the objects they stand for."""
        given = getattr(self, name, None)
        if name == "sampler":
            return resolve_sampler(sampler_of(self))
        if name == "method":
            return as_method(given)
        return Checkpoint(given) if name == "checkpoint" and not isinstance(given, Settings | None) else given

    def quantize(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        bits: int = 2,
        levels: str | Grid = "symmetric",
        method: Any = None,
        refinement: Refinement | None = None,
        random_state: Any = 0,
    ) -> Self:
        """Return a copy of the fitted classifier whose weights have `bits` bits each.

        With X, some hundred rows or more, the levels are those that change the outputs least, found by annealing or by
        another `method` (see `annealfit.quantization.quantize_layer`, also for `levels`). With labels y, a
        `Refinement` then moves the levels of the head along its loss. Without X weights are rounded to the nearest
        level. Biases and one scale per output are not rounded. The copy's `quantization_` has the levels, scales,
        errors and losses.

        >>> from sklearn.datasets import load_iris
        >>> from annealfit import AnnealedClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> small = AnnealedClassifier(max_iter=20, random_state=0).fit(X, y).quantize(X, y, bits=1)
        >>> sorted(set(small.quantization_.head.levels.ravel().tolist())), small.score(X, y) > 0.9
        ([-1, 1], True)
        """
        from annealfit.models.low_bit import quantized  # here: training does not need it

        check_is_fitted(self, "coef_")
        return quantized(
            self, X, y, bits=bits, levels=levels, method=method, refinement=refinement, random_state=random_state
        )

    def save(self, path: StrPath) -> None:
        """Write the fitted classifier to one safetensors file (no pickle; see `annealfit._support.files`)."""
        tensors, manifest = self.to_tensors()
        write_tensors(path, self._kind_of_file, tensors, manifest)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a classifier written by `save`; corrupt, truncated or foreign files are refused."""
        return cls.from_tensors(*read_tensors(path, cls._kind_of_file))

    def to_tensors(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the fitted classifier as tensors and a JSON manifest, to be stored in a file of any kind."""
        return files.to_tensors(self)

    @classmethod
    def from_tensors(cls, tensors: Any, manifest: Any) -> Self:
        """Invert `to_tensors`; what does not describe such a classifier is refused."""
        return files.from_tensors(cls, TensorFields.of(tensors), Field.of(manifest))

    def _store(self, data: TrainingData, result: TrainingResult) -> None:
        """Store the result of a training as attributes."""
        best = result.state.best if self.early_stopping else None
        weights = result.state.weights if best is None else best.weights
        with blas_threads(data.objective.multiplications):
            point: Any = result.point if best is None else data.objective.at(weights)
            loss = getattr(point, "exact_loss", point.loss)
            self.optimality_gap_ = max(loss - point.lower_bound(), 0.0)
        self._set_fitted(weights, data.classes, result)
        for name in ("best_iteration_", "_partial"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if best is not None:
            self.best_iteration_ = best.iteration
        warn_of_end(self, result, loss, data.objective)

    def _set_fitted(self, weights: Any, classes: NDArray[Any], result: TrainingResult) -> None:
        self.classes_ = classes
        self._set_weights(weights)
        self.n_iter_ = result.state.iteration
        self.history_ = result.history
        self.stop_reason_ = result.stop_reason


def _check_shapes(path: Path, stored: Any, wanted: Any) -> None:
    """Raise unless weights from a checkpoint have the shapes of those to train."""
    shapes = [
        {name: own.shape for name, own in weights.items()} if isinstance(weights, Mapping) else weights.shape
        for weights in (stored, wanted)
    ]
    if shapes[0] != shapes[1]:
        raise CheckpointError(
            f"{path} holds weights of shape {shapes[0]}, and this version trains {shapes[1]}: "
            "0.1.0 had two outputs for two classes; start anew with another checkpoint path"
        )


@contextmanager
def rollback_on_error(estimator: AnnealedEstimator) -> Iterator[None]:
    """Restore the attributes of an estimator whose fit fails."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
