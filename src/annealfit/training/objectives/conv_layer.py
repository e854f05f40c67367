"""The filters of one convolution layer, everything else fixed.

With the places that win in pooling and the signs in ReLU held fixed, the outputs `z_n` of an image are linear in the
layer's filters, with the Jacobian `J_n`. The gradient is `mean_n a_n J_nᵀ(π_n − y_n)`, exact wherever no winner
changes. The curvature is Gauss and Newton's, `mean_n a_n J_nᵀ(diag π_n − π_nπ_nᵀ)J_n`: the Hessian of the loss if
nothing ever switched. It is not a bound, so a step is for the true loss to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.threads import in_order
from annealfit.data.convolution.network import Values
from annealfit.problems.curvature import Curvature
from annealfit.training.objectives.curvature import Curvatures

if TYPE_CHECKING:
    from annealfit.training.objectives.conv_net import ConvNet, NetworkHeadPoint

_IMAGES_AT_ONCE = 128  # a unit of work of a thread


class ConvLayer:
    """A layer of a network as an objective: a block of `k²·channels + 1` parameters per filter, the bias last."""

    def __init__(self, net: ConvNet, layer: int, start: NetworkHeadPoint, positions: NDArray[np.intp]) -> None:
        """The layer with the other weights of `start`; its curvature is that of the images at some positions."""
        self.net, self.layer, self.positions = net, layer, positions
        self.head_weights, self._others = start.weights, start.head.filters
        shape = net.network.layers[layer]
        self.n_blocks, self.n_parameters = shape.filters, shape.n_parameters

    @property
    def multiplications(self) -> float:
        """The network's."""
        return self.net.multiplications

    @cached_property
    def ridge(self) -> Array:
        """The diagonal of `Λ = λ·diag(1, …, 1, 0)`, shape (D,)."""
        diagonal = np.full(self.n_parameters, self.net.regularization)
        diagonal[-1] = 0.0
        return diagonal

    def at(self, weights: Array) -> LayerPoint:
        """The network with these filters (F, D) in the layer."""
        filters = (*self._others[: self.layer], weights, *self._others[self.layer + 1 :])
        return self.point(self.net.head(filters).point(self.head_weights))

    def point(self, head_point: NetworkHeadPoint) -> LayerPoint:
        """A point of the network as a point of the layer."""
        return LayerPoint(self, head_point)


