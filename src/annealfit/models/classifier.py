"""AnnealedClassifier: a scikit-learn classifier whose weights are found by annealing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from annealfit._support.arrays import Array, check_stored
from annealfit._support.errors import BudgetExhaustedError, InvalidInputError, choose
from annealfit._support.randomness import seed_of
from annealfit.data.rows import Rows, is_dask, is_out_of_core
from annealfit.models.base import AnnealedEstimator, rollback_on_error
from annealfit.models.data import (
    LabelledTable,
    TrainingData,
    are_plain,
    batch_data,
    check_classes,
    checked_table,
    data_of_dask,
    data_of_own_rows,
)
from annealfit.models.messages import load_compiled_code, narrating, warn_of_failures
from annealfit.models.settings import accept_old_keywords, described_settings, paper_annealer, sampler_of, stopping_of
from annealfit.problems.encoding import Encoding
from annealfit.samplers import Sampler
from annealfit.samplers.catalogue import opened_sampler
from annealfit.training import Stopping, Trainer, run
from annealfit.training.method import as_method

PRESETS = ("literal", "matched")


@accept_old_keywords
@dataclass(repr=False, eq=False)
class AnnealedClassifier(AnnealedEstimator):
    """Linear classifier trained by QUBO solves: one per class and iteration; one per iteration for two classes.

    At every iteration the regularised cross-entropy is replaced by a convex quadratic surrogate; a sampler minimises it
    over `bits`-bit weight updates in [−δ, δ], and the update is applied.

    Parameters
    ----------
    bits : int
        Bits per weight update, K, from 1 to 30. Each class's problem has (d+1)·K binary variables.
    max_iter : int
        Maximum number of iterations.
    regularization : float
        λ of the penalty ½λ‖w‖² on the weights (not on the biases). With N rows, scikit-learn's C is 1/(λN).
    method : {"annealfit", "descent", "literal", "matched"} or `annealfit.Method`
        How updates are chosen and applied. "annealfit" searches along the updates for a lower loss; "descent" relies
        on an upper bound of the loss, which then decreases at every iteration by theorem; "literal" and "matched" are
        the paper's (`from_paper`). A `Method` sets curvature, coordinates, acceptance rule and more one by one.
    sampler : Sampler, dimod sampler, word or None
        What solves the problems: an object of `annealfit.samplers`, any dimod sampler, or a word as on the command
        line ("rounded", "native:num_reads=4"). None is `LevelAnnealer()`, for the paper's methods its annealer.
    class_weight : dict, "balanced" or None
        Weights of the classes, as in scikit-learn.
    tol : float
        Stop when the loss is certified to be within this share of the optimum; 0 never does.
    patience : int or None
        Stop after this many iterations without a gain.
    time_limit : float or None
        Stop after this many seconds.
    validation_fraction : float or None
        Share of the rows to hold out, class by class, and to evaluate every iteration on. `fit` takes
        `validation_data` instead.
    early_stopping : bool
        Let `patience` count iterations without a gain on the validation data, and keep the weights that did best there.
    warm_start : bool
        Start from the weights of the previous `fit`.
    random_state : int, RandomState or None
        Seed of the initial weights, the validation split and every anneal.
    callbacks : sequence of callables, or None
        Each is called with an `annealfit.training.Iteration` (`.state`, `.row`) after every iteration; a true
        return value ends the training.
    checkpoint : path, `annealfit.Checkpoint` or None
        Where the training is saved: every 50 iterations and when it ends, or as the `Checkpoint` says, which can also
        resume it.
    verbose : int
        0 is silent, 1 writes about a line per second, 2 a line per iteration.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (C, d) and (C,); for two classes (1, d) and (1,)
    classes_ : the labels, sorted, shape (C,)
    n_iter_ : iterations done
    history_ : list of dicts
        A row per iteration (`annealfit.training.HistoryRow`); `pandas.DataFrame(clf.history_)` makes a table of it.
    stop_reason_ : {"tolerance", "max_iter", "plateau", "validation", "time_limit", "callback", "interrupted", \
            "budget", "sampler"}
        "budget": that of the sampler was used up. "sampler": it solved nothing for five iterations.
    optimality_gap_ : float
        Certified: the loss is at most this far above its optimum (infinite at λ = 0).
    best_iteration_ : int
        With `early_stopping`: the iteration whose weights were kept.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AnnealedClassifier(random_state=0).fit(X, y)
    >>> clf.coef_.shape, clf.stop_reason_, clf.score(X, y) > 0.9
    ((3, 4), 'tolerance', True)

    """

    _kind_of_file = "classifier"

    bits: int = 3
    max_iter: int = 1000
    regularization: float = 1e-3
    tol: float = field(default=1e-4, kw_only=True)

    @classmethod
    def from_paper(cls, bits: int = 20, preset: str = "literal", *, num_sweeps: int = 100) -> Self:
        """Return Algorithm 1 of the paper with its settings: δ = 0.5, λ = 0.001, 1000 iterations, every update applied.

        `preset="literal"` anneals as printed, β from 0.01 to 3 on coefficients divided by the largest; at that
        temperature updates are mostly noise, whatever the bits. `preset="matched"` multiplies the final β by 2^(K−3),
        with which the paper's results on digits come out. `num_sweeps` is 100 in the paper's benchmark and 1000 in
        its study of digits. `annealfit.paper.train` is the same algorithm on one screen.

        >>> AnnealedClassifier.from_paper(bits=5, preset="matched").max_iter
        1000
        """
        choose("preset", preset, PRESETS)
        Encoding(bits, 0.5)
        sampler = paper_annealer(bits, preset, num_sweeps)
        return cls(bits=bits, max_iter=1000, method=preset, sampler=sampler, tol=0.0, patience=None)

    def _checked_inputs(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        if is_out_of_core(X):
            return checked_table(self, X, y, reset=reset)
        if reset and are_plain(X, y):
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            self.n_features_in_ = X.shape[1]
            return X, y
        check_stored(X)
        return validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", reset=reset)

    def _training_data(self, X: Any, y: Any, sample_weight: Any, validation_data: Any, seed: int) -> TrainingData:
        if isinstance(X, Rows):
            return data_of_own_rows(self, X, y, sample_weight, validation_data)
        if is_dask(X):
            return data_of_dask(self, X, y, sample_weight, validation_data)
        return super()._training_data(X, y, sample_weight, validation_data, seed)

    def _data_of_tables(
        self, table: LabelledTable, held_out: LabelledTable | None, classes: NDArray[Any], seed: int
    ) -> TrainingData:
        arithmetic = as_method(self.method).arithmetic
        others = None if held_out is None else held_out.rows(classes, arithmetic)
        return TrainingData.of_rows(self, table.rows(classes, arithmetic), classes, others)

    def _first_weights(self, data: TrainingData, seed: int) -> Array:
        if not (self.warm_start and hasattr(self, "coef_")):
            return self._initial_head(data.objective, seed)
        self._check_warm_start(data.classes, data.objective.n_parameters - 1)
        return self._head_weights

    def _trainer(self, data: TrainingData, sampler: Sampler, seed: int, stopping: Stopping | None = None) -> Trainer:
        return Trainer(
            data.objective,
            sampler,
            as_method(self.method).resolved(),
            bits=int(self.bits),
            seed=seed,
            stopping=stopping or stopping_of(self),
            validation=None if data.validation is None else data.validation.figures,
        )

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Do one more iteration on these rows alone; the first call needs all `classes` that will ever come.

        The loss on these rows does not increase; that on others may: on small batches shorter steps learn better
        (`method="descent"`). Ranges and bits carry over from call to call, until a setting is changed or the
        classifier is saved and loaded. Checkpoints, validation and the stopping rules are for `fit`.
        """
        with rollback_on_error(self):
            self._check_settings()
            load_compiled_code()
            first = not hasattr(self, "coef_")
            if first:
                self.classes_, self.history_, self.n_iter_ = check_classes(classes), [], 0
            elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
                raise InvalidInputError(f"classes are not those of the first call, {self.classes_.tolist()}")
            data = batch_data(self, X, y, sample_weight, first=first)
            # What the last call left counts as long as no setting is changed.
            settings, last = described_settings(self, strict=False), getattr(self, "_partial", None)
            if last is None or last[0] != settings:
                last = settings, seed_of(self.random_state), None
            seed, state = last[1:]
            with opened_sampler(sampler_of(self), seed) as sampler:
                trainer = self._trainer(data, sampler, seed, Stopping(max_iter=self.n_iter_ + 1))
                if state is None:
                    weights = self._initial_head(data.objective, seed) if first else self._head_weights
                    state = replace(trainer.start(weights), iteration=self.n_iter_)
                with narrating(self.verbose, self.n_iter_ + 1) as narrators:
                    callbacks = [*narrators, *(self.callbacks or ())]
                    result = run(trainer, state, history=self.history_, callbacks=callbacks)
            if result.state.iteration == self.n_iter_:
                reason = "the sampler's budget is used up; the classifier is as it was"
                raise KeyboardInterrupt if result.stop_reason == "interrupted" else BudgetExhaustedError(reason)
            self._set_fitted(result.state.weights, self.classes_, result)
            self.optimality_gap_ = np.inf  # of the loss on all rows nothing is known
            self._partial = settings, seed, result.state.on_other_data()
            warn_of_failures(result.history[-1:])
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
