"""A convolution network: its head and the filters of its layers, trained in turn.

`f = mean_n a_n ℓ(Wᵀφ(x_n), y_n) + ½λ(‖W‖² + Σ‖filters‖²)`, where `φ` are the features of an image. The biases are not
regularised, nor are layers that are not trained. The filters are: a network whose filters are twice as large and whose
head is half as large computes the same, so a penalty on the head alone would be no penalty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.randomness import child_seed
from annealfit.data.convolution import Images, Network, NetworkRows
from annealfit.data.rows import Chunk
from annealfit.training.objectives.base import OneTurn
from annealfit.training.objectives.conv_layer import ConvLayer
from annealfit.training.objectives.linear_head import HeadPoint, HeadSpan, LinearHead, OutputUpdate
from annealfit.training.objectives.links import Link, link_of

HEAD = "head"
# The path of the rows of a curvature below a training's seed; 0 to 2 are those of weights, anneals and validation.
_CURVATURE_ROWS = 3


def layer_name(layer: int) -> str:
    """The name of a convolution layer, counted from 0 here and from 1 by people.

    >>> layer_name(0)
    'conv1'
    """
    return f"conv{layer + 1}"


class ConvNet:
    """The loss of a network on images, as an objective whose parts, the layers, are trained in turn.

    The parts are `head`, `conv1`, `conv2` and so on. A round is `head_turns` turns of the head, and one of each trained
    layer, the last layer first. The curvature of filters is taken from `curvature_rows` images that are drawn for each
    turn; None takes all. Loss and gradient are those of all images.
    """

    def __init__(
        self,
        images: Images,
        network: Network,
        filters: Sequence[Array],
        trained: Sequence[int],
        regularization: float,
        *,
        head_turns: int = 1,
        curvature_rows: int | None = None,
        seed: int = 0,
    ) -> None:
        """`filters` are the weights (F, D) of every layer: those of layers that are not `trained` stay."""
        self.images, self.network, self.filters = images, network, tuple(filters)
        self.trained, self.regularization = tuple(sorted(trained)), float(regularization)
        self.curvature_rows, self.seed = curvature_rows, seed
        self._round = [*[HEAD] * head_turns, *(layer_name(layer) for layer in reversed(self.trained))]

    @property
    def parts(self) -> tuple[str, ...]:
        """The trained layers in their order, and the head."""
        return (*(layer_name(layer) for layer in self.trained), HEAD)

    @property
    def multiplications(self) -> float:
        """Of one pass of all images through the network."""
        return len(self.images) * self.network.multiplications

    def turn(self, iteration: int) -> str:
        """Round after round."""
        return self._round[iteration % len(self._round)]

    def columns(self, iteration: int) -> dict[str, Any]:
        """The round, and the layer whose turn it was."""
        return {"round": iteration // len(self._round) + 1, "layer": self.turn(iteration)}

    def at(self, part: str, weights: Mapping[str, Array], cached_outputs: Any = None) -> Any:
        """The network with these weights: a point of its head, or of one of its layers."""
        return self.turned(self.head(self.filters_of(weights)).point(weights[HEAD]), part, 0)

    def filters_of(self, weights: Mapping[str, Array]) -> tuple[Array, ...]:
        """The filters of every layer, trained or not."""
        return tuple(weights.get(layer_name(layer), own) for layer, own in enumerate(self.filters))

    @cached_property
    def link(self) -> Link:
        """What makes a loss of the head's outputs."""
        return link_of(self.images.n_classes)

    def first_head(self) -> NetworkHead:
        """The head on the features of the filters that there were at first."""
        return self.head(self.filters)

    def first_weights(self, head: Array) -> dict[str, Array]:
        """The weights of all parts at first, from those of the head."""
        return {**{layer_name(layer): self.filters[layer] for layer in self.trained}, HEAD: head}

    def head(self, filters: Sequence[Array]) -> NetworkHead:
        """The head on the features that these filters make."""
        return NetworkHead(self, filters)

    def turned(self, point: Any, part: str, iteration: int) -> Any:
        """The same weights as a point of the head, or of a layer, whose curvature rows are drawn for the iteration."""
        at_head: NetworkHeadPoint = point.head_point
        if part == HEAD:
            return at_head
        layer = next(layer for layer in self.trained if layer_name(layer) == part)
        return ConvLayer(self, layer, at_head, self._curvature_positions(iteration)).point(at_head)

    def objective(self, point: Any) -> Any:
        """The head with its features, or the layer with everything else."""
        return point.objective

    def earlier(self, part: str, previous: Any, point: Any) -> Any:
        """Its weights are all that a span looks at."""
        return previous

    def _curvature_positions(self, iteration: int) -> NDArray[np.intp]:
        count = len(self.images)
        if self.curvature_rows is None or self.curvature_rows >= count:
            return np.arange(count)
        generator = np.random.default_rng(child_seed(self.seed, _CURVATURE_ROWS, iteration))
        return np.sort(generator.choice(count, self.curvature_rows, replace=False))


