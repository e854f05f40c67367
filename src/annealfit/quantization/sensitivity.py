"""What a network's answer loses: its divergence from the float one, and what errors of a layer's outputs do to it.

The answer is a distribution where outputs are probabilities, or logits (outputs with one axis besides the rows and more
than one entry): its Kullback–Leibler divergence is, to second order, ½‖Δφ‖² for `φ = 2√π`. Of other outputs it is the
relative squared error, that is ½‖Δφ‖² for outputs φ scaled to a mean square of 2. So errors of a layer's outputs cost

    ½ E_n ‖Σ_p J_np e_np‖²,

with J_np the Jacobian of φ in the layer's outputs at position p. `g = Σ_c ε_c J_c` with random signs ε is one backward
pass for all layers, and `E[g_p g_pᵀ] = J_pᵀJ_p`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.quantization.derivatives import Derivatives
from annealfit.quantization.onnx_graph import Feed, OnnxGraph, WeightedNode

_LEAST_PROBABILITY = 1e-12
_LEAST_DRAWS, _MOST_DRAWS = 1024, 4  # of random signs: over all rows, but not more for each
_DRAWS_PER_OUTPUT = 4  # of a layer: fewer are too few to tell the couplings
# Of the weight of a row or position that all have alike: rows of which the float network is certain matter too once
# errors are large. Chosen on perceptrons and PP-OCR's classifier: 0, 0.1, 0.3 and 0.6 were tried.
_EQUAL_SHARE = 0.6

Outputs = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Fidelity:
    """How near a network's outputs are to those of the float network."""

    rows: int
    divergence: float  # Kullback–Leibler, per row; relative squared error of outputs that are no distributions
    error: float  # relative squared error of the outputs
    agreement: float | None  # share of the rows whose largest output is the same; None where it has no meaning


def _kind(values: NDArray[Any]) -> str:
    """Whether outputs are "probabilities" (along the last axis), "logits", or other "values"."""
    if values.ndim < 2 or values.shape[-1] < 2:
        return "values"
    if values.min() >= 0 and np.allclose(values.sum(axis=-1), 1.0, atol=1e-3):
        return "probabilities"
    return "logits" if values.ndim == 2 else "values"


def _logarithms(values: NDArray[Any], kind: str) -> Array:
    """Of the probabilities that outputs are or stand for."""
    if kind == "logits":
        return np.asarray(scipy.special.log_softmax(values.astype(float), axis=-1))
    return np.log(np.maximum(values.astype(float), _LEAST_PROBABILITY))


def compare(pairs: Iterable[tuple[Outputs, Outputs]]) -> Fidelity:
    """The fidelity of outputs before and after, batch by batch."""
    rows, same, count, error, total, own_error, own_total = 0, 0, 0, 0.0, 0.0, 0.0, 0.0
    divergences = dict[int, Array]()  # of each output: sum and number of distributions
    for before, after in pairs:
        rows += len(before[0]) if before[0].ndim else 1
        for place, (was, now) in enumerate(zip(before, after, strict=True)):
            if was.dtype.kind != "f":
                continue
            missed, size = float(((now.astype(float) - was) ** 2).sum()), float((was.astype(float) ** 2).sum())
            error, total = error + missed, total + size
            kind = _kind(was)
            if kind == "values":
                own_error, own_total = own_error + missed, own_total + size
                continue
            wanted = _logarithms(was, kind)
            each = (np.exp(wanted) * (wanted - _logarithms(now, kind))).sum(axis=-1)
            divergences[place] = divergences.get(place, np.zeros(2)) + np.array([each.sum(), each.size])
            if was.ndim == 2:
                same, count = same + int((was.argmax(axis=1) == now.argmax(axis=1)).sum()), count + len(was)
    divergence = sum(float(summed / many) for summed, many in divergences.values())
    divergence += own_error / own_total if own_total > 0 else 0.0
    return Fidelity(rows, divergence, error / total if total > 0 else 0.0, same / count if count else None)


class Reference:
    """A network's outputs on some rows, and how those of networks like it differ from them."""

    def __init__(self, network: OnnxGraph, feeds: Sequence[Feed]) -> None:
        self.feeds, self.names = feeds, [value.name for value in network.graph.output]
        run = network.runner(self.names)
        self.outputs = [run(feed) for feed in feeds]
        self.rows = [len(batch[0]) if batch[0].ndim else 1 for batch in self.outputs]
        self._kinds = [_kind(one) if one.dtype.kind == "f" else "" for one in self.outputs[0]]
        powers = [
            float((one.astype(float) ** 2).sum())
            for batch in self.outputs
            for one, kind in zip(batch, self._kinds, strict=True)
            if kind == "values"
        ]
        self._scale = np.sqrt(2 * sum(self.rows) / sum(powers)) if sum(powers) > 0 else 0.0  # φ = scale · output

    def compare(self, network: OnnxGraph) -> Fidelity:
        """The fidelity of a network with the same inputs and outputs."""
        run = network.runner(self.names)
        return compare((before, run(feed)) for before, feed in zip(self.outputs, self.feeds, strict=True))

    def slopes(self, batch: int, outputs: Outputs) -> dict[str, Array]:
        """The gradients, at outputs on a batch, of their summed divergence."""
        found = {}
        for name, kind, was, now in zip(self.names, self._kinds, self.outputs[batch], outputs, strict=True):
            before, own = was.astype(float), now.astype(float)
            if kind == "values":
                found[name] = self._scale**2 * (own - before)
            elif kind == "logits":
                found[name] = scipy.special.softmax(own, axis=-1) - scipy.special.softmax(before, axis=-1)
            elif kind:
                found[name] = -before / np.maximum(own, _LEAST_PROBABILITY) / _distributions(was)
        return found

    def random_slopes(self, batch: int, generator: np.random.Generator) -> dict[str, Array]:
        """The gradients, at the outputs themselves, of `Σ_c ε_c φ_c` with random signs ε."""
        found = {}
        for name, kind, was in zip(self.names, self._kinds, self.outputs[batch], strict=True):
            signs, own = generator.choice([-1.0, 1.0], was.shape), was.astype(float)
            if kind == "values":
                found[name] = self._scale * signs
            elif kind == "logits":
                roots = signs * np.exp(_logarithms(own, kind) / 2)
                found[name] = roots - scipy.special.softmax(own, axis=-1) * roots.sum(axis=-1, keepdims=True)
            elif kind:
                found[name] = signs / np.sqrt(np.maximum(own, _LEAST_PROBABILITY) * _distributions(was))
        return found


