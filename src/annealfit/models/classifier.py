"""AnnealedClassifier: a scikit-learn classifier whose weights are found by annealing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from annealfit._support.errors import BudgetExhaustedError, InvalidInputError, choose
from annealfit._support.files import StrPath
from annealfit._support.randomness import seed_of
from annealfit.data.rows import Rows, is_dask, is_out_of_core
from annealfit.models.base import AnnealedEstimator
from annealfit.models.dask_data import data_of_dask
from annealfit.models.data import (
    LabelledTable,
    TrainingData,
    are_plain,
    batch_rows,
    check_classes,
    checked_table,
    data_of_own_rows,
)
from annealfit.models.messages import narrating, warn_of_failures
from annealfit.models.settings import make_plan, partial_settings
from annealfit.models.start import CarriedOn, check_warm_start, initial_weights, rollback_on_error
from annealfit.problems.coordinates import Coordinates
from annealfit.problems.encoding import Encoding
from annealfit.samplers import Sampler, SimulatedAnnealer
from annealfit.samplers.catalogue import opened_sampler
from annealfit.training import PrecisionPolicy, RangePolicy, Stopping, Trainer
from annealfit.training.acceptance import Acceptance
from annealfit.training.initialization import Initialization
from annealfit.training.loop import Callback
from annealfit.training.objectives import ONLY, CurvatureFunction, LinearHead

PRESETS = ("literal", "matched")


class AnnealedClassifier(AnnealedEstimator):
    """Linear classifier trained by QUBO solves, one per class and iteration; one per iteration for two classes.

    At every iteration the regularised cross-entropy is replaced by a convex quadratic surrogate; its
    minimiser over `bits`-bit weight updates in [−δ, δ] is sought by a sampler, and the update applied.

    Where a parameter takes a word, it takes an object of your own as well: see docs/extending.md.

    Parameters
    ----------
    bits : int
        Bits per weight update, K, from 1 to 30. Each class's problem has (d+1)·K binary variables.
    max_iter : int
        Iterations at most.
    regularization : float
        λ of the penalty ½λ‖w‖² on the weights (not on the biases). With N rows, scikit-learn's C is 1/(λN).
    curvature : {"local", "bound", "gram", "joint", "gauss_newton", "diagonal"}, function or None
        Quadratic part of the surrogate. "local" is the mean over the classes of the loss's Hessian, worked out anew
        when the cross-entropy has halved; beyond 256 features in blocks of 64, when the loss is a quarter. "bound"
        (½G + Λ), "gram" (G + Λ, the paper's) and "joint" (one problem over all classes) bound the loss from above;
        "gauss_newton" has a Hessian for every class at every iteration, and "diagonal" is separable. None is "local",
        or "bound" where the acceptance rule rests on a bound ("descent").
    coordinates : {"centred", "raw", "partly_whitened", "whitened"} or `annealfit.problems.coordinates.Coordinates`
        The basis in which bits are chosen. "centred" measures features from their means, which makes the problems
        much easier and changes nothing else. "raw" are the weights themselves, as in the paper. "whitened" leaves no
        couplings at all where the curvature is "bound", and so nothing to anneal.
    acceptance : {"second_direction", "line_search", "descent", "always"} or function
        "descent" applies the classes whose surrogate is negative: with a bounding curvature the loss then falls
        at every iteration, by theorem. "line_search" goes along them as far as the true loss says, and takes no
        step that raises it; "second_direction" chooses a multiple for each class, and one of its previous step.
        "always" applies everything, as the paper does.
    range_policy : {"relaxation", "adaptive", "fixed"} or `annealfit.training.RangePolicy`
        Whether δ is a multiple of the size of the continuous minimum, follows success and failure, or stays.
    precision_policy : {"fixed", "adaptive"} or `annealfit.training.PrecisionPolicy`
        Whether updates have `bits` bits throughout, or begin with one and gain another whenever they get stuck.
    update_range : float or None
        The (first) δ: the largest update of a weight before any line search. None leaves it to the range policy.
    step : float
        α in (0, 1]: the multiple of an accepted update that is applied.
    max_couplings : int or None
        Keep at most this many couplings in each problem: the largest, the others folded into the diagonal so
        that what was a bound stays one.
    initialization : {"zeros", "uniform"} or function
        Initial weights: zero, or uniform in ±1/√d (the paper's).
    sampler : Sampler, word or None
        What solves the problems: an object of `annealfit.samplers`, or a word as on the command line ("rounded",
        "native:num_reads=4"). None is `LevelAnnealer()`.
    class_weight : dict, "balanced" or None
        What the rows of each class weigh, as in scikit-learn.
    tol : float
        Stop when the loss is certified to be within this share of the optimum; 0 never does.
    patience : int or None
        Stop after this many iterations without a gain.
    time_limit : float or None
        Stop after this many seconds.
    validation_fraction : float or None
        Share of the rows to hold out, class by class, and to measure every iteration on. `fit` takes
        `validation_data` instead.
    early_stopping : bool
        Let `patience` count iterations without a gain on the validation data, and keep the weights that did best
        there.
    warm_start : bool
        Start from the weights of the previous `fit` instead of the initial ones.
    random_state : int, RandomState or None
        Seed of the initial weights, the validation split and every anneal.
    callbacks : sequence of callables, or None
        Each is called with an `annealfit.training.Iteration` (`.state`, `.row`) after every iteration;
        a true answer ends the training.
    checkpoint : path or None
        File in which the training is saved every `checkpoint_every` iterations and when it ends. A folder (there,
        or a path without a suffix) gets a file per training, so that those of a grid search do not collide.
    resume : bool
        Continue from the checkpoint if the file exists. Without it an existing file is refused, so that
        no training is overwritten by accident.
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
        "budget": the sampler's was used up. "sampler": it solved nothing for five iterations.
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

    def __init__(
        self,
        bits: int = 3,
        max_iter: int = 1000,
        regularization: float = 1e-3,
        *,
        curvature: str | CurvatureFunction | None = None,
        coordinates: str | Coordinates = "centred",
        acceptance: str | Acceptance = "second_direction",
        range_policy: str | RangePolicy = "relaxation",
        precision_policy: str | PrecisionPolicy = "fixed",
        update_range: float | None = None,
        step: float = 1.0,
        max_couplings: int | None = None,
        initialization: str | Initialization = "zeros",
        sampler: Sampler | str | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-4,
        patience: int | None = 50,
        time_limit: float | None = None,
        validation_fraction: float | None = None,
        early_stopping: bool = False,
        warm_start: bool = False,
        random_state: Any = None,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_every: int = 50,
        resume: bool = False,
        verbose: int = 0,
    ) -> None:
        self.bits = bits
        self.max_iter = max_iter
        self.regularization = regularization
        self.curvature = curvature
        self.coordinates = coordinates
        self.acceptance = acceptance
        self.range_policy = range_policy
        self.precision_policy = precision_policy
        self.update_range = update_range
        self.step = step
        self.max_couplings = max_couplings
        self.initialization = initialization
        self.sampler = sampler
        self.class_weight = class_weight
        self.tol = tol
        self.patience = patience
        self.time_limit = time_limit
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.verbose = verbose

    @classmethod
    def from_paper(cls, bits: int = 20, preset: str = "literal", *, num_sweeps: int = 100) -> Self:
        """The paper's Algorithm 1 and settings: δ = 0.5, λ = 0.001, 1000 iterations, every update applied.

        `preset="literal"` anneals as printed, β from 0.01 to 3 on coefficients divided by the largest; at
        that temperature every update is mostly noise, whatever the bits. `preset="matched"` multiplies
        the final β by 2^(K−3), with which the paper's results on digits come out. `num_sweeps` is 100 in the
        paper's benchmark and 1000 in its study of digits.

        >>> AnnealedClassifier.from_paper(bits=5, preset="matched").max_iter
        1000
        """
        choose("preset", preset, PRESETS)
        Encoding(bits, 0.5)
        final_beta = 3.0 if preset == "literal" else 3.0 * 2.0 ** (bits - 3)
        return cls(
            bits=bits,
            max_iter=1000,
            regularization=1e-3,
            curvature="gram",
            coordinates="raw",
            acceptance="always",
            range_policy="fixed",
            precision_policy="fixed",
            update_range=0.5,
            step=1.0,
            initialization="uniform",
            tol=0.0,
            patience=None,
            sampler=SimulatedAnnealer(
                num_sweeps=num_sweeps, num_reads=1, beta_range=(0.01, final_beta), normalize=True
            ),
        )

    def _checked_inputs(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        if is_out_of_core(X):
            return checked_table(self, X, y, reset=reset)
        if reset and are_plain(X, y):
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            self.n_features_in_ = X.shape[1]
            return X, y
        return validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", reset=reset)

    def _training_data(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, validation_data: Any, seed: int
    ) -> TrainingData:
        if isinstance(X, Rows):
            return data_of_own_rows(self, X, y, sample_weight, validation_data)
        if is_dask(X):
            return data_of_dask(self, X, y, sample_weight, validation_data)
        return super()._training_data(X, y, sample_weight, validation_data, seed)

    def _data_of_tables(
        self, table: LabelledTable, held_out: LabelledTable | None, classes: NDArray[Any], seed: int
    ) -> TrainingData:
        others = None if held_out is None else held_out.rows(classes)
        return TrainingData.of_rows(table.rows(classes), classes, others, self.regularization)

    def _first_weights(self, data: TrainingData, seed: int) -> NDArray[np.float64]:
        if not (self.warm_start and hasattr(self, "coef_")):
            return initial_weights(self, data.objective, seed)
        n_features = data.objective.n_parameters - 1
        check_warm_start(self, data, "{} features", self.coef_.shape[1], n_features)
        return self._weights

    @property
    def _weights(self) -> NDArray[np.float64]:
        """The fitted weights (D, outputs), the biases in the last row."""
        return np.vstack([self.coef_.T, self.intercept_])

    def _set_weights(self, weights: Mapping[str, NDArray[np.float64]]) -> None:
        self._set_head(weights[ONLY])

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """One more iteration, on these rows alone; the first call needs all `classes` that will ever come.

        The loss on these rows does not rise, as in `fit`; that on others may: on small batches shorter steps learn
        better (`acceptance="descent"`). Ranges and bits carry on from call to
        call, until a setting is changed or the classifier is saved and loaded. Checkpoints, validation and the stopping
        rules are for `fit`.
        """
        with rollback_on_error(self):
            first = not hasattr(self, "coef_")
            if first:
                self.classes_, self.history_, self.n_iter_ = check_classes(classes), [], 0
            elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
                raise InvalidInputError(f"classes are not those of the first call, {self.classes_.tolist()}")
            head = LinearHead(batch_rows(self, X, y, sample_weight, first=first), self.regularization)
            carried = self._carried_on()
            plan = replace(make_plan(self, carried.seed), stopping=Stopping(max_iter=self.n_iter_ + 1))
            with opened_sampler(self.sampler, carried.seed) as sampler:
                trainer = Trainer(head, sampler, plan)
                state = carried.state
                if state is None:
                    weights = initial_weights(self, head, carried.seed) if first else self._weights
                    state = replace(trainer.start(weights), iteration=self.n_iter_)
                with narrating(self.verbose, self.n_iter_ + 1) as narrators:
                    callbacks = [*narrators, *(self.callbacks or ())]
                    result = trainer.run(state, history=self.history_, callbacks=callbacks)
            if result.state.iteration == self.n_iter_:
                reason = "the sampler's budget is used up; the classifier is as it was"
                raise KeyboardInterrupt if result.stop_reason == "interrupted" else BudgetExhaustedError(reason)
            self._set_fitted(result.state.all_weights, self.classes_, result)
            self.optimality_gap_ = np.inf  # of the loss on all rows nothing is known
            # What a point remembers, and the step before, belong to the rows of this call.
            self._partial = replace(carried, state=result.state.on_other_data())
            warn_of_failures(result.history[-1:])
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return self

    def _carried_on(self) -> CarriedOn:
        """What the last `partial_fit` left, if there was one and its settings still hold."""
        settings, last = partial_settings(self), getattr(self, "_partial", None)
        return (
            last if last is not None and last.settings == settings else CarriedOn(settings, seed_of(self.random_state))
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
