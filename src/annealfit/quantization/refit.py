"""Scales and biases of a network's rounded layers, fitted to the float network's outputs by gradient steps (Adam)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.quantization.derivatives import Derivatives
from annealfit.quantization.onnx_graph import OnnxGraph, WeightedNode
from annealfit.quantization.sensitivity import Reference

_MOST_EPOCHS = 16  # in batches of 64 rows; fewer where batches are small, as a row is much work
# Of scales, as shares, and of biases, in standard deviations of the outputs, for a network of one layer and batches of
# 64 rows: all layers move together, and small batches are noise. It falls to 0.
_RATE = 0.017
_MOMENTUM, _DECAY = 0.9, 0.99
_LEAST_FACTOR = 0.1  # of a scale


def refit_network(
    network: OnnxGraph,
    nodes: Sequence[WeightedNode],
    layers: Sequence[Any],
    put: Callable[[WeightedNode, OnnxGraph, Any], Any],
    shown: Reference,
    judge: Reference,
    seed: int,
    is_late: Callable[[], bool],
) -> list[Any]:
    """The layers with the scales and biases of least divergence on the judge's rows, put into the network.

    They are as they were where the divergence on the rows shown would rise.
    """
    least, most = (reference.compare(network).divergence for reference in (judge, shown))
    best, generator = list(layers), np.random.default_rng(seed)
    derivatives = Derivatives(network, [node.output for node in nodes])
    units: dict[str, float] = {}
    values, mean, square = np.zeros((3, 2, sum(node.n_outputs for node in nodes)))
    step = 0
    share = min(max(shown.rows) / 64, 1.0)
    steps, first_rate = len(shown.feeds) * max(1, int(_MOST_EPOCHS * share**2)), _RATE * np.sqrt(share / len(nodes))
    while step < steps and not is_late():
        for batch in generator.permutation(len(shown.feeds)):
            gradient = _gradient(derivatives, nodes, shown, batch, units)
            step += 1
            mean = _MOMENTUM * mean + (1 - _MOMENTUM) * gradient
            square = _DECAY * square + (1 - _DECAY) * gradient**2
            size = np.sqrt(square / (1 - _DECAY**step)) + 1e-12
            rate = first_rate * (1 + np.cos(np.pi * step / steps)) / 2
            values = values - rate * mean / (1 - _MOMENTUM**step) / size
            changed = _changed(nodes, layers, values, units)
            for node, layer in zip(nodes, changed, strict=True):
                put(node, network, layer)
        divergence = judge.compare(network).divergence
        if divergence < least and shown.compare(network).divergence < most:
            least, best = divergence, changed
    return [put(node, network, layer) for node, layer in zip(nodes, best, strict=True)]


def _gradient(
    derivatives: Derivatives, nodes: Sequence[WeightedNode], shown: Reference, batch: int, units: dict[str, float]
) -> Array:
    """The gradient of the divergence on a batch in factors of the scales and in shifts of the outputs."""
    feed, network = shown.feeds[batch], derivatives.network
    values = derivatives.forward(feed)
    gradients = derivatives.backward(feed, values, shown.slopes(batch, [values[name] for name in shown.names]))
    parts = []
    for node in nodes:
        own = node.channels_last(gradients.get(node.output, np.zeros_like(values[node.output])))
        products = node.channels_last(values[node.output])
        units.setdefault(node.name, float(products.std()) or 1.0)
        if node.bias is not None and node.operator != "MatMul":  # whose bias is added by a node of its own
            products = products - (node.bias_factor * network.constant(node.bias).ravel()).astype(products.dtype)
        axes = tuple(range(own.ndim - 1))
        shifts = own.sum(axis=axes) * units[node.name] * (node.bias is not None)
        parts.append(np.stack([(own * products).sum(axis=axes), shifts]))
    return np.concatenate(parts, axis=1).astype(float) / shown.rows[batch]


def _changed(nodes: Sequence[WeightedNode], layers: Sequence[Any], values: Array, units: dict[str, float]) -> list[Any]:
    """Layers with other scales and biases."""
    found, ends = [], np.cumsum([node.n_outputs for node in nodes])
    for node, layer, end in zip(nodes, layers, ends, strict=True):
        factors, shifts = values[:, end - node.n_outputs : end]
        scales = (layer.scales * np.maximum(1 + factors, _LEAST_FACTOR)).astype(layer.scales.dtype)
        bias: NDArray[Any] | None = layer.bias
        if bias is not None:
            bias = bias + (units[node.name] / node.bias_factor * shifts).reshape(bias.shape)
        found.append(replace(layer, scales=scales, bias=bias))
    return found
