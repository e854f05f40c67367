"""What a network's answer loses: its divergence from the float one, and what errors of a layer's outputs do to it.

The answer is a distribution where outputs are probabilities, or logits (outputs with one axis besides the rows and more
than one entry): its Kullback–Leibler divergence is, to second order, ½‖Δφ‖² for `φ = 2√π`. For other outputs φ is the
output scaled to unit variance. So `S = E_n[J_nᵀJ_n]` with J_n the Jacobian of φ in a layer's outputs: for distributions
that is `E_n[J_nᵀ(diag π_n − π_nπ_nᵀ)J_n]` in terms of the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit.quantization.onnx_graph import Shown, WeightedNode

_STEP = 0.02  # of a perturbation, in standard deviations of the layer's outputs; both signs, so its square counts
LEAST_ROWS, MOST_ROWS = 16, 512  # whose outputs are perturbed
_MOST_OUTPUTS = 2048  # of the network that are looked at
_LEAST_PROBABILITY = 1e-12

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


def output_weights_of(node: WeightedNode, shown: Shown, seed: int, most: int = MOST_ROWS) -> list[Array] | None:
    """`S` of each group of a layer's outputs, by perturbing them on at most so many rows.

    None where these are too few, or the rest of the network cannot be run so.

    Where outputs have positions, all positions of a channel move at once, with random signs that all channels share:
    products of two responses then have the expectation of a sum over positions, in which only equal positions count.
    """
    generator, whole, rows = np.random.default_rng(seed), np.zeros(()), 0

    def signs(values: NDArray[Any], channel: int) -> list[NDArray[Any]]:
        shape = [1 if axis == channel else length for axis, length in enumerate(values.shape)]
        return [np.broadcast_to(generator.choice([-1.0, 1.0], shape), values.shape)]

    if most < LEAST_ROWS:
        return None
    try:
        for count, _, responses in _responses(node, shown, None, signs, most):
            whole, rows = whole + responses @ responses.T, rows + count
    except InvalidInputError:
        return None
    size = len(whole) // node.n_groups
    return [whole[k : k + size, k : k + size] / rows for k in range(0, len(whole), size)]


def corrections_of(
    node: WeightedNode, shown: Shown, original: Shown, bias: Array | None, most: int
) -> Callable[[float], Array] | None:
    """Changes of the scales, as shares, and of the biases of a layer that bring the network's answer to the float one.

    A Gauss–Newton step with a ridge, a share of the mean curvature: (outputs,) or, with a bias, (2, outputs). None
    where the rest of the network cannot be run so, or there are too few rows.
    """
    units = list[float]()

    def directions(values: NDArray[Any], channel: int) -> list[NDArray[Any]]:
        if bias is None:
            return [values]
        products = values
        if node.operator != "MatMul":  # whose bias is added by a node of its own
            products = values - bias.astype(values.dtype).reshape(-1, *[1] * (values.ndim - 1 - channel))
        units.append(units[0] if units else float(products.std()) or 1.0)
        return [products, np.full_like(values, units[0])]

    curvature, slopes = np.zeros(()), np.zeros(())
    if most < LEAST_ROWS:
        return None
    try:
        for _, missing, responses in _responses(node, shown, original, directions, most):
            curvature, slopes = curvature + responses @ responses.T, slopes + responses @ missing
    except InvalidInputError:
        return None
    size = float(curvature.trace()) / len(curvature) or 1.0

    def step(ridge: float) -> Array:
        found = np.linalg.solve(curvature + ridge * size * np.eye(len(curvature)), slopes)
        if bias is None:
            return np.asarray(found)
        return np.asarray(found.reshape(2, -1) * np.array([[1.0], [units[0]]]))

    return step


def _responses(
    node: WeightedNode,
    shown: Shown,
    original: Shown | None,
    directions: Callable[[NDArray[Any], int], list[NDArray[Any]]],
    rows: int,
) -> Iterator[tuple[int, Array, Array]]:
    """Of batches: their rows, what φ lacks to that of the original network, and φ's derivatives along directions.

    The latter are (directions · channels, entries): each direction moves one channel of the layer's outputs at a time.
    """
    outputs = [value.name for value in shown.network.graph.output]
    shown, original = shown.first(rows), None if original is None else original.first(rows)
    layer, rest = shown.runner([node.output]), shown.network.runner(outputs, fed=node.output)
    before = None if original is None else original.runner(outputs)
    channel = None if node.window is None else 1
    for feed, own in zip(shown.feeds, (original or shown).feeds, strict=True):
        (values,) = layer(feed)
        channel = values.ndim - 1 if channel is None else channel
        answers = rest({**feed, node.output: values})
        wanted = answers if before is None else before(own)
        features = _features_like(wanted)
        found = list[Array]()
        for direction in directions(values, channel):
            length = _STEP * (float(values.std()) or 1.0) / (float(np.sqrt((direction**2).mean(dtype=float))) or 1.0)
            step = (length * direction).astype(values.dtype)
            for place in range(values.shape[channel]):
                chosen = (slice(None),) * channel + (place,)
                sides = []
                for sign in (1, -1):
                    moved = values.copy()
                    moved[chosen] += sign * step[chosen]
                    sides.append(features(rest({**feed, node.output: moved})))
                found.append((sides[0] - sides[1]) / (2 * length))
        yield len(values), features(wanted) - features(answers), np.stack(found)


def _features_like(wanted: Outputs) -> Callable[[Outputs], Array]:
    """A function that computes `φ` of outputs, flat and thinned out; of the kinds that the wanted ones are."""
    kinds = [(_kind(one), 1 / max(float(one.std()), 1e-30)) if one.dtype.kind == "f" else None for one in wanted]
    size = sum(one.size for one, kind in zip(wanted, kinds, strict=True) if kind)
    stride = -(-size // (_MOST_OUTPUTS * max(len(wanted[0]) if wanted[0].ndim else 1, 1)))

    def features(outputs: Outputs) -> Array:
        parts = [np.zeros(0)]
        for values, known in zip(outputs, kinds, strict=True):
            if known is None:
                continue
            kind, scale = known
            part = values * scale if kind == "values" else 2 * np.exp(_logarithms(values, kind) / 2)
            parts.append(np.asarray(part, float).ravel())
        return np.concatenate(parts)[::stride] * np.sqrt(stride)

    return features


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