class LayerPoint:
    """A network at some weights, of which the filters of one layer are shown."""

    def __init__(self, layer: ConvLayer, head_point: NetworkHeadPoint) -> None:
        self.layer, self.head_point = layer, head_point
        self.filters = head_point.head.filters
        self.weights = self.filters[layer.layer]
        self.loss = head_point.loss

    @property
    def objective(self) -> ConvLayer:
        """The layer."""
        return self.layer

    def figures(self) -> dict[str, float]:
        """The network's."""
        return self.head_point.figures()

    @cached_property
    def gradients(self) -> Array:
        """The gradient of the loss, filter by filter, shape (F, D)."""
        return self.head_point.head.rows.mean(self._slopes)[0] + self.weights * self.layer.ridge

    def _slopes(self, chunk: Any) -> tuple[Array]:
        head = self.head_point.head
        residuals = head.link.residuals(self.head_point.probabilities(chunk), chunk.labels)
        cotangents = chunk.weighted(residuals).T @ self.layer.head_weights[:-1].T
        images = head.net.images.take(chunk.positions)
        total = np.zeros(self.weights.shape)
        for found in self._jacobians(images, lambda features, batch: cotangents[batch, None]):
            total += found.sum(axis=(0, 1), dtype=np.float64)
        return (total,)

    def filter_grams(self) -> Array:
        """Each filter's block of the Gauss-Newton curvature, without the penalty, shape (F, D, D)."""

        def term(roots: Values) -> Array:
            by_filter = np.ascontiguousarray(roots.reshape(-1, *roots.shape[2:]).transpose(1, 0, 2))
            return (by_filter.transpose(0, 2, 1) @ by_filter).astype(np.float64)

        return _symmetric(self._mean_over_roots(term))

    def joint_gram(self) -> Array:
        """The Gauss-Newton curvature of all filters, without the penalty, shape (F·D, F·D)."""

        def term(roots: Values) -> Array:
            flat = roots.reshape(roots.shape[0] * roots.shape[1], -1)
            return (flat.T @ flat).astype(np.float64)

        return _symmetric(self._mean_over_roots(term))

    def span(self, updates: Array, previous: Any = None) -> LayerSpan:
        """The networks with multiples of an update of the filters, and of the layer's previous step, applied."""
        steps = [] if previous is None else [self.weights - previous.weights]
        return LayerSpan(self, np.stack([updates.reshape(self.weights.shape), *steps]))

    def moved(self, updates: Array) -> LayerPoint:
        """The network with updates of the filters applied."""
        return self.layer.at(self.weights + updates.reshape(self.weights.shape))

    def is_within(self, gap: float) -> bool:
        """Never: the loss is not convex in filters."""
        return False

    def lower_bound(self) -> float:
        """None is known."""
        return -np.inf

    def cached_outputs(self) -> None:
        """Nothing: all is worked out from the weights."""
        return None

    def curvature_along(self, directions: Array) -> Array:
        """Second derivatives (m·F, m·F) of the linearised network in the multiples of directions (m, F, D)."""
        count, filters, _ = directions.shape
        by_filter = directions.transpose(1, 2, 0)

        def term(roots: Values) -> Array:
            flat = roots.reshape(-1, *roots.shape[2:]).transpose(1, 0, 2)
            changes = (flat @ by_filter.astype(roots.dtype)).transpose(2, 0, 1).reshape(count * filters, -1)
            return (changes @ changes.T).astype(np.float64)

        found = self._mean_over_roots(term)
        penalty = np.einsum("afj,bfj,j->fab", directions, directions, self.layer.ridge, optimize=True)
        own = np.arange(filters)
        found.reshape(count, filters, count, filters)[:, own, :, own] += penalty
        return found

    def _mean_over_roots(self, term: Callable[[Values], Array]) -> Array:
        """The weighted mean over the curvature's images of a term of `R_nJ_n` (n, outputs, F, D), `RᵀR` the Hessian."""
        positions, weights = self.layer.positions, self.layer.net.images.weights
        total_weight = float(len(positions)) if weights is None else float(weights[positions].sum())
        groups = [positions[first : first + _IMAGES_AT_ONCE] for first in range(0, len(positions), _IMAGES_AT_ONCE)]

        def of_group(group: NDArray[np.intp]) -> Array:
            return sum(map(term, self._roots(group)), np.zeros(()))

        return sum(in_order(of_group, groups), np.zeros(())) / total_weight

    def _roots(self, positions: NDArray[np.intp]) -> Iterator[Values]:
        """`√a_n·R_nJ_n` of some images, a few at a time."""
        images, head_weights = self.layer.net.images, self.layer.head_weights
        link = self.head_point.head.link

        def cotangents(features: Values, batch: slice) -> Array:
            outputs = features @ head_weights[:-1] + head_weights[-1]
            own = positions[batch]
            roots = link.roots(link.evaluate(np.ascontiguousarray(outputs.T), images.labels[own])[0])
            if images.weights is not None:
                roots = roots * np.sqrt(images.weights[own])[:, None, None]
            return roots @ head_weights[:-1].T

        return self._jacobians(images.take(positions), cotangents)

    def _jacobians(self, images: Values, cotangents: Callable[[Values, slice], Array]) -> Iterator[Values]:
        return self.layer.net.network.jacobians(images, self.filters, self.layer.layer, cotangents)


class LayerSpan:
    """The networks around a point, along directions in the filters of a layer."""

    def __init__(self, point: LayerPoint, directions: Array) -> None:
        self.point, self.directions = point, directions

    def curvature_along(self) -> Array:
        """The point's."""
        return self.point.curvature_along(self.directions)

    def at(self, multiples: Array) -> LayerPoint:
        """The network there."""
        return self.point.moved(np.einsum("af,afj->fj", multiples, self.directions))


def _symmetric(matrices: Array) -> Array:
    """Products of single precision may differ from their transposes by more than a metric allows."""
    return (matrices + np.swapaxes(matrices, -1, -2)) / 2


def by_filter(layer: ConvLayer) -> Callable[[LayerPoint], Curvatures]:
    """Gauss-Newton, a problem for each filter: what filters do together is left to the acceptance rule."""
    penalty = np.diag(layer.ridge)
    return lambda point: [Curvature(matrix + penalty) for matrix in point.filter_grams()]


def all_filters(layer: ConvLayer) -> Callable[[LayerPoint], Curvatures]:
    """Gauss-Newton, one problem over all filters of the layer."""
    penalty = np.diag(np.tile(layer.ridge, layer.n_blocks))
    return lambda point: [Curvature(point.joint_gram() + penalty)]


FILTER_CURVATURES = {"by_filter": by_filter, "joint": all_filters}
