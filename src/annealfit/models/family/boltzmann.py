"""Restricted Boltzmann machines whose expectations come from persistent chains or from any sampler."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, log_expit, softmax
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from annealfit._support.arrays import Array
from annealfit._support.errors import check_number
from annealfit._support.randomness import child_seed, seed_of
from annealfit.models.family.solving import QUBOClassifier, QUBOEstimator, Solver
from annealfit.problems.curvature import Curvature
from annealfit.problems.levels import Levels
from annealfit.problems.problem import Problems

DRAWS = 1  # the path of the seed of what `fit` draws, below that of a fit
CENTRING = 0.01  # the share of an update in the means that gradients are centred by


@dataclass
class Machine:
    """`E(v, h) = −bᵀv − cᵀh − vᵀWh`, at temperature 1."""

    weights: Array  # W (V, M)
    visible: Array  # b (V,)
    hidden: Array  # c (M,)

    def hidden_fields(self, states: Array) -> Array:
        """Return `c + Wᵀv` of visible states (R, V), (R, M)."""
        return states @ self.weights + self.hidden

    def swept(self, states: Array, levels: Levels, generator: np.random.Generator) -> Array:
        """Return visible states (R, V) drawn given hidden ones that are drawn given these."""
        hidden = draw(self.hidden_fields(states), levels, generator)
        return draw(hidden @ self.weights.T + self.visible, levels, generator)

    def gradient(self, given: Array, states: Array, levels: Levels, centres: tuple[Array, Array]) -> Machine:
        """Return the gradient of the mean log-likelihood of given rows (B, V), from states of the machine (R, V).

        It is the difference of the moments, of units counted from the centres: a step along it is one of the plain
        gradient in coordinates that do not depend on which level is called 0.
        """
        own, theirs = (means(self.hidden_fields(rows), levels) for rows in (given, states))
        visible, hidden = given.mean(axis=0) - states.mean(axis=0), own.mean(axis=0) - theirs.mean(axis=0)
        weights = (given - centres[0]).T @ (own - centres[1]) / len(given)
        weights -= (states - centres[0]).T @ (theirs - centres[1]) / len(states)
        return Machine(weights, visible - weights @ centres[1], hidden - centres[0] @ weights)


# A unit's level is the sum of its bits times their weights, so in a field the bits are independent of each other.


def log_sums(fields: Array, levels: Levels) -> Array:
    """Return `log Σ_ℓ exp(ℓ·field)` over the levels of units in these fields."""
    return sum(-log_expit(-weight * fields) for weight in bit_weights(levels))


def means(fields: Array, levels: Levels) -> Array:
    """Return the expected levels of units in these fields.

    >>> means(np.array([0.0]), Levels(0.0, 1.0, bits=2))
    array([0.5])
    """
    return sum(weight * expit(weight * fields) for weight in bit_weights(levels))


def draw(fields: Array, levels: Levels, generator: np.random.Generator) -> Array:
    """Return a level for each unit in these fields, drawn."""
    return sum(weight * (generator.random(fields.shape) < expit(weight * fields)) for weight in bit_weights(levels))


def bit_weights(levels: Levels) -> Array:
    """Return the weights of the bits, which add up to 1."""
    return np.exp2(np.arange(levels.bits)) / (2.0**levels.bits - 1)


@dataclass(repr=False, eq=False)
class AnnealedRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, QUBOClassifier):
    """Restricted Boltzmann machine: `E(v, h) = −bᵀv − cᵀh − vᵀWh`, all units on 2^K levels from 0 to 1.

    Benedetti, Realpe-Gómez, Biswas and Perdomo-Ortiz, Physical Review A 94 (2016), and Caldeira et al. (2019) train
    it by annealing: the gradient of the likelihood is the difference of the moments `⟨v⟩, ⟨h⟩, ⟨vhᵀ⟩` of the data and
    of the machine, and an annealer estimates the latter. Gradients are centred (Montavon and Müller 2012). With
    labels, a visible unit per class is added, and a row is predicted to be of the class with the lowest free energy.

    Parameters
    ----------
    n_components : int
        Hidden units, M.
    bits : int
        Bits per unit, K. With one all units are 0 or 1.
    learning_rate : float
        Of the first update; it falls to 0 with the updates.
    batch_size : int
        Rows per update, and number of persistent chains.
    max_iter : int
        Passes over the rows.
    sweeps : int
        Of the persistent chains in an update.
    temperature : float
        At which the `sampler` samples: the energies of its problems are multiplied by it.
    sampler : Sampler, dimod sampler, word or None
        What draws states of the machine, all its reads at every update: `SimulatedAnnealer(num_reads=64,
        beta_range=(0.1, 1.0))`, say. None are persistent chains, drawn layer by layer. Samplers that only look for
        low energies, as `LevelAnnealer` does, give no expectations.
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : array of shape (M, D)
        Wᵀ of the features, without labels.
    intercept_hidden_, intercept_visible_ : arrays of shape (M,) and (D,)
    label_components_, label_intercept_ : arrays of shape (M, C) and (C,), after a fit with labels
    classes_ : the labels, sorted, shape (C,), after a fit with labels
    offset_, scale_ : float
        Features are used as `(x − offset)/scale`, between 0 and 1 for the rows of the fit.
    n_iter_, n_solves_, n_variables_ : passes, problems solved (by chains none), variables of the machine's problem

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> rbm = AnnealedRBM(64, random_state=0).fit(X, y)
    >>> rbm.transform(X).shape, rbm.score(X, y) > 0.9
    ((1797, 64), True)

    """

    _numbers = (*QUBOEstimator._numbers, "n_iter_", "offset_", "scale_", "_n_features_out")
    _arrays: ClassVar = {
        **{"components_": "MD", "intercept_visible_": "D", "intercept_hidden_": "M"},
        **{"label_components_": "MC", "label_intercept_": "C"},
    }

    n_components: int = 128
    bits: int = 1
    _: KW_ONLY
    learning_rate: float = 0.2
    batch_size: int = 16
    max_iter: int = 30
    sweeps: int = 1
    temperature: float = 1.0
    sampler: Any = None
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows X (N, D) and N labels of any type; None fits X alone."""
        for name in ("n_components", "batch_size", "max_iter", "sweeps"):
            check_number(name, getattr(self, name), Integral, minimum=1)
        for name in ("learning_rate", "temperature"):
            check_number(name, getattr(self, name), above=0)
        X, present = self._labelled(X, y)
        self._n_features_out = int(self.n_components)
        self.offset_ = float(X.min())
        self.scale_ = float(X.max()) - self.offset_ or 1.0
        rows = np.hstack([self._scaled(X), present])
        seed = seed_of(self.random_state)
        generator = np.random.default_rng(child_seed(seed, DRAWS))
        with self._solver(seed) as solver:
            machine = self._trained(rows, generator, solver)
        self.n_variables_ = (rows.shape[1] + int(self.n_components)) * int(self.bits)  # chains solve no problem
        weights, visible = np.split(machine.weights, [X.shape[1]]), np.split(machine.visible, [X.shape[1]])
        self.components_, self.intercept_visible_ = np.ascontiguousarray(weights[0].T), visible[0]
        self.intercept_hidden_ = machine.hidden
        if y is not None:
            self.label_components_, self.label_intercept_ = np.ascontiguousarray(weights[1].T), visible[1]
        return self

    def transform(self, X: Any) -> Array:
        """Return the expected levels of the hidden units, (N, M), given rows; units of labels are 0."""
        return means(self._fields(X), self._levels)

    def _scores(self, X: Any) -> Array:
        """Return minus the free energies of rows with each label (N, C), up to a number per row."""
        check_is_fitted(self, "label_components_", msg="fit with labels first: %(name)s.fit(X, y)")
        fields = self._fields(X)
        scores = np.empty((len(fields), len(self.classes_)))
        for label, column in enumerate(self.label_components_.T):
            scores[:, label] = log_sums(fields + column, self._levels).sum(axis=1) + self.label_intercept_[label]
        return scores

    def predict_proba(self, X: Any) -> Array:
        """Return the machine's probabilities of the labels, one of them being given, (N, C)."""
        return softmax(self._scores(X), axis=1)

    def problems(self) -> Problems:
        """Return the problem whose energies are those of the fitted machine, times the `temperature`, plus a constant.

        Parameters are the visible units, with those of the labels, and then the hidden ones.
        """
        return self._problems(self._machine())

    def _machine(self) -> Machine:
        """Return the fitted machine, with the units of labels."""
        check_is_fitted(self)
        weights, visible = self.components_.T, self.intercept_visible_
        if hasattr(self, "label_components_"):
            weights = np.vstack([weights, self.label_components_.T])
            visible = np.concatenate([visible, self.label_intercept_])
        return Machine(weights, visible, self.intercept_hidden_)

    def _scaled(self, X: Array) -> Array:
        return np.clip((X - self.offset_) / self.scale_, 0.0, 1.0)

    def _fields(self, X: Any) -> Array:
        return self._scaled(self._rows(X)) @ self.components_.T + self.intercept_hidden_

    def _problems(self, machine: Machine) -> Problems:
        size = len(machine.visible)
        matrix = np.zeros((size + len(machine.hidden),) * 2)
        matrix[:size, size:] = -0.5 * self.temperature * machine.weights
        matrix[size:, :size] = matrix[:size, size:].T
        biases = np.concatenate([machine.visible, machine.hidden])
        return self._levels.problems(Curvature(matrix), -0.5 * self.temperature * biases[None])

    def _trained(self, rows: Array, generator: np.random.Generator, solver: Solver) -> Machine:
        """Return a machine fitted to rows (N, V) between 0 and 1, by `max_iter` passes over them."""
        size, batch = int(self.n_components), min(int(self.batch_size), len(rows))
        middle = np.clip(rows.mean(axis=0), 0.01, 0.99)
        weights = 0.01 * generator.normal(size=(rows.shape[1], size))
        machine = Machine(weights, np.log(middle / (1 - middle)), np.zeros(size))
        centres = rows.mean(axis=0), np.full(size, 0.5)
        states = rows[generator.permutation(len(rows))[:batch]]
        batches = len(rows) // batch
        for update in range(self.max_iter * batches):
            if update % batches == 0:
                order = generator.permutation(len(rows))
            given = rows[order[update % batches * batch :][:batch]]
            if self.sampler is None:
                for _ in range(self.sweeps):
                    states = machine.swept(states, self._levels, generator)
            else:
                states = self._sampled(machine, solver)
            gradient = machine.gradient(given, states, self._levels, centres)
            rate = self.learning_rate * (1 - update / (self.max_iter * batches))
            machine.weights += rate * gradient.weights
            machine.visible += rate * gradient.visible
            machine.hidden += rate * gradient.hidden
            recent = means(machine.hidden_fields(given), self._levels).mean(axis=0)
            centres = centres[0], centres[1] + CENTRING * (recent - centres[1])
        self.n_iter_ = int(self.max_iter)
        return machine

    def _sampled(self, machine: Machine, solver: Solver) -> Array:
        """Return the visible units of all reads of the machine's problem, (R, V)."""
        (answer,) = solver.answers(self._problems(machine))
        return self._levels.decode(answer.bits)[:, : len(machine.visible)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.classifier_tags.poor_score = True  # of rows of two features: the labels have more units than the rows
        return tags
