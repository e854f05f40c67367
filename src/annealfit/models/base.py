"""What the classifiers here have in common: everything but what they make of X, and which weights they train."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from annealfit._support.errors import check_number
from annealfit._support.files import StrPath, read_tensors, write_tensors
from annealfit._support.schema import Field, TensorFields
from annealfit._support.threads import blas_threads
from annealfit.models import files
from annealfit.models.compiling import compile_training
from annealfit.models.data import LabelledTable, TrainingData, training_tables
from annealfit.models.messages import narrating, warn_of_end
from annealfit.models.predictions import LinearPredictions
from annealfit.models.settings import initialization_of, make_plan
from annealfit.models.start import Weights, rollback_on_error, seed_of_training, start_of_training
from annealfit.problems.coordinates import Coordinates
from annealfit.problems.problem import Problems
from annealfit.samplers import Sampler
from annealfit.samplers.catalogue import default_sampler, opened_sampler, resolve_sampler
from annealfit.samplers.protocol import Preflight
from annealfit.training import (
    HistoryRow,
    Plan,
    PrecisionPolicy,
    RangePolicy,
    Trainer,
    TrainingResult,
    TrainingState,
)
from annealfit.training.acceptance import Acceptance
from annealfit.training.initialization import Initialization
from annealfit.training.loop import Callback
from annealfit.training.objectives import CurvatureFunction, in_turns

if TYPE_CHECKING:
    from annealfit.models.low_bit import LowBitReport
    from annealfit.quantization import Grid, Refinement


class AnnealedEstimator(LinearPredictions, ClassifierMixin, BaseEstimator):
    """A classifier that is trained by annealing: settings, data, checkpoints, messages, files.

    A kind of classifier checks its inputs, makes an objective of tables, and keeps the weights that were found.
    """

    _kind_of_file: ClassVar[str]

    # The settings that all kinds have; what they mean, the kinds say.
    bits: int
    max_iter: int
    regularization: float
    curvature: str | CurvatureFunction | None
    coordinates: str | Coordinates
    acceptance: str | Acceptance
    range_policy: str | RangePolicy
    precision_policy: str | PrecisionPolicy
    update_range: float | None
    step: float
    max_couplings: int | None
    initialization: str | Initialization
    sampler: Sampler | str | None
    class_weight: Mapping[Any, float] | str | None
    tol: float
    patience: int | None
    time_limit: float | None
    validation_fraction: float | None
    early_stopping: bool
    warm_start: bool
    random_state: Any
    callbacks: Sequence[Callback] | None
    checkpoint: StrPath | None
    checkpoint_every: int
    resume: bool
    verbose: int

    @abstractmethod
    def _checked_inputs(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        """X and y as arrays; with `reset` the estimator takes note of X's shape, without it they have to agree."""

    @abstractmethod
    def _data_of_tables(
        self, table: LabelledTable, held_out: LabelledTable | None, classes: NDArray[Any], seed: int
    ) -> TrainingData:
        """The objective of a table, and of one to validate on."""

    @abstractmethod
    def _first_weights(self, data: TrainingData, seed: int) -> Weights:
        """Where a training starts from: an array, or one for each part of the objective."""

    @abstractmethod
    def _set_weights(self, weights: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep the weights of every part as attributes."""

    def _plan(self, seed: int) -> Plan:
        return make_plan(self, seed)

    def _training_data(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, validation_data: Any, seed: int
    ) -> TrainingData:
        return self._data_of_tables(*training_tables(self, X, y, sample_weight, validation_data, seed), seed)

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
        HDF5 array, a Dask array (docs/large.md); for a network of convolutions, images. `sample_weight` (N,)
        says how much each row counts: whole numbers are repetitions, zero is absence. `validation_data` is a tuple
        (X, y) on which every iteration is measured.

        Ctrl-C raises `KeyboardInterrupt`, after the checkpoint, if there is one, is written; the classifier holds
        what was learnt so far.
        """
        with rollback_on_error(self):
            seed = seed_of_training(self)
            plan = self._plan(seed)
            data = self._training_data(X, y, sample_weight, validation_data, seed)
            compile_training(plan, data.objective, len(data.classes))
            with opened_sampler(self.sampler, seed) as sampler:
                trainer = Trainer(data.objective, sampler, plan, data.validation)
                state, history, checkpoint = start_of_training(self, trainer, data)
                trainer.preflight(state)  # before anything is paid for
                with narrating(self.verbose, self.max_iter) as narrators:
                    callbacks = [*narrators, *(self.callbacks or ())]
                    result = trainer.run(state, history=history, callbacks=callbacks, checkpoint=checkpoint)
            if result.stop_reason == "interrupted" and not result.history:
                raise KeyboardInterrupt
            self._keep(data, result)
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return self

    def problems(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None, *, after: int = 0
    ) -> Problems:
        """The problems of an iteration of a training, for export or for other solvers: the first, or a later one.

        A head has one per class. Iterations before it, if any, are carried out with the sampler.

        >>> from sklearn.datasets import load_iris
        >>> from annealfit import AnnealedClassifier
        >>> first, *_ = AnnealedClassifier(bits=2, random_state=0).problems(*load_iris(return_X_y=True))
        >>> first.n_variables
        10
        """
        check_number("after", after, Integral, minimum=0)
        if not after:
            trainer, state = self._before_training(X, y, sample_weight, default_sampler())  # no sampler sees them here
            return trainer.problems(state)
        with opened_sampler(self.sampler, seed_of_training(self)) as sampler:
            trainer, state = self._before_training(X, y, sample_weight, sampler)
            result = trainer.run(state, callbacks=[lambda iteration: iteration.state.iteration >= after])
            return trainer.problems(result.state)

    def preflight(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Preflight | None:
        """What one step of every layer would cost on the sampler's device; None where there is no device.

        A device that cannot take such problems says so, before anything is paid for. Without a device the settings
        are checked and the data are not read.
        """
        seed = seed_of_training(self)
        self._plan(seed)
        initialization_of(self)
        with opened_sampler(self.sampler, seed) as sampler:
            if not sampler.has_preflight:
                return None
            trainer, state = self._before_training(X, y, sample_weight, sampler)
            return trainer.preflight(state)

    def _before_training(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, sampler: Sampler
    ) -> tuple[Trainer, TrainingState]:
        """A training that starts anew, of a clone: nothing here changes."""
        blank = clone(self).set_params(checkpoint=None, resume=False, warm_start=False)
        seed = seed_of_training(blank)
        plan = blank._plan(seed)
        data = blank._training_data(X, y, sample_weight, None, seed)
        trainer = Trainer(data.objective, sampler, plan)
        return trainer, start_of_training(blank, trainer, data)[0]

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `sampler__num_reads` and its like set those of the sampler."""
        given = params.get("sampler", self.sampler)
        if any(name.startswith("sampler__") for name in params) and not isinstance(given, Sampler):
            params = {"sampler": resolve_sampler(given), **{n: v for n, v in params.items() if n != "sampler"}}
        return super().set_params(**params)

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
        """A copy of the fitted classifier whose weights have `bits` bits each; this one stays as it is.

        With X, some hundred rows or more, levels are chosen so that outputs change as little as possible, by
        annealing (`method=None`) or otherwise: `annealfit.quantization.quantize_layer` says how, and what `levels`
        there are. With labels y besides, the levels of the head are then moved along its loss (`refinement`, an
        `annealfit.quantization.Refinement`). Without X weights are rounded to the nearest level. Biases and one scale
        for each output are not rounded. The copy's `quantization_` has the levels, scales, errors and losses.

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
            self,
            X,
            y,
            bits=bits,
            levels=levels,
            method=method,
            refinement=refinement,
            random_state=random_state,
        )

    def _quantize_layers(self, found: Self, X: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Quantise the layers below the head, in `found`, and say what each gave; a linear classifier has none."""
        return {}

    quantization_: LowBitReport

    def save(self, path: StrPath) -> None:
        """Write the fitted classifier to one safetensors file (no pickle; see `annealfit._support.files`)."""
        tensors, manifest = self.to_tensors()
        write_tensors(path, self._kind_of_file, tensors, manifest)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a classifier written by `save`; corrupt, truncated or foreign files are refused."""
        return cls.from_tensors(*read_tensors(path, cls._kind_of_file))

    def to_tensors(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The fitted classifier as tensors and a JSON manifest, to be stored in a file of any kind."""
        return files.to_tensors(self)

    @classmethod
    def from_tensors(cls, tensors: Any, manifest: Any) -> Self:
        """The inverse of `to_tensors`; what does not describe such a classifier is refused."""
        return files.from_tensors(cls, TensorFields.of(tensors), Field.of(manifest))

    def _keep(self, data: TrainingData, result: TrainingResult) -> None:
        """Take over what was learnt: all of it at once, so that a fit that fails leaves nothing half fitted."""
        best = result.state.best if self.early_stopping else None
        with blas_threads(data.objective.multiplications):
            point = result.point
            if best is not None:
                point = in_turns(data.objective).at(result.state.part, best.parts)
            self.optimality_gap_ = max(point.loss - point.lower_bound(), 0.0)
        self._set_fitted(result.state.all_weights if best is None else best.parts, data.classes, result)
        for name in ("best_iteration_", "_partial"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if best is not None:
            self.best_iteration_ = best.iteration
        warn_of_end(self, result, point.loss)

    history_: list[HistoryRow]

    def _set_fitted(
        self, weights: Mapping[str, NDArray[np.float64]], classes: NDArray[Any], result: TrainingResult
    ) -> None:
        self.classes_ = classes
        self._set_weights(weights)
        self.n_iter_ = result.state.iteration
        self.history_ = result.history
        self.stop_reason_ = result.stop_reason