class FrozenNet(OneTurn):
    """A network of which only the head is trained, on features that were worked out once."""

    parts = (HEAD,)

    def __init__(self, head: LinearHead) -> None:
        super().__init__(head)
        self._head = head

    def turn(self, iteration: int) -> str:
        """The head's."""
        return HEAD

    def columns(self, iteration: int) -> dict[str, Any]:
        """As a network says it."""
        return {"round": iteration + 1, "layer": HEAD}

    def first_head(self) -> LinearHead:
        """The head."""
        return self._head

    def first_weights(self, head: Array) -> dict[str, Array]:
        """Those of the head."""
        return {HEAD: head}


class NetworkHead(LinearHead):
    """The head of a network with given filters. What its filters cost is part of its loss."""

    def __init__(self, net: ConvNet, filters: Sequence[Array]) -> None:
        super().__init__(NetworkRows(net.images, net.network, filters), net.regularization)
        self.net, self.filters = net, tuple(filters)

    @cached_property
    def filter_penalty(self) -> float:
        """`½λΣ‖filters‖²` of the layers that are trained."""
        squares = (float((self.filters[layer][:, :-1] ** 2).sum()) for layer in self.net.trained)
        return 0.5 * self.regularization * sum(squares)

    def point(self, weights: Array, arrive: OutputUpdate | None = None) -> NetworkHeadPoint:
        """The network with these weights of the head; outputs are always worked out anew.

        In single precision those known from the way here would differ too much from what a layer's turn sees.
        """
        return NetworkHeadPoint(self, weights)


class NetworkHeadPoint(HeadPoint):
    """The head of a network at some weights."""

    head: NetworkHead

    def __init__(self, head: NetworkHead, weights: Array) -> None:
        super().__init__(head, weights)
        self.penalty += head.filter_penalty
        self.loss = self.cross_entropy + self.penalty

    @property
    def head_point(self) -> NetworkHeadPoint:
        """The point itself; a layer's point has one too."""
        return self

    @property
    def objective(self) -> NetworkHead:
        """The head on the features that there are."""
        return self.head

    def span(self, updates: Array, previous: Any = None) -> HeadSpan:
        """As a head's; the step before may have been on other features."""
        return NetworkHeadSpan(self, updates.reshape(self.head.n_outputs, -1), previous)

    def is_within(self, gap: float) -> bool:
        """Never: other filters may always do better, and nothing is known about them."""
        return False

    def is_proven_within(self, gap: float) -> bool:
        """Never, as above."""
        return False

    def lower_bound(self) -> float:
        """None is known."""
        return -np.inf


class NetworkHeadSpan(HeadSpan):
    """Heads around a point, on the features that there are now."""

    def changes(self, chunk: Chunk) -> Array:
        """A product for each direction."""
        if chunk not in self._changes:
            self._changes[chunk] = np.stack([chunk.project(direction.T) for direction in self.directions])
        return self._changes[chunk]
