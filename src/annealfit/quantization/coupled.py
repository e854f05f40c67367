"""The outputs of a layer weighted by what they do to the network's answer: choose Q to minimise f(Q) = tr(EᵀHES).

`E = W − Q` are the errors of the weights, `H` the Gram matrix of the inputs and `S` (P, P) says what an error of two
outputs together costs. For output j, the others fixed, f is that of a single layer with one output whose weights are

    t_j = w_j + Σ_{k≠j} (S_jk / S_jj) (w_k − q_k),

times S_jj and up to a constant. So f falls by solving the outputs in turn, with any method for a `LayerProblem`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.arrays import Array, as_real
from annealfit._support.errors import InvalidInputError
from annealfit._support.randomness import child_seed, child_seeds
from annealfit.quantization.layer_problem import Layer, LayerProblem, Rounding
from annealfit.quantization.methods import (
    Annealed,
    Method,
    anneal_partners,
    chains_from,
    descend_from,
    temperature_units,
)

_ROUNDING = 1e-6  # of the largest entry: S may have eigenvalues as far below 0 as single precision makes them
_MOST_SWEEPS = 8  # over all outputs; most layers need three or four
_LEAST_GAIN = 1e-3  # of f: sweeps that gain less are the last
_SAMPLED_SWEEPS = 2  # of a method that is not a descent
# The effort of an anneal if sweeps and reads are not given: multiplications, sweeps, and reads side by side for layers
# of few weights.
_WORK, _SWEEPS_OF_ANNEAL, _MOST_READS, _NUMBERS_OF_READS = 1e9, (12, 100), 16, 1 << 13
# Temperatures in those of a layer by itself: errors of one output are made up for by others, so less heat is enough.
_COOLER = 0.3


@dataclass(frozen=True, eq=False)
class CoupledLayer:
    """A layer's problem and what its outputs matter."""

    problem: LayerProblem
    products: Array  # of the outputs that are to be reproduced, E[y yᵀ], (P, P)
    weights: Array  # S, (P, P)

    @classmethod
    def of(cls, layer: Layer, output_weights: ArrayLike) -> CoupledLayer:
        """A layer with what a user gives as S."""
        rows, moments = layer.weights, layer.moments if layer.bias is None else layer.moments.centred()
        products = rows @ moments.target_gram @ rows.T
        return cls(layer.problem, (products + products.T) / 2, _checked(output_weights, len(rows)))

    @property
    def order(self) -> NDArray[np.intp]:
        """The outputs that matter, the most important one first."""
        importance = self.weights.diagonal()
        order = np.argsort(-importance, kind="stable")
        return order[importance[order] > 0]

    @property
    def is_coupled(self) -> bool:
        """Whether S has couplings; else every output is a problem of its own."""
        return bool((self.weights - np.diag(self.weights.diagonal())).any())

    @property
    def power(self) -> float:
        """`tr(WᵀHWS)`, what errors are shares of."""
        return max(float((self.weights * self.products).sum()), 0.0)

    def damped(self, share: float, outputs: bool = True) -> CoupledLayer:
        """With independent noise in the inputs (`LayerProblem.damped`) and, if wanted, the same share in S."""
        if share == 0:
            return self
        problem = self.problem.damped(share)
        noise = share * float(self.problem.metric.diagonal.mean())
        products = self.products + noise * self.problem.weights @ self.problem.weights.T
        more = share * float(self.weights.diagonal().mean()) if outputs else 0.0
        return CoupledLayer(problem, products, self.weights + more * np.eye(len(self.weights)))

    def error(self, rounding: Rounding) -> float:
        """`f`."""
        return float(Answers(self, [rounding]).errors()[0])

    def better(self, one: Rounding, other: Rounding) -> Rounding:
        """The answer of lower f; the first where they are the same."""
        return other if self.error(other) < self.error(one) else one

    def improve(self, method: Method, start: Rounding, seed: int) -> Rounding:
        """A method's answer from a start, never worse than it in f."""

        def improved(part: LayerProblem, now: Rounding, own: int) -> Rounding:
            return part.better(now, method.improve(part, now, own))

        sweeps, improve = _MOST_SWEEPS, _descended
        if isinstance(method, Annealed):
            work = start.numbers.size * float(self.problem.n_inputs)
            num_sweeps = method.num_sweeps or int(np.clip(_WORK / work, *_SWEEPS_OF_ANNEAL))
            reads = min(method.num_reads or _MOST_READS, 1 + _NUMBERS_OF_READS // start.numbers.size)
            answers = Answers(self, [start] * reads)
            _anneal(self, answers, method, num_sweeps, seed)
        else:
            answers = Answers(self, [start])
            if method.name != "descent":
                sweeps, improve = _SAMPLED_SWEEPS, improved
        self._descend(answers, improve, sweeps, seed)
        return self.better(start, answers.best())

    def _descend(self, answers: Answers, improve: Callable[..., Rounding], sweeps: int, seed: int) -> None:
        """Output by output, an answer of `improve` is taken where it is better, until sweeps gain nothing."""
        before = answers.errors()
        for sweep in range(sweeps):
            for output in self.order:
                part, now = answers.problem_of(output), answers.of(output)
                answers.put(output, improve(part, now, child_seed(seed, sweep, int(output))))
            after = answers.errors()
            if (after >= (1 - _LEAST_GAIN) * before).all():
                break
            before = after


class Answers:
    """Answers (R of them) to a coupled layer, kept with what the problems of single outputs are made of."""

    def __init__(self, layer: CoupledLayer, roundings: list[Rounding]) -> None:
        self._numbers = np.stack([one.numbers for one in roundings])  # (R, P, D)
        self._scales = np.stack([one.scales for one in roundings])
        self.see(layer)

    def see(self, layer: CoupledLayer) -> None:
        """Compute everything for a layer, which may be another than before."""
        self.layer, problem = layer, layer.problem
        self._values = problem.spread(self._scales) * problem.grid.at(self._numbers)
        self._rests = problem.correlations - problem.metric.times(self._values)  # of inputs and errors: E[e xᵀ]
        # Of the errors of two outputs: E[e eᵀ], (R, P, P).
        self._products = (
            layer.products
            - problem.correlations @ self._values.swapaxes(1, 2)
            - self._values @ self._rests.swapaxes(1, 2)
        )

    def errors(self) -> Array:
        """`f` of each, (R,)."""
        return np.maximum(np.einsum("kl,rkl->r", self.layer.weights, self._products), 0.0)

    def best(self) -> Rounding:
        """The answer of lowest f."""
        found = int(self.errors().argmin())
        return Rounding(self._numbers[found], self._scales[found])

    def of(self, output: np.intp) -> Rounding:
        """What the answers have for an output, one row for each."""
        return Rounding(self._numbers[:, output], self._scales[:, output])

    def problem_of(self, output: np.intp) -> LayerProblem:
        """The problem of an output, the others fixed: a row for each answer."""
        problem, count = self.layer.problem, len(self._numbers)
        shares = self.layer.weights[output] / self.layer.weights[output, output]
        own = self._values[:, output]
        product = problem.correlations[output] - self._rests[:, output]  # Hq
        correlations = shares @ self._rests + product
        errors = np.einsum("k,rkl,l->r", shares, self._products, shares)
        powers = errors + np.vecdot(2 * correlations - product, own)
        return replace(
            problem,
            correlations=correlations,
            powers=np.maximum(powers, 0.0),
            weights=own + shares @ (problem.weights - self._values),
            first_scales=np.repeat(problem.first_scales[None, output], count, axis=0),
        )

    def put(self, output: np.intp, found: Rounding) -> None:
        """Take over what was found for an output."""
        problem = self.layer.problem
        self._numbers[:, output], self._scales[:, output] = found.numbers, found.scales
        own = problem.spread(found.scales) * problem.grid.at(found.numbers)
        rests = problem.correlations[output] - problem.metric.times(own)
        self._values[:, output], self._rests[:, output] = own, rests
        products = self.layer.products[output] - own @ problem.correlations.T
        products -= (self._values @ rests[..., None])[..., 0]
        self._products[:, output] = self._products[:, :, output] = products


def _descended(part: LayerProblem, now: Rounding, own: int) -> Rounding:
    return descend_from(part, now, rounds=1)  # the next sweep goes on


def _anneal(layer: CoupledLayer, answers: Answers, method: Annealed, sweeps: int, seed: int) -> None:
    """Anneal all outputs together: in every round each output in turn, at the round's temperatures."""
    reads, partners, units = len(answers.errors()), anneal_partners(layer.problem), dict[np.intp, Array]()
    for turn, (temperatures, share) in enumerate(method.rounds(sweeps, reads)):
        answers.see(layer.damped(share, outputs=False))
        for output in layer.order:
            part, now = answers.problem_of(output), answers.of(output)
            if turn == 0:
                units[output] = temperature_units(part, now)
            seeds = child_seeds(seed, turn, int(output), np.arange(reads))
            chains = chains_from(part, now, seeds, partners, method.num_threads)
            chains.anneal(1 / (_COOLER * temperatures * units[output]))
            answers.put(output, part.fitted(Rounding(chains.levels, now.scales)))
    answers.see(layer)


def _checked(given: ArrayLike, n_outputs: int) -> Array:
    """S, refused unless it is a symmetric positive semidefinite matrix (n_outputs, n_outputs)."""
    matrix = as_real(given, "output_weights", ndim=2)
    if matrix.shape != (n_outputs, n_outputs):
        raise InvalidInputError(
            f"output_weights have shape {matrix.shape}; expected (n_outputs, n_outputs) = {(n_outputs, n_outputs)}"
        )
    largest = float(np.abs(matrix).max())
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-6 * largest):
        raise InvalidInputError(
            f"output_weights differ from their transpose by {np.abs(matrix - matrix.T).max():.3g}; pass (S + S.T) / 2"
        )
    matrix, floor = (matrix + matrix.T) / 2, _ROUNDING * largest
    try:
        np.linalg.cholesky(matrix + (floor or 1.0) * np.eye(n_outputs))
    except np.linalg.LinAlgError as error:
        raise InvalidInputError(
            f"output_weights have the eigenvalue {np.linalg.eigvalsh(matrix)[0]:.3g}; none may be below 0: "
            "tr(EᵀHES) would have no minimum"
        ) from error
    return matrix
