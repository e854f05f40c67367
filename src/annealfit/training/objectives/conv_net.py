"""The loss of a convolution network, as an objective of its head or of the filters of one layer.

`f = mean_n a_n ℓ(Wᵀφ(x_n), y_n) + ½λ(‖W‖² + Σ‖filters‖²)`, where φ are the features of an image. Biases are not
regularised, nor are layers that are not trained. Filters are: doubling the filters and halving the head changes no
output, so a penalty on the head alone would be no penalty.

With the winners of pooling and the signs of ReLU fixed, the outputs `z_n` of an image are linear in the filters of a
layer, with the Jacobian `J_n`. The gradient is `mean_n a_n J_nᵀ(π_n − y_n)`, exact where no winner changes. The
curvature is Gauss-Newton, `mean_n a_n J_nᵀ(diag π_n − π_nπ_nᵀ)J_n`. It is no bound: the true loss decides about steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.randomness import child_seed
from annealfit._support.threads import in_order
from annealfit.data.convolution import Images, Network, NetworkRows
from annealfit.problems.curvature import Curvature
from annealfit.training.objectives.linear_head import HeadPoint, LinearHead, link_of

HEAD = "head"
# Paths below the seed of a training; 0 to 2 are initial weights, anneals and validation.
_CURVATURE_ROWS, _PARTS = 3, 4
_ROWS_OF_PART = 4  # a part has at least so many times the images of a curvature
_VALUES_AT_ONCE = 2**20  # of Jacobians, which then stay in a processor's cache
_KEPT_BYTES = 2**28  # Jacobians of up to so many bytes are kept


def layer_name(layer: int) -> str:
    """Return the name of a convolution layer, counted from 0.

    >>> layer_name(0)
    'conv1'
    """
    return f"conv{layer + 1}"


class ConvNet:
    """The loss of a network on images. Weights are a mapping from "head", "conv1", "conv2", … to arrays.

    The parameters of the head are ordered by filter, as in `RandomConvFeatures`. In a `NetworkHead` they are in the
    order of `Network.forward`, place by place, so that the blocks of its curvature hold all filters of neighbouring
    places: the features that are correlated.

    `filters` are the weights (F, D) of every layer; those of layers that are not `trained` are fixed. The curvature of
    filters is computed from `curvature_rows` images drawn for each iteration; None uses all.
    """

    def __init__(
        self,
        images: Images,
        network: Network,
        filters: Sequence[Array],
        trained: Sequence[int],
        regularization: float,
        *,
        curvature_rows: int | None = None,
        seed: int = 0,
    ) -> None:
        self.images, self.network, self.filters = images, network, tuple(filters)
        self.trained, self.regularization = tuple(sorted(trained)), float(regularization)
        self.curvature_rows, self.seed = curvature_rows, seed
        self.multiplications = len(images) * network.multiplications  # of a forward pass of all images
        self.link = link_of(images.n_classes)  # of the head

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the trained layers in their order, and of the head."""
        return (*(layer_name(layer) for layer in self.trained), HEAD)

    def filters_of(self, weights: Mapping[str, Array]) -> tuple[Array, ...]:
        """Return the filters of every layer, trained or not."""
        return tuple(weights.get(layer_name(layer), own) for layer, own in enumerate(self.filters))

    def first_weights(self, head: Array) -> dict[str, Array]:
        """Return the initial weights of all trained layers, with those of the head, ordered by filter."""
        return {**{layer_name(layer): self.filters[layer] for layer in self.trained}, HEAD: head}

    def part(self, count: int) -> ConvNet:
        """Return the loss on `count` images that have a weight, which are among those of larger parts; or on all."""
        images, weights = self.images, self.images.weights
        positions = np.arange(len(images)) if weights is None else np.flatnonzero(weights)
        if count >= len(positions):
            return self
        chosen = np.random.default_rng(child_seed(self.seed, _PARTS)).permutation(positions)[:count]
        rows = None if self.curvature_rows is None else min(self.curvature_rows, -(-count // _ROWS_OF_PART))
        given = self.network, self.filters, self.trained, self.regularization
        return ConvNet(images.part(np.sort(chosen)), *given, curvature_rows=rows, seed=self.seed)

    def head(self, filters: Sequence[Array]) -> NetworkHead:
        """Return the head on the features of these filters."""
        return NetworkHead(self, filters)

    def at(self, weights: Mapping[str, Array]) -> NetworkHeadPoint:
        """Return the network at these weights."""
        return self.head(self.filters_of(weights)).at(weights[HEAD][self.network.order])

    def layer(self, name: str, point: NetworkHeadPoint, iteration: int) -> ConvLayer:
        """Return the filters of a layer as an objective, the other weights fixed at a point."""
        layer = next(layer for layer in self.trained if layer_name(layer) == name)
        count = len(self.images)
        positions = np.arange(count)
        if self.curvature_rows is not None and self.curvature_rows < count:
            generator = np.random.default_rng(child_seed(self.seed, _CURVATURE_ROWS, iteration))
            positions = np.sort(generator.choice(count, self.curvature_rows, replace=False))
        return ConvLayer(self, layer, point, positions)


class NetworkHead(LinearHead):
    """The head of a network with given filters; its loss includes the penalty of the trained filters."""

    def __init__(self, net: ConvNet, filters: Sequence[Array], previous: NetworkRows | None = None) -> None:
        self.rows: NetworkRows
        super().__init__(NetworkRows(net.images, net.network, filters, previous), net.regularization)
        self.net, self.filters = net, tuple(filters)
        squares = (float((self.filters[layer][:, :-1] ** 2).sum()) for layer in net.trained)
        self._filter_penalty = 0.5 * self.regularization * sum(squares)

    def penalty(self, weights: Array) -> float:
        """Return `½λ(‖W‖² + Σ‖filters‖²)`."""
        return super().penalty(weights) + self._filter_penalty

    def at(self, weights: Array) -> NetworkHeadPoint:
        """Return the network with these weights of the head."""
        return NetworkHeadPoint(self, weights)


class NetworkHeadPoint(HeadPoint):
    """The head of a network at some weights. Other filters may always do better, so there is no certificate."""

    head: NetworkHead
    has_certificate = False


class ConvLayer:
    """The filters of one layer as an objective: a block of `k²·channels + 1` parameters per filter, the bias last."""

    def __init__(self, net: ConvNet, layer: int, start: NetworkHeadPoint, positions: NDArray[np.intp]) -> None:
        """The other weights are those of `start`; the curvature is that of the images at `positions`."""
        self.net, self.layer, self.positions = net, layer, positions
        self.head_weights, self._start = start.weights, start.head
        shape = net.network.layers[layer]
        self.n_blocks, self.n_parameters = shape.filters, shape.n_parameters
        self.ridge = np.full(self.n_parameters, net.regularization)  # diagonal of Λ = λ·diag(1, …, 1, 0), (D,)
        self.ridge[-1] = 0.0
        self.multiplications = net.multiplications

    def at(self, weights: Array) -> LayerPoint:
        """Return the network with these filters (F, D) in the layer."""
        filters = list(self._start.filters)
        filters[self.layer] = weights
        return LayerPoint(self, NetworkHead(self.net, filters, self._start.rows).at(self.head_weights))


class LayerPoint:
    """A network at some weights, as a point of the filters of one layer."""

    def __init__(self, layer: ConvLayer, head_point: NetworkHeadPoint) -> None:
        self.layer, self.head_point = layer, head_point
        self.filters = head_point.head.filters
        self.weights = self.filters[layer.layer]
        self.loss = head_point.loss
        self._known_roots: dict[int, NDArray[Any]] = {}  # by the first image of a group

    def figures(self) -> dict[str, float]:
        """Return the figures of the network."""
        return self.head_point.figures()

    @cached_property
    def gradients(self) -> Array:
        """Gradient of the loss, filter by filter (F, D)."""
        head, now = self.head_point.head, self.head_point.outputs
        weights = self.layer.head_weights[:-1].astype(head.rows.images.dtype)

        def term(chunk: Any) -> tuple[Array]:
            """Σ_n a_n J_nᵀ(π_n − y_n)."""
            residuals = chunk.weighted(head.link.residuals(now.probabilities(chunk), chunk.labels))
            return (head.rows.gradient(chunk, self.layer.layer, residuals.T.astype(weights.dtype) @ weights.T),)

        return head.rows.mean(term)[0] + self.weights * self.layer.ridge

    def filter_grams(self) -> Array:
        """Return each filter's block of the Gauss-Newton curvature, without the penalty (F, D, D)."""

        def term(roots: NDArray[Any]) -> Array:
            by_filter = np.ascontiguousarray(roots.reshape(-1, *roots.shape[2:]).transpose(1, 0, 2))
            return (by_filter.transpose(0, 2, 1) @ by_filter).astype(np.float64)

        return self._mean_over_roots(term)

    def joint_gram(self) -> Array:
        """Return the Gauss-Newton curvature of all filters, without the penalty (F·D, F·D)."""

        def term(roots: NDArray[Any]) -> Array:
            flat = roots.reshape(roots.shape[0] * roots.shape[1], -1)
            return (flat.T @ flat).astype(np.float64)

        return self._mean_over_roots(term)

    def step_from(self, previous: Array) -> Array:
        """Return the step from previous filters."""
        return self.weights - previous

    def curvature_along(self, directions: Array, previous: Array | None = None) -> Array:
        """Return second derivatives (m·F, m·F) of the linearised network in multiples of directions (m, F, D)."""
        count, filters, _ = directions.shape
        by_filter = directions.transpose(1, 2, 0)

        def term(roots: NDArray[Any]) -> Array:
            flat = roots.reshape(-1, *roots.shape[2:]).transpose(1, 0, 2)
            changes = (flat @ by_filter.astype(roots.dtype)).transpose(2, 0, 1).reshape(count * filters, -1)
            return (changes @ changes.T).astype(np.float64)

        found = self._mean_over_roots(term)
        penalty = np.einsum("afj,bfj,j->fab", directions, directions, self.layer.ridge, optimize=True)
        own = np.arange(filters)
        found.reshape(count, filters, count, filters)[:, own, :, own] += penalty
        return found

    def moved(self, updates: Array, *, remove_class_mean: bool = False) -> LayerPoint:
        """Return the network after updates of the filters; there is no class mean to remove."""
        return self.layer.at(self.weights + updates.reshape(self.weights.shape))

    def is_within(self, gap: float) -> bool:
        """Return False: the loss is not convex in filters."""
        return False

    def lower_bound(self) -> float:
        """Return −∞."""
        return -np.inf

    def _mean_over_roots(self, term: Callable[[NDArray[Any]], Array]) -> Array:
        """Return the weighted mean of a term of `R_nJ_n` (n, outputs, F, D) over the curvature's images.

        The asymmetry of the matrices, which are products in single precision, is removed.
        """
        positions, weights = self.layer.positions, self.layer.net.images.weights
        total_weight = float(len(positions)) if weights is None else float(weights[positions].sum())
        size = max(1, _VALUES_AT_ONCE // (self.head_point.head.n_outputs * self.weights.size))
        groups = [positions[first : first + size] for first in range(0, len(positions), size)]
        found = sum(in_order(lambda group: term(self._roots(group)), groups), np.zeros(())) / total_weight
        return (found + np.swapaxes(found, -1, -2)) / 2

    def _roots(self, positions: NDArray[np.intp]) -> NDArray[Any]:
        """Return `√a_n·R_nJ_n` of some images, with `RᵀR` the Hessian of an image's loss in its outputs."""
        key = int(positions[0])
        if key in self._known_roots:
            return self._known_roots[key]
        net, link, images = self.layer.net, self.head_point.head.link, self.layer.net.images
        known, head_weights = net.network.forward(images.take(positions), self.filters), self.layer.head_weights
        head_weights = head_weights.astype(images.dtype)
        outputs = (known.features @ head_weights).T.astype(np.float64)
        roots = link.roots(link.evaluate(outputs, images.labels[positions])[0])
        if images.weights is not None:
            roots = roots * np.sqrt(images.weights[positions])[:, None, None]
        by_features = roots.astype(images.dtype).reshape(-1, len(head_weights.T)) @ head_weights[:-1].T
        by_features = by_features.reshape(*roots.shape[:2], -1)
        found = net.network.jacobians(known, self.filters, self.layer.layer, by_features)
        if found.nbytes * len(self.layer.positions) <= len(positions) * _KEPT_BYTES:
            self._known_roots[key] = found
        return found


def by_filter(layer: ConvLayer) -> Callable[[LayerPoint], list[Curvature]]:
    """Gauss-Newton with one problem per filter; couplings between filters are left to the acceptance rule."""
    penalty = np.diag(layer.ridge)
    return lambda point: [Curvature(matrix + penalty) for matrix in point.filter_grams()]


def all_filters(layer: ConvLayer) -> Callable[[LayerPoint], list[Curvature]]:
    """Gauss-Newton with one problem over all filters of the layer."""
    penalty = np.diag(np.tile(layer.ridge, layer.n_blocks))
    return lambda point: [Curvature(point.joint_gram() + penalty)]


FILTER_CURVATURES = {"by_filter": by_filter, "joint": all_filters}