def _distributions(values: NDArray[Any]) -> float:
    """How many distributions a row has."""
    return values.size / values.shape[-1] / len(values)


@dataclass(frozen=True, eq=False)
class Importance:
    """What the outputs of a layer do to the network's answer."""

    couplings: list[Array]  # S of each group of outputs, per row of the network; none if draws are too few
    weights: list[NDArray[Any]]  # ω of each batch, (groups, rows, positions…), 1 in the mean


def importances(
    network: OnnxGraph, nodes: Sequence[WeightedNode], reference: Reference, seed: int
) -> tuple[dict[str, Importance], dict[str, str]]:
    """What the outputs of layers matter, by the layers' names; and the operators of which no derivatives are known.

    The latter are given for layers whose outputs they read. One backward pass of a batch, for each draw of signs,
    serves all layers.
    """
    derivatives, generator = Derivatives(network, [node.output for node in nodes]), np.random.default_rng(seed)
    rows, found = sum(reference.rows), {node.name: Importance([], []) for node in nodes}
    draws = int(np.clip(-(-_LEAST_DRAWS // rows), 1, _MOST_DRAWS))
    has_couplings = {node.name: draws * rows >= _DRAWS_PER_OUTPUT * node.n_outputs / node.n_groups for node in nodes}
    for batch, feed in enumerate(reference.feeds):
        values = derivatives.forward(feed)
        for draw in range(draws):
            gradients = derivatives.backward(feed, values, reference.random_slopes(batch, generator))
            for node in nodes:
                if node.output in gradients:
                    parts = np.split(node.channels_last(gradients[node.output]), node.n_groups, axis=-1)
                    squares = np.stack([(part**2).sum(axis=-1) for part in parts])
                    own = found[node.name]
                    own.weights[batch:] = [own.weights[batch] + squares if draw else squares]
                    if has_couplings[node.name]:
                        _add_products(own.couplings, parts, draws * rows)
    for own in found.values():
        for group in range(len(own.weights[0]) if own.weights else 0):
            mean = np.concatenate([batch[group].ravel() for batch in own.weights]).mean()
            for weights in own.weights:
                weights[group] = (1 - _EQUAL_SHARE) * weights[group] / (mean or 1.0) + _EQUAL_SHARE
    unknown = {node.name: derivatives.unknown[node.output] for node in nodes if node.output in derivatives.unknown}
    return {name: own for name, own in found.items() if own.weights}, unknown


def _add_products(sums: list[Array], parts: Sequence[NDArray[Any]], count: int) -> None:
    """Add the products of gradients (rows, positions…, outputs) at each group of a layer's outputs, over a count."""
    matrices = [part.reshape(-1, part.shape[-1]) for part in parts]
    products = [(matrix.T @ matrix).astype(float) / count for matrix in matrices]
    sums[:] = [old + new for old, new in zip(sums, products, strict=True)] if sums else products


def least_divergence(sizes: NDArray[Any], divergences: Array, budget: float) -> NDArray[np.intp] | None:
    """One choice for each layer, (layers,), of least total divergence within a total size; None if nothing is small.

    Sizes and divergences are (layers, choices). An exact knapsack, by SciPy's branch and bound.

    >>> least_divergence(np.array([[2, 4], [2, 4]]), np.array([[1.0, 0.1], [2.0, 0.2]]), 6).tolist()
    [0, 1]
    """
    layers, choices = sizes.shape
    if sizes.min(axis=1).sum() > budget:
        return None
    one_each = scipy.optimize.LinearConstraint(np.kron(np.eye(layers), np.ones(choices)), 1, 1)
    within = scipy.optimize.LinearConstraint(sizes.reshape(1, -1) / budget, ub=1.0)
    found = scipy.optimize.milp(
        divergences.ravel() / max(float(divergences.max()), 1e-30),
        integrality=np.ones(layers * choices),
        bounds=scipy.optimize.Bounds(0, 1),
        constraints=[one_each, within],
        options={"mip_rel_gap": 0.0},
    )
    return np.asarray(found.x.reshape(layers, choices).argmax(axis=1))
