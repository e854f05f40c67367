"""AnnealedClassifier: a scikit-learn classifier whose weights are found by annealing."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from annealfit.encoding import Encoding
from annealfit.errors import CheckpointError, FileFormatError, InvalidInputError, check_number, choose
from annealfit.persistence import StrPath, read_tensors, write_tensors
from annealfit.problem import QuadraticProblem
from annealfit.randomness import seed_of
from annealfit.samplers import Sampler, SimulatedAnnealer
from annealfit.surrogate import CURVATURES, TrainingSet, evaluate, loss_lower_bound, softmax
from annealfit.surrogate.curvature import Curvature, sparse
from annealfit.training import (
    ACCEPTANCES,
    INITIALIZATIONS,
    PRECISION_POLICIES,
    RANGE_POLICIES,
    Checkpoint,
    Plan,
    Stopping,
    TrainingState,
    initial_state,
    problems_at,
    train,
)
from annealfit.training.checkpoint import Row
from annealfit.training.loop import Callback

_KIND = "classifier"
# How a training is watched and saved: no part of a model.
_RUN_PARAMETERS = frozenset({"callbacks", "checkpoint", "checkpoint_every", "resume"})
# When it ends: a checkpoint may be resumed with others.
_STOPPING_PARAMETERS = frozenset({"max_iter", "tol", "patience", "time_limit"})

# Ends of a training that it did not choose itself.
CUT_SHORT = {
    "interrupted": "was interrupted",
    "budget": "used up the sampler's budget",
    "sampler": "ended because the sampler solved nothing any more",
}

PRESETS = ("literal", "matched")


class AnnealedClassifier(ClassifierMixin, BaseEstimator):
    """Multinomial linear classifier trained by QUBO solves, one a class and iteration.

    At every iteration the regularised cross-entropy is replaced by a convex quadratic surrogate; its
    minimiser over `bits`-bit weight updates in [−δ, δ] is sought by a sampler, and the update applied.

    Parameters
    ----------
    bits : int
        Bits per weight update, K, from 1 to 30. Each class's problem has (d+1)·K binary variables.
    max_iter : int
        Iterations at most.
    regularization : float
        λ of the penalty ½λ‖w‖² on the weights (not on the biases).
    curvature : {"bound", "gram", "joint", "gauss_newton", "diagonal"}
        Quadratic part of the surrogate. "bound" (½G + Λ), "gram" (G + Λ, the paper's) and "joint" (one problem
        over all classes) bound the loss from above; "gauss_newton" follows it more closely, and "diagonal" is
        separable, but neither is a bound.
    acceptance : {"line_search", "descent", "always"}
        "descent" applies the classes whose surrogate is negative: with a bounding curvature the loss then falls
        at every iteration, by theorem. "line_search" goes along them as far as the true loss says, and takes no
        step that raises it. "always" applies everything, as the paper does.
    range_policy : {"adaptive", "fixed"}
        Whether δ follows success and failure, class by class, or stays.
    precision_policy : {"fixed", "adaptive"}
        Whether updates have `bits` bits throughout, or begin with one and gain another whenever they get stuck.
    update_range : float
        The (first) δ: the largest update of a weight before any line search.
    step : float
        α in (0, 1]: the multiple of an accepted update that is applied.
    max_couplings : int or None
        Keep at most this many couplings in each problem: the largest, the others folded into the diagonal so
        that what was a bound stays one.
    initialization : {"zeros", "uniform"}
        Initial weights: zero, or uniform in ±1/√d (the paper's).
    sampler : Sampler or None
        What solves the problems; None is `SimulatedAnnealer()`.
    tol : float
        Stop when the loss is certified to be within this share of the optimum; 0 never does.
    patience : int or None
        Stop after this many iterations without a gain.
    time_limit : float or None
        Stop after this many seconds.
    random_state : int, RandomState or None
        Seed of the initial weights and of every anneal.
    callbacks : sequence of callables, or None
        Each is called with an `annealfit.training.Iteration` (`.state`, `.row`) after every iteration;
        a true answer ends the training.
    checkpoint : path or None
        File in which the training is saved every `checkpoint_every` iterations and when it ends.
    resume : bool
        Continue from the checkpoint if the file exists. Without it an existing file is refused, so that
        no training is overwritten by accident.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (C, d) and (C,)
        One row a class, also for two classes.
    classes_ : the labels, sorted.
    n_iter_ : iterations done.
    history_ : list of dicts
        A row an iteration; `pandas.DataFrame(clf.history_)` makes a table of it.
    stop_reason_ : {"tolerance", "max_iter", "plateau", "time_limit", "callback", "interrupted", "budget", "sampler"}
        "budget": the sampler's was used up. "sampler": it solved nothing for five iterations.
    optimality_gap_ : float
        Certified: the loss is at most this far above its optimum (infinite at λ = 0).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AnnealedClassifier(max_iter=20, random_state=0).fit(X, y)
    >>> clf.coef_.shape, clf.n_iter_, clf.score(X, y) > 0.9
    ((3, 4), 20, True)

    """

    def __init__(
        self,
        bits: int = 3,
        max_iter: int = 200,
        regularization: float = 1e-3,
        *,
        curvature: str = "bound",
        acceptance: str = "line_search",
        range_policy: str = "adaptive",
        precision_policy: str = "fixed",
        update_range: float = 0.1,
        step: float = 1.0,
        max_couplings: int | None = None,
        initialization: str = "zeros",
        sampler: Sampler | None = None,
        tol: float = 1e-5,
        patience: int | None = 50,
        time_limit: float | None = None,
        random_state: Any = None,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_every: int = 50,
        resume: bool = False,
    ) -> None:
        self.bits = bits
        self.max_iter = max_iter
        self.regularization = regularization
        self.curvature = curvature
        self.acceptance = acceptance
        self.range_policy = range_policy
        self.precision_policy = precision_policy
        self.update_range = update_range
        self.step = step
        self.max_couplings = max_couplings
        self.initialization = initialization
        self.sampler = sampler
        self.tol = tol
        self.patience = patience
        self.time_limit = time_limit
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume

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

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on features of shape (N, d) and N labels of any type; at least two classes."""
        classes, data = self._training_set(X, y)
        plan = self._plan(data)
        state, history, checkpoint = self._start(data, plan)
        sampler = self.sampler or SimulatedAnnealer()
        # A device that cannot take the problems at their largest says so here, before anything is paid for.
        sampler.preflight(problems_at(data, plan, replace(state, bits=plan.bits)))
        result = train(
            data,
            sampler,
            plan,
            state,
            history=history,
            callbacks=tuple(self.callbacks or ()),
            checkpoint=checkpoint,
        )
        weights = result.state.weights
        self.classes_ = classes  # together with the rest: a fit that fails leaves nothing half fitted
        self.coef_ = np.ascontiguousarray(weights[:-1].T)
        self.intercept_ = weights[-1].copy()
        loss = evaluate(data, weights).loss
        self.optimality_gap_ = max(loss - loss_lower_bound(data, weights), 0.0)
        self.n_iter_ = result.state.iteration
        self.history_: list[Row] = result.history
        self.stop_reason_ = result.stop_reason
        if result.stop_reason == "max_iter" and 0 < self.tol * loss < self.optimality_gap_ < np.inf:
            warnings.warn(
                f"after {self.n_iter_} iterations the loss {loss:.6g} is only certified to be within "
                f"{self.optimality_gap_:.2g} of the optimum (tol asks for {self.tol * loss:.2g}); standardise the "
                "features (StandardScaler), raise max_iter, or raise tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        if result.stop_reason in CUT_SHORT:
            warnings.warn(
                f"training {CUT_SHORT[result.stop_reason]} after {self.n_iter_} of {self.max_iter} iterations; "
                "the classifier holds what was learnt so far",
                stacklevel=2,
            )
        unsolved = [row for row in result.history if row["failures"]]
        if unsolved:
            warnings.warn(
                f"in {len(unsolved)} of {self.n_iter_} iterations the sampler failed to solve some problems, whose "
                f"weights then stayed as they were (history_, column failures; the last: {unsolved[-1]['failures']})",
                stacklevel=2,
            )
        return self

    def problems(self, X: ArrayLike, y: ArrayLike) -> list[QuadraticProblem]:
        """The problems of the first iteration of a training, one a class, for export or for other solvers.

        >>> from sklearn.datasets import load_iris
        >>> first, *_ = AnnealedClassifier(bits=2, random_state=0).problems(*load_iris(return_X_y=True))
        >>> first.n_variables
        10
        """
        blank = clone(self).set_params(checkpoint=None, resume=False)
        _, data = blank._training_set(X, y)
        plan = blank._plan(data)
        state, _, _ = blank._start(data, plan)
        return problems_at(data, plan, state)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logits of shape (N, C); for two classes their difference, of shape (N,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable label of each row."""
        winners = self._logits(X).argmax(axis=1)
        return self.classes_[winners]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Softmax probabilities of shape (N, C), columns in the order of `classes_`."""
        return np.ascontiguousarray(softmax(self._logits(X).T).T)

    def save(self, path: StrPath) -> None:
        """Write the fitted classifier to one safetensors file (no pickle; see `annealfit.persistence`)."""
        tensors, manifest = self.to_tensors()
        write_tensors(path, _KIND, tensors, manifest)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a classifier written by `save`; corrupt, truncated or foreign files are refused."""
        return cls.from_tensors(*read_tensors(path, _KIND))

    def to_tensors(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The fitted classifier as tensors and a JSON manifest, to be stored in a file of any kind."""
        check_is_fitted(self, "coef_")
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in _RUN_PARAMETERS}
        stored = {name: value for name, value in parameters.items() if _is_plain(value)}
        manifest = {
            "parameters": {name: _to_json(value) for name, value in stored.items()},
            "not_stored": {name: repr(value) for name, value in parameters.items() if name not in stored},
            "n_iter": self.n_iter_,
            "stop_reason": self.stop_reason_,
            "optimality_gap": self.optimality_gap_ if np.isfinite(self.optimality_gap_) else None,
            "classes": _labels_to_json(self.classes_),
            "feature_names": list(getattr(self, "feature_names_in_", [])),
            "history": self.history_,
        }
        return {"coef": self.coef_, "intercept": self.intercept_}, manifest

    @classmethod
    def from_tensors(cls, tensors: dict[str, NDArray[Any]], manifest: dict[str, Any]) -> Self:
        """The inverse of `to_tensors`."""
        try:
            classifier = cls(**manifest["parameters"])
            classifier.classes_ = _labels_from_json(manifest["classes"])
            classifier.coef_, classifier.intercept_ = tensors["coef"], tensors["intercept"]
            n_classes, n_features = classifier.coef_.shape
            if classifier.intercept_.shape != (n_classes,) or len(classifier.classes_) != n_classes:
                raise ValueError("the numbers of classes disagree")
            classifier.n_features_in_ = n_features
            if manifest["feature_names"]:
                classifier.feature_names_in_ = np.array(manifest["feature_names"], dtype=object)
            classifier.n_iter_ = manifest["n_iter"]
            classifier.stop_reason_ = manifest["stop_reason"]
            gap = manifest["optimality_gap"]
            classifier.optimality_gap_ = np.inf if gap is None else float(gap)
            classifier.history_ = manifest["history"]
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"the file does not describe a classifier: {error}") from error
        for name, value in manifest["not_stored"].items():
            warnings.warn(
                f"{name}={value} is not part of a model file; the loaded classifier has {name}=None "
                "(predictions need none, but set it before fitting again)",
                stacklevel=3,
            )
        return classifier

    def _training_set(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], TrainingSet]:
        features, targets = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(targets)
        classes, labels = np.unique(targets, return_inverse=True)
        if len(classes) < 2:
            raise InvalidInputError(f"the labels hold one class only, {classes[0]}; a classifier needs at least two")
        check_number("regularization", self.regularization, Real, minimum=0)
        return classes, TrainingSet.build(features, labels, len(classes), self.regularization)

    def _plan(self, data: TrainingSet) -> Plan:
        Encoding(self.bits, self.update_range)
        check_number("max_iter", self.max_iter, Integral, minimum=1)
        check_number("checkpoint_every", self.checkpoint_every, Integral, minimum=1)
        check_number("step", self.step, Real, above=0, maximum=1)
        check_number("tol", self.tol, Real, minimum=0)
        if self.patience is not None:
            check_number("patience", self.patience, Integral, minimum=1)
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, Real, above=0)
        if self.callbacks is not None and (
            not isinstance(self.callbacks, Sequence) or not all(map(callable, self.callbacks))
        ):
            raise InvalidInputError(f"callbacks is {self.callbacks!r}; pass a list of functions of one argument")
        if not isinstance(self.sampler, Sampler | None):
            raise InvalidInputError(
                f"sampler is {self.sampler!r}; pass an annealfit sampler, or wrap a dimod sampler: DimodSampler(it)"
            )
        if self.max_couplings is not None:
            check_number("max_couplings", self.max_couplings, Integral, minimum=0)
        return Plan(
            curvature=self._curvature(data.n_parameters, data.n_classes),
            acceptance=ACCEPTANCES[choose("acceptance", self.acceptance, ACCEPTANCES)],
            range_policy=RANGE_POLICIES[choose("range_policy", self.range_policy, RANGE_POLICIES)],
            precision_policy=PRECISION_POLICIES[choose("precision_policy", self.precision_policy, PRECISION_POLICIES)],
            stopping=Stopping(int(self.max_iter), float(self.tol), self.patience, self.time_limit),
            bits=int(self.bits),
            update_range=float(self.update_range),
            step=float(self.step),
            seed=self._seed(),
        )

    def _seed(self) -> int:
        """The seed of the training; one that was drawn afresh is found again in the checkpoint to resume."""
        if self.resume and not isinstance(self.random_state, Integral) and self.checkpoint is not None:
            path = Path(self.checkpoint)
            if path.exists():
                return int(Checkpoint(path, 1, {}).stored_settings()["random_state"])
        return seed_of(self.random_state)

    def _curvature(self, n_parameters: int, n_classes: int) -> Curvature:
        curvature = CURVATURES[choose("curvature", self.curvature, CURVATURES)]
        if self.max_couplings is None:
            return curvature
        # Bits of one parameter are coupled whatever is dropped; a pair of parameters is bits² couplings.
        size = n_parameters * n_classes if self.curvature == "joint" else n_parameters
        within = size * self.bits * (self.bits - 1) // 2
        if self.max_couplings < within:
            raise InvalidInputError(
                f"max_couplings is {self.max_couplings}; {size} parameters of {self.bits} bits need at least "
                f"{within}: use fewer bits"
            )
        return sparse(curvature, (self.max_couplings - within) // self.bits**2)

    def _start(self, data: TrainingSet, plan: Plan) -> tuple[TrainingState, list[Row], Checkpoint | None]:
        initialize = INITIALIZATIONS[choose("initialization", self.initialization, INITIALIZATIONS)]
        weights = initialize(data.n_parameters, data.n_classes, plan.seed)
        state = initial_state(data, plan, weights)
        history: list[Row] = []
        if self.checkpoint is None:
            if self.resume:
                raise InvalidInputError("resume=True needs a checkpoint path to continue from")
            return state, history, None
        checkpoint = Checkpoint(
            Path(self.checkpoint), int(self.checkpoint_every), self._checkpoint_settings(data, plan.seed)
        )
        if checkpoint.path.exists():
            if not self.resume:
                raise CheckpointError(
                    f"{checkpoint.path} exists; pass resume=True to continue it, or remove it to start anew"
                )
            state, history = checkpoint.load()
        return state, history, checkpoint

    def _checkpoint_settings(self, data: TrainingSet, seed: int) -> dict[str, Any]:
        digest = hashlib.sha256(data.features.tobytes())
        digest.update(np.ascontiguousarray(data.labels, dtype=np.int64).tobytes())
        settings = {
            name: _to_json(value) if _is_plain(value) else repr(value)
            for name, value in self.get_params(deep=False).items()
            if name not in _RUN_PARAMETERS | _STOPPING_PARAMETERS
        }
        return {**settings, "random_state": seed, "training data": digest.hexdigest()}

    def _logits(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")  # not any attribute: a fit that failed has counted the features
        features = validate_data(self, X, dtype=np.float64, reset=False)
        return features @ self.coef_.T + self.intercept_


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | Integral | Real)


def _to_json(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _labels_to_json(labels: NDArray[Any]) -> dict[str, Any]:
    values = labels.tolist()
    if labels.dtype.kind not in "biufUO" or (
        labels.dtype == object and not all(isinstance(value, str) for value in values)
    ):
        raise InvalidInputError(
            f"labels of types {sorted({type(value).__name__ for value in values})} cannot be stored; "
            "fit with strings or numbers"
        )
    return {"dtype": "object" if labels.dtype == object else labels.dtype.str, "values": values}


def _labels_from_json(stored: dict[str, Any]) -> NDArray[Any]:
    return np.array(stored["values"], dtype=stored["dtype"])
