"""What a network's answer loses: its divergence from the float one, and what errors of a layer's outputs do to it.

The answer is a distribution where outputs are probabilities, or logits (outputs with one axis besides the rows and more
than one entry): its Kullback–Leibler divergence is, to second order, ½‖Δφ‖² for `φ = 2√π`. For other outputs φ is the
output scaled to unit variance. So `S = E_n[J_nᵀJ_n]` with J_n the Jacobian of φ in a layer's outputs: for distributions
that is `E_n[J_nᵀ(diag π_n − π_nπ_nᵀ)J_n]` in terms of the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError
from annealfit.quantization.onnx_graph import Feed, OnnxGraph, WeightedNode

_STEP = 0.02  # of a perturbation, in standard deviations of the layer's outputs; both signs, so its square counts
_NUMBERS = 2e9  # of layers' outputs that are fed to the rest of the network, all perturbations together
_MOST_ROWS, _MOST_OUTPUTS = 512, 2048  # rows perturbed, and outputs of the network that are looked at
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


def output_weights_of(node: WeightedNode, network: OnnxGraph, feeds: Sequence[Feed], seed: int) -> list[Array] | None:
    """`S` of each group of a layer's outputs, by perturbing them; None where the rest of the network cannot be run so.

    Where outputs have positions, all positions of a channel move at once, with random signs that all channels share:
    products of two responses then have the expectation of a sum over positions, in which only equal positions count.
    """
    outputs = [value.name for value in network.graph.output]
    try:
        layer, rest = network.runner([node.output]), network.runner(outputs, fed=node.output)
        first = layer(feeds[0])[0]
        channel = first.ndim - 1 if node.window is None else 1
        n_outputs = first.shape[channel]
        per_row = 2.0 * n_outputs * first.size / len(first)
        most = int(np.clip(_NUMBERS / per_row, 1, _MOST_ROWS))
        responses, rows, generator = list[Array](), 0, np.random.default_rng(seed)
        for feed in feeds:
            if rows >= most:
                break
            feed = _first_rows(feed, network, most - rows)
            (values,) = layer(feed)
            moved = _responses(values, channel, partial(_run_from, rest, feed, node.output), generator)
            responses.append(moved)
            rows += len(values)
    except InvalidInputError:
        return None
    joined = np.concatenate(responses, axis=1)
    whole = joined @ joined.T / rows
    size = n_outputs // node.n_groups
    return [whole[k : k + size, k : k + size] for k in range(0, n_outputs, size)]


def _first_rows(feed: Feed, network: OnnxGraph, count: int) -> Feed:
    """The first rows of a feed, if the network reads any number of rows."""
    lengths = {len(values) if values.ndim else 0 for values in feed.values()}
    fixed = any(kind.shape.dim and kind.shape.dim[0].dim_value > 0 for kind in network.inputs.values())
    if fixed or len(lengths) > 1:
        return feed
    return {name: values[:count] for name, values in feed.items()}


def _run_from(run: Callable[[Feed], Outputs], feed: Feed, tensor: str, values: NDArray[Any]) -> Outputs:
    return run({**feed, tensor: values})


def _responses(
    values: NDArray[Any], channel: int, run: Callable[[NDArray[Any]], Outputs], generator: np.random.Generator
) -> Array:
    """The derivatives of φ in each channel of a layer's outputs, (channels, rows · outputs)."""
    shape = [1 if axis == channel else length for axis, length in enumerate(values.shape)]
    step = (_STEP * float(values.std()) or 1.0) * generator.choice([-1.0, 1.0], shape).astype(values.dtype)
    plain = [(one, _kind(one), 1 / max(float(one.std()), 1e-30)) for one in run(values)]
    kinds = [(kind, scale) if one.dtype.kind == "f" else ("", 0.0) for one, kind, scale in plain]
    size, found = abs(step.flat[0]), list[Array]()
    for place in range(values.shape[channel]):
        chosen = (slice(None),) * channel + (slice(place, place + 1),)
        sides = []
        for sign in (1, -1):
            moved = values.copy()
            moved[chosen] += sign * step
            features = [_features(one, *kind) for one, kind in zip(run(moved), kinds, strict=True)]
            sides.append(np.concatenate(features))
        found.append((sides[0] - sides[1]) / (2 * size))
    stride = -(-found[0].size // (_MOST_OUTPUTS * len(values)))
    return np.stack([one[::stride] for one in found]) * np.sqrt(stride)


def _features(values: NDArray[Any], kind: str, scale: float) -> Array:
    """`φ`, flat; nothing of outputs that are no real numbers."""
    if not kind:
        return np.zeros(0)
    return np.asarray(values * scale if kind == "values" else 2 * np.exp(_logarithms(values, kind) / 2), float).ravel()


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
