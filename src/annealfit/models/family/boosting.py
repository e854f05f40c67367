"""QBoost: a strong classifier of few weak ones, chosen by QUBO (Neven et al. 2008; Boyda et al. 2017)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import _check_sample_weight, validate_data

from annealfit._support.arrays import Array
from annealfit._support.errors import FileFormatError, InvalidInputError, check_number
from annealfit._support.randomness import child_seed, seed_of
from annealfit.models.family.solving import QUBOClassifier
from annealfit.problems.curvature import Curvature
from annealfit.problems.problem import Problems

MARGINS = 24  # tried for each class, from the least vote to as many votes as there are weak learners
ROUNDS = 5  # of targets, the first being ±1
POOLS = 1  # the path of their seeds below that of a fit


@dataclass
class SavedTree:
    """A decision tree from a file: what scikit-learn's tree has for each node, and the vote ±1 of a row there."""

    feature: NDArray[np.int64]
    threshold: Array
    children_left: NDArray[np.int64]  # below 0 at a leaf
    children_right: NDArray[np.int64]
    votes: Array

    @classmethod
    def of(cls, learner: Any) -> SavedTree:
        """Return the tree of a learner that is one."""
        if isinstance(learner, cls):
            return learner
        if type(learner) is not DecisionTreeClassifier:
            raise InvalidInputError(
                f"a {type(learner).__name__} cannot be saved as a weak learner, only decision trees"
            )
        tree = learner.tree_
        votes = learner.classes_[tree.value[:, 0].argmax(axis=1)]
        return cls(tree.feature, tree.threshold, tree.children_left, tree.children_right, votes)

    def checked(self, n_features: int) -> SavedTree:
        """Return this tree if its nodes follow each other and its features are some of so many."""
        inner = np.flatnonzero(self.children_left >= 0)
        for children in (self.children_left[inner], self.children_right[inner]):
            if (children <= inner).any() or (children >= len(self.votes)).any():
                raise FileFormatError("the nodes of a weak learner do not make a tree")
        if (self.feature[inner] < 0).any() or (self.feature[inner] >= n_features).any():
            raise FileFormatError(f"a weak learner asks for a feature that is none of {n_features}")
        return self

    def predict(self, X: Array) -> Array:
        """Return the votes (N,) of rows, which are compared in single precision as scikit-learn does."""
        rows, nodes = X.astype(np.float32), np.zeros(len(X), dtype=np.int64)
        while (inner := np.flatnonzero(self.children_left[nodes] >= 0)).size:
            own = nodes[inner]
            left = rows[inner, self.feature[own]] <= self.threshold[own]
            nodes[inner] = np.where(left, self.children_left[own], self.children_right[own])
        return self.votes[nodes]


