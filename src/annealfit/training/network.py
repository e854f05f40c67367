"""Training of a network: an outer loop that alternates ordinary trainers of the head and of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.samplers.protocol import Preflight, Sampler
from annealfit.training.method import Method
from annealfit.training.objectives.conv_net import HEAD, ConvNet, LayerPoint, NetworkHeadPoint, layer_name
from annealfit.training.policies import DampingPolicy
from annealfit.training.state import HistoryRow, NetworkState, TrainingState
from annealfit.training.trainer import Stopping, Trainer, with_validation

ROUNDS = 2  # with the same images, before there are twice as many


class NetworkTrainer:
    """Trains the head of a network `head_steps` times, then each trained layer once, the last layer first.

    With `first_images` the first rounds use a part of the images, which grows (see `FilterMethod`).
    """

    def __init__(
        self,
        net: ConvNet,
        sampler: Sampler,
        method: Method,
        filter_method: Method,
        *,
        damping: DampingPolicy,
        head_steps: int,
        bits: int,
        seed: int,
        stopping: Stopping,
        validation: ConvNet | None = None,
        first_images: int | None = None,
    ) -> None:
        self.net, self.sampler, self.stopping, self.validation = net, sampler, stopping, validation
        self.first_images, self._part = first_images, net
        self._methods = {HEAD: (method, DampingPolicy())}
        self._methods |= {layer_name(layer): (filter_method, damping) for layer in net.trained}
        self._options: dict[str, Any] = {"bits": bits, "seed": seed, "stopping": stopping}
        self._round = [*[HEAD] * head_steps, *(layer_name(layer) for layer in reversed(net.trained))]
        self._at: NetworkHeadPoint | None = None
        self._head_trainer: Trainer | None = None
        self._head: tuple[TrainingState, TrainingState] | None = None  # a state, and the same as `NetworkHead` has it

    @property
    def multiplications(self) -> float:
        """Multiplications of a forward pass of all images."""
        return self.net.multiplications

    def start(self, weights: Mapping[str, Array]) -> NetworkState:
        """Return the state before the first iteration; the trainer of a layer starts with its first step."""
        return NetworkState(0, {name: TrainingState(0, own) for name, own in weights.items()}, self._round[0])

    def _net(self, state: NetworkState) -> ConvNet:
        """Return the network on the images that the next iteration uses."""
        if self.first_images is None:
            return self.net
        count = min(self.first_images << state.iteration // (ROUNDS * len(self._round)), len(self.net.images))
        if len(self._part.images) != count:
            self._part = self.net.part(count)
        return self._part

    def point(self, state: NetworkState) -> NetworkHeadPoint:
        """Return the network at the state's weights, on the images in use, evaluated once."""
        net, known, weights = self._net(state), self._at, self._head_state(state).weights
        filters = net.filters_of(state.weights)
        if (
            known is None
            or known.head.net is not net
            or known.weights is not weights
            or any(a is not b for a, b in zip(known.head.filters, filters, strict=True))
        ):
            self._at = known = net.head(filters).at(weights)
        return known

    def _head_state(self, state: NetworkState) -> TrainingState:
        """Return the state of the head with its parameters place by place."""
        own = state.layers[HEAD]
        if self._head is None or self._head[0] is not own:
            self._head = own, _reordered(own, self.net.network.order)
        return self._head[1]

    def step(self, state: NetworkState) -> tuple[NetworkState, HistoryRow]:
        """Take one step of the trainer of one layer."""
        name = self._round[state.iteration % len(self._round)]
        trainer, own = self._trainer(name, state)
        reached, row = trainer.step(replace(own, iteration=state.iteration))
        at: Any = trainer.point(reached)
        self._at = at.head_point if isinstance(at, LayerPoint) else at
        if name == HEAD:
            layers = {HEAD: _reordered(reached, np.argsort(self.net.network.order))}
            self._head = layers[HEAD], reached
        else:  # the features have changed: the curvature of the head is computed anew
            head, inner = state.layers[HEAD], self._head_state(state)
            layers = {HEAD: replace(head, anchor=None), name: reached}
            self._head = layers[HEAD], replace(inner, anchor=None)
        numbers: HistoryRow = {"iteration": state.iteration + 1, "round": state.iteration // len(self._round) + 1}
        if self.first_images is not None:
            numbers["images"] = len(self._part.images)
        row = {**numbers, "layer": name, **row}
        if any(damping.first() is not None for _, damping in self._methods.values()):
            row.setdefault("damping", None)
        following = NetworkState(state.iteration + 1, {**state.layers, **layers}, name, state.best)
        if self.validation is not None:
            figures = self.validation.at(following.weights).figures()
            following = with_validation(following, following.weights, figures, row)
        return following, row

    def problems(self, state: NetworkState) -> Any:
        """Return the problems that the next iteration passes to the sampler."""
        trainer, own = self._trainer(self._round[state.iteration % len(self._round)], state)
        return trainer.problems(own)

    def preflight(self, state: NetworkState) -> Preflight | None:
        """Return what a step of every layer costs on the sampler's device; None without a device."""
        if not self.sampler.has_preflight:
            return None
        found = [trainer.preflight(own) for trainer, own in (self._trainer(name, state) for name in self.net.parts)]
        known = [cost for cost in found if cost is not None]
        return Preflight.of_all(known) if len(known) == len(found) else None

    def _trainer(self, name: str, state: NetworkState) -> tuple[Trainer, TrainingState]:
        """Return the trainer of a layer with the other layers fixed, and the layer's state."""
        at, (method, damping) = self.point(state), self._methods[name]
        if name == HEAD:
            if self._head_trainer is None or self._head_trainer.objective is not at.head:
                self._head_trainer = Trainer(at.head, self.sampler, method, damping=damping, point=at, **self._options)
            trainer = self._head_trainer
        else:
            layer = at.head.net.layer(name, at, state.iteration)
            point = LayerPoint(layer, at)
            trainer = Trainer(layer, self.sampler, method, damping=damping, point=point, **self._options)
        own = self._head_state(state) if name == HEAD else state.layers[name]
        if own.ranges is None:
            own = trainer.start(own.weights)
        return trainer, own


def _reordered(state: TrainingState, order: NDArray[np.intp]) -> TrainingState:
    """Return the state of a head with its parameters in another order."""
    previous, anchor = state.previous, state.anchor
    return replace(
        state,
        weights=state.weights[order],
        previous=None if previous is None else previous[order],
        anchor=None if anchor is None else replace(anchor, weights=anchor.weights[order]),
    )