@dataclass(repr=False, eq=False)
class QBoostClassifier(QUBOClassifier):
    """Boosting by QUBO: `‖Hw/m + b − y‖²/N + λ|w/m|₁` over w on 2^K levels from 0 to 1, H the ±1 votes of learners.

    Neven, Denchev, Rose and Macready, "Training a binary classifier with the quantum adiabatic algorithm" (2008). The
    published objective divides the votes by the number of learners; here the margin `m`, the votes for which a row
    counts as decided, is searched for. The intercept `b` is the best for any `w`: the votes are centred. The problems
    of all margins, and of all classes against the others, share the curvature `HᵀH/N` of centred votes, so they are
    solved together; of the answers with at most `max_learners` that with the lowest objective is kept.

    A row that is right by more than 1 costs nothing: four more rounds with its score as its target, on the same
    curvature, lower the squared hinge loss, of which each round's objective is an upper bound.

    Parameters
    ----------
    bits : int
        Bits per weight, K. With one a learner votes or does not.
    n_estimators : int
        Weak learners to choose from, per class. They are those of an AdaBoost of each class against the others, and
        the problems choose among all of them.
    max_learners : int or None
        Most learners of a class; if all margins need more, that with the fewest is kept. None is half of
        `n_estimators`.
    regularization : float
        λ, the price of a vote.
    estimator : scikit-learn classifier or None
        The weak learner, any that takes sample weights. None is a decision tree with one split.
    sampler : Sampler, dimod sampler, word or None
        What solves the problems; None is `GreedyDescent()`, from no votes on.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : the labels, sorted, shape (C,)
    estimators_ : list of the weak learners that have a vote, T' of them
    weights_ : array of shape (P, T')
        `w/m` of each class against the others; for two classes P is 1.
    intercept_, margins_ : arrays of shape (P,)
    n_solves_, n_variables_ : problems solved, variables of a problem

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = QBoostClassifier(n_estimators=40, random_state=0).fit(X, y)
    >>> len(clf.estimators_) <= 20, clf.score(X, y) > 0.95
    (True, True)

    """

    _default_sampler: ClassVar = "greedy"
    _arrays: ClassVar = {
        **{"weights_": "PT", "intercept_": "P", "margins_": "P", "node_count": "T"},
        **{"feature": "N", "threshold": "N", "children_left": "N", "children_right": "N", "votes": "N"},
    }

    bits: int = 2
    n_estimators: int = 100
    _: KW_ONLY
    max_learners: int | None = None
    regularization: float = 0.04
    estimator: Any = None
    sampler: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to rows X (N, D) and N labels of any type."""
        seed = seed_of(self.random_state)
        learners, votes, targets, weights = self._prepare(X, y, sample_weight, seed)
        wanted, curvature = targets, None
        with self._solver(seed) as solver:
            for _ in range(ROUNDS):
                margins, problems = self._problems(votes, wanted, weights, curvature)
                chosen, own = self._chosen(margins, problems, *solver.solve(problems))
                self.intercept_ = wanted @ weights - own @ (weights @ votes)
                wanted = targets * np.maximum(1.0, targets * (own @ votes.T + self.intercept_[:, None]))
                curvature = problems.shared_curvature
        used = np.flatnonzero(own.any(axis=0))
        if not used.size:
            raise InvalidInputError(
                f"no weak learner is worth its vote: regularization is {self.regularization}, lower it; "
                "or all rows with a weight are of one class"
            )
        self.margins_, self.weights_ = margins[chosen], own[:, used]
        self.estimators_ = [learners[place] for place in used]
        return self

    def problems(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Problems:
        """Return the problems of the first round, those of all margins for each class in turn, for other solvers."""
        _, votes, targets, weights = self._prepare(X, y, sample_weight, seed_of(self.random_state))
        return self._problems(votes, targets, weights)[1]

    def _scores(self, X: Any) -> Array:
        """Return the weighted votes for each class, (N, P)."""
        rows = self._rows(X)
        return _votes(self.estimators_, rows) @ self.weights_.T + self.intercept_

    def _state(self) -> dict[str, Any]:
        trees = [SavedTree.of(learner) for learner in self.estimators_]
        nodes = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in SavedTree.__annotations__}
        return super()._state() | {"node_count": np.array([len(tree.votes) for tree in trees]), **nodes}

    def _restore(self, state: dict[str, Any]) -> None:
        ends = np.cumsum(state.pop("node_count"))[:-1]
        nodes = [np.split(state.pop(name), ends) for name in SavedTree.__annotations__]
        self.estimators_ = [SavedTree(*parts).checked(self.n_features_in_) for parts in zip(*nodes, strict=True)]
        super()._restore(state)

    def _prepare(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, seed: int
    ) -> tuple[list[Any], Array, Array, Array]:
        """Return the weak learners (T), their votes (N, T), targets ±1 (P, N) and weights of the rows (N,), sum 1."""
        check_number("n_estimators", self.n_estimators, Integral, minimum=1)
        check_number("regularization", self.regularization, minimum=0)
        if self.max_learners is not None:
            check_number("max_learners", self.max_learners, Integral, minimum=1)
        X, y = validate_data(self, X, y, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        targets = self._signs(y)
        weak = DecisionTreeClassifier(max_depth=1) if self.estimator is None else self.estimator
        learners: list[Any] = []
        for number, signs in enumerate(targets):
            boosting = AdaBoostClassifier(
                clone(weak), n_estimators=int(self.n_estimators), random_state=child_seed(seed, POOLS, number) % 2**32
            )
            learners += boosting.fit(X, signs, weights).estimators_
        return learners, _votes(learners, X), targets, weights / weights.sum()

    def _problems(
        self, votes: Array, targets: Array, weights: Array, curvature: Curvature | None = None
    ) -> tuple[Array, Problems]:
        """Return the margins (M,) and the problems of each class and margin (P·M), multiplied by `m²`."""
        margins = np.geomspace(1 / (2**self.bits - 1), max(votes.shape[1], 2), MARGINS)
        centred = votes - weights @ votes
        if curvature is None:
            curvature = Curvature.computed((centred * weights[:, None]).T @ centred)
        slopes = self.regularization / 2 - (targets * weights) @ centred  # (P, T)
        gradients = (margins[:, None] * slopes[:, None]).reshape(-1, votes.shape[1])
        return margins, self._levels.problems(curvature, gradients)

    def _chosen(
        self, margins: Array, problems: Problems, bits: NDArray[np.uint8], energies: Array
    ) -> tuple[NDArray[np.intp], Array]:
        """Return for each class which margin is kept (P,), and `w/m` (P, T)."""
        found = self._levels.decode(bits).reshape(-1, MARGINS, bits.shape[1])
        counts = np.count_nonzero(found, axis=2)
        fits = (counts > 0) & (counts <= (self.max_learners or max(1, self.n_estimators // 2)))
        # The lowest objective, against that of no votes; where no answer fits, the one with the fewest votes.
        gains = (energies - problems.energies(problems.decode(np.zeros_like(bits)))).reshape(counts.shape)
        lowest = np.where(fits, gains / margins**2, np.inf).argmin(axis=1)
        fewest = np.where(counts > 0, counts, np.iinfo(counts.dtype).max).argmin(axis=1)
        chosen = np.where(fits.any(axis=1), lowest, fewest)
        return chosen, found[np.arange(len(found)), chosen] / margins[chosen, None]


def _votes(learners: list[Any], X: Array) -> Array:
    """Return the votes ±1 of learners that were fitted to targets ±1, (N, T)."""
    return np.column_stack([learner.predict(X) for learner in learners])
