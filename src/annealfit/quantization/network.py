"""quantize_network: all layers of an ONNX network, one after another, each with the inputs that it will see."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number
from annealfit._support.files import StrPath, read_tensors, replacing
from annealfit._support.randomness import child_seed, seed_of
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.data.features.onnx_files import damage_named, name_of, read_network
from annealfit.quantization.calibration import all_tensors, batches_of, rows_of
from annealfit.quantization.grids import Grid
from annealfit.quantization.methods import QUICK, methods_of
from annealfit.quantization.moments import InputMoments, MomentSums
from annealfit.quantization.onnx_graph import OnnxGraph, PartialRun, WeightedNode, find_layers
from annealfit.quantization.packing import dequantized, pack_network, stored_bits, unpack_network
from annealfit.quantization.quantize import QuantizedLayer, quantize_groups
from annealfit.quantization.refit import refit_network
from annealfit.quantization.sensitivity import (
    Fidelity,
    Importance,
    Reference,
    compare,
    importances,
    least_divergence,
)

KIND_OF_FILE = "quantized weights"
_FLOATS = ("<f4", "<f8", "<f2")  # types of weights

HELD_OUT = 5  # every fifth row is held out
_DAMPING = 0.2  # unless given; chosen on perceptrons, magika and PP-OCR's classifier: 0.05 to 0.6 were tried
_CLEARLY = 0.1  # the share by which a divergence has to be lower
_WIDTHS = (1, 2, 4, 8)  # bits to choose from
_ROWS_PER_GRAM = 16  # of a layer, times its inputs, and at least so many: more are thinned out
_LEAST_THINNED = 1 << 14  # rows
_ROWS_PER_INPUT = 2  # of a layer: less is too few to tell its inputs' Gram matrix


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NetworkLayer(QuantizedLayer):
    """A quantised layer of a network; weights and bias have the shape and type of the network's constants."""

    name: str
    operator: str
    weight: str  # the constant's name in the network
    is_transposed: bool  # outputs come first in the constant
    damping: float
    objective: str  # what errors are weighted by: "layer", nothing; "rows", ω of rows; "loss", ω and S of outputs

    @property
    def bytes_before(self) -> int:
        """Bytes of the weights as they were."""
        return self.weights.nbytes

    @property
    def bytes_after(self) -> int:
        """Bytes of levels and scales in the file."""
        return -(-self.levels.size * stored_bits(self.grid) // 8) + 4 * self.scales.size


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """A network with low-bit weights: as ONNX models with their values and with packed levels, and layer by layer."""

    model: Any  # onnx.ModelProto, with dequantised weights
    packed: Any  # the same network as it is written
    layers: tuple[NetworkLayer, ...]
    floats: Mapping[str, str]  # nodes whose weights stay float, and why
    unknown: Mapping[str, str]  # layers whose own errors count, and the operator of which no derivative is known
    tried: Mapping[str, float]  # held-out divergence by objective, with descent; empty where nothing was chosen
    bytes_before: int  # of the network as a file
    output_error: float  # relative squared error of the network's outputs on the calibration rows
    agreement: float | None  # share of these rows whose largest output is the same as before; None where it has none
    divergence: float  # of the outputs on these rows from those of the float network: see `Fidelity`
    held_out: Fidelity | None  # the same three on rows that were not used, or used only to choose settings
    seconds: float  # of processor time that all took
    judge: Callable[[Any], Fidelity]  # of any model with the same inputs and outputs, on these rows

    @property
    def mean_bits(self) -> float:
        """Bits per weight of the layers, scales counted."""
        weights = sum(layer.levels.size for layer in self.layers)
        return 8 * sum(layer.bytes_after for layer in self.layers) / weights

    @property
    def bytes_after(self) -> int:
        """Bytes of the file that `save` writes."""
        return int(self.packed.ByteSize())

    def __iter__(self) -> Iterator[NetworkLayer]:
        return iter(self.layers)

    def save(self, path: StrPath) -> Path:
        """Write the packed network as an ONNX file."""
        if Path(path).suffix.lower() != ".onnx":
            raise InvalidInputError(f"{path} does not end in onnx, which is what is written")
        with replacing(path) as file:
            file.write(self.packed.SerializeToString())
        return Path(path)


def quantize_network(
    model: Any,
    calibration: Any,
    bits: int | Mapping[str, int] = 2,
    *,
    mean_bits: float | None = None,
    method: Any = "annealed",
    levels: str | Grid = "symmetric",
    group_size: int | None = None,
    damping: float | None = None,
    validation: Any = None,
    along_loss: bool | None = None,
    refit: bool = True,
    keep: Sequence[str] = (),
    time_limit: float | None = None,
    random_state: Any = 0,
    on_layer: Callable[[int, int, str], object] | None = None,
) -> QuantizedNetwork:
    """Quantise the weights of an ONNX network: of MatMul, Gemm and Conv, layer after layer.

    Every layer is given the inputs that the layers before it, quantised already, produce, and is to reproduce the
    outputs that it had in the network as it was. Everything else in the network stays as it is.

    Errors count by what they do to the network's answer, which backward passes say: those of rows and positions by
    their weights, and those of a layer's outputs together by `output_weights` of `quantize_layer`. Every fifth of at
    least 20 calibration rows is held out. On them it is seen, with all layers rounded by descent, whether outputs are
    weighted together; without them each layer's own error counts. A layer before an operator of which no derivative
    is known has its own error, too (`.unknown`).

    Parameters
    ----------
    model : path, bytes or `onnx.ModelProto`
        The network.
    calibration : array, path of an npy or npz file, or a mapping of inputs' names to these
        What the network is shown: some hundred rows, better a thousand or more, as the network reads them.
    bits : int, or a mapping of layers' names to it
        A mapping has to name every layer that is not kept.
    mean_bits : float or None
        Instead of bits: each layer has 1, 2, 4 or 8, so that the mean over all weights, scales counted, is at most
        this. Chosen by the divergence with each layer alone rounded by descent, exactly.
    method, levels, group_size, random_state
        As in `quantize_layer`, for every layer.
    damping : float or None
        As in `quantize_layer`. None is 0.2 where rows are held out, and 0 for methods that start from nothing.
    validation : as calibration, or None
        Rows to choose on and to tell the divergence on, instead of a part of the calibration rows.
    along_loss : bool or None
        Whether errors are weighted by what they do to the network's answer, outputs together; None is decided on
        held-out rows.
    refit : bool
        After rounding, fit scales and biases to the outputs of the float network, as far as the divergence on held-out
        rows falls. Not for methods that start from nothing, such as GPTQ, nor without held-out rows.
    keep : sequence of str
        Names of nodes that stay as they are.
    time_limit : float or None
        Seconds after which layers are rounded by GPTQ and descent alone. A layer that was begun is completed.
    on_layer : function or None
        Called before each layer with its number, how many there are, and its name; those of trials count, too.

    Returns
    -------
    QuantizedNetwork
        `.model` with dequantised weights, `.layers`, `.floats`, `.save(path)`. The written file is small, has the
        integers, and computes with exactly the same weights.

    """
    original = OnnxGraph(model)
    began, processor_began, seed = time.perf_counter(), time.process_time(), seed_of(random_state)
    nodes, floats = find_layers(original, keep)
    batches, held = batches_of(calibration, original, 0 if validation is not None else HELD_OUT)
    if validation is not None:
        held = batches_of(validation, original)[0]
    asked = methods_of(method)[-1]  # refuses what is none before anything is run
    if time_limit is not None:
        check_number("time_limit", time_limit, minimum=0)
    Grid.of(2 if mean_bits is not None or isinstance(bits, Mapping) else bits, levels)  # refuses what is wrong
    found = all_tensors(original, batches[0])
    places = {
        node.name: found[node.output].size / (node.n_outputs * rows_of(batches[0])) for node in nodes
    }  # how often each layer is applied in a row of the network, such as to the positions of an image
    shown = Reference(original, batches)
    judge = Reference(original, held) if held else shown
    _warn_of_few_rows(nodes, places, sum(shown.rows))
    has_choice = bool(held) and not getattr(asked, "starts_from_nothing", False)
    importance, unknown = dict[str, Importance](), dict[str, str]()
    if along_loss or (along_loss is None and has_choice):
        importance, unknown = importances(original, nodes, shown, child_seed(seed, 0))

    def is_late() -> bool:
        return time_limit is not None and time.perf_counter() - began > time_limit

    settings = {"levels": levels, "group_size": group_size}
    rounder = _Rounder(original, nodes, shown, places, importance, settings, {}, seed)
    if mean_bits is not None:
        bits = _allotted(rounder, judge, mean_bits)
    rounder = replace(rounder, bits=_bits_of([node.name for node in nodes], bits))
    if damping is None:
        damping = _DAMPING if has_choice else 0.0
    objectives = _objectives(importance, along_loss)
    numbers, passes = count(), 2 if has_choice and len(objectives) > 1 else 1

    def told(name: str) -> None:
        if on_layer is not None:
            on_layer(next(numbers), passes * len(nodes), name)

    tried = _tried(rounder, judge, objectives, damping, told, is_late) if passes > 1 else {}
    objective = objectives[0]  # the others have to be clearly better, as held-out rows are few
    if tried and (1 + _CLEARLY) * min(tried.values()) < tried[objective]:
        objective = min(tried, key=tried.__getitem__)
    network, layers = rounder(method, objective, damping, told, is_late)
    if refit and has_choice:
        layers = refit_network(network, nodes, layers, put_layer, shown, judge, seed, is_late)
    packed, large = pack_network(network.model, layers)
    written = OnnxGraph(packed)
    own = shown.compare(written)
    return QuantizedNetwork(
        network.model,
        packed,
        tuple(layers),
        floats | large,
        unknown,
        tried,
        original.n_bytes,
        own.error,
        own.agreement,
        own.divergence,
        judge.compare(written) if held else None,
        time.process_time() - processor_began,
        lambda other: judge.compare(OnnxGraph(other)),
    )


@dataclass(frozen=True, eq=False)
class _Rounder:
    """Rounds all layers of a network in turn."""

    original: OnnxGraph
    nodes: Sequence[WeightedNode]
    shown: Reference
    places: Mapping[str, float]
    importance: Mapping[str, Importance]
    settings: Mapping[str, Any]  # of `quantize_layer`, but for
    bits: Mapping[str, int]  # of each layer
    seed: int

    def __call__(
        self, method: Any, objective: str, damping: float, told: Callable[[str], None], is_late: Callable[[], bool]
    ) -> tuple[OnnxGraph, list[NetworkLayer]]:
        """The network with all layers rounded, and the layers."""
        network, layers = OnnxGraph(self.original.model), list[NetworkLayer]()
        before, now = PartialRun(self.original, self.shown.feeds), PartialRun(network, self.shown.feeds)
        for number, node in enumerate(self.nodes):
            told(node.name)
            settings = {"method": QUICK if is_late() else method, "damping": damping}
            settings["random_state"] = child_seed(self.seed, number) >> 32  # 32 bits at most
            moments = self.moments(node, before, now if layers else None, objective)
            layers.append(self.round(node, moments, objective, network, settings))
        return network, layers

    def moments(
        self, node: WeightedNode, before: PartialRun, now: PartialRun | None, objective: str
    ) -> list[InputMoments]:
        """The moments of what a node reads, now and before the layers below it were quantised, one for each group.

        A row of the network is so many rows of the layer, its places. Where they are more than needed, some are taken
        by chance, in proportion to their weights.
        """
        importance = self._importance_of(node, objective)
        sums, generator = [MomentSums() for _ in range(node.n_groups)], np.random.default_rng(0)
        share = max(_ROWS_PER_GRAM * node.n_inputs, _LEAST_THINNED) / (self.places[node.name] * sum(self.shown.rows))
        feeds = before.at(node.output)
        pairs = zip(feeds, now.at(node.output), strict=True) if now is not None else ((feed, feed) for feed in feeds)
        for batch, (wanted, feed) in enumerate(pairs):
            seen, reference = feed[node.source], wanted[node.source]
            shape = (node.n_groups, *node.places(seen.shape))
            weights = np.ones(shape) if importance is None else importance.weights[batch]
            kept = np.minimum(share * weights.mean(axis=0), 1.0)
            chosen = generator.random(shape[1:]) < kept
            times, first = (weights / kept)[:, chosen], 0
            for parts, references in zip(node.rows(seen, chosen), node.rows(reference, chosen), strict=True):
                end = first + len(parts[0])
                for total, part, own, often in zip(sums, parts, references, times, strict=True):
                    total.add(part, None if now is None else own, None if importance is None else often[first:end])
                first = end
        return [total.moments() for total in sums]

    def round(
        self,
        node: WeightedNode,
        moments: Sequence[InputMoments],
        objective: str,
        network: OnnxGraph,
        settings: Mapping[str, Any],
    ) -> NetworkLayer:
        """A layer of the original network rounded, and put into another one."""
        importance, constant = self._importance_of(node, objective), self.original.constant
        bias = None if node.bias is None else node.bias_factor * constant(node.bias).astype(float).ravel()
        weights = node.factor * node.matrix(constant(node.weight)).astype(float)
        couplings = (importance.couplings or None) if importance is not None and objective == "loss" else None
        settings = {**self.settings, "bits": self.bits.get(node.name), **settings}
        found = vars(quantize_groups(weights, moments, bias, couplings, **settings))
        found["scales"] = (found["scales"] / node.factor).astype(np.float32)
        found["bias"] = None if bias is None else found["bias"] / node.bias_factor
        layer = NetworkLayer(
            **found,
            name=node.name,
            operator=node.operator,
            weight=node.weight,
            is_transposed=node.is_transposed,
            damping=settings["damping"],
            objective="layer" if importance is None else "loss" if couplings else "rows",
        )
        return put_layer(node, network, layer)

    def _importance_of(self, node: WeightedNode, objective: str) -> Importance | None:
        return self.importance.get(node.name) if objective != "layer" else None


def put_layer(node: WeightedNode, network: OnnxGraph, layer: NetworkLayer) -> NetworkLayer:
    """Put a layer's weights, exactly its scales times its levels, and its bias into a network."""
    values = dequantized(layer.levels, layer.scales, layer.group_size)
    weights, bias = node.constant(values).astype(network.constant(node.weight).dtype), layer.bias
    network.set_constant(node.weight, weights)
    if node.bias is not None and bias is not None:
        old = network.constant(node.bias)
        bias = bias.reshape(old.shape).astype(old.dtype)
        network.set_constant(node.bias, bias)
    return replace(layer, weights=weights, bias=bias)


def _objectives(importance: Mapping[str, Importance], along_loss: bool | None) -> list[str]:
    """What errors may be weighted by, of which the best is chosen."""
    if along_loss is False or not importance:
        return ["layer"]
    has_couplings = any(own.couplings for own in importance.values())
    return ["loss"] * has_couplings + ["rows"] * (not along_loss or not has_couplings)


def _tried(
    rounder: _Rounder,
    judge: Reference,
    objectives: Sequence[str],
    damping: float,
    told: Callable[[str], None],
    is_late: Callable[[], bool],
) -> dict[str, float]:
    """The divergence of each objective with all layers rounded by descent, for the float network's inputs."""
    networks = {objective: OnnxGraph(rounder.original.model) for objective in objectives}
    before = PartialRun(rounder.original, rounder.shown.feeds)
    for node in rounder.nodes:
        told(node.name)
        if is_late():
            return {}
        moments = rounder.moments(node, before, None, "rows")
        for objective, network in networks.items():
            settings = {"method": QUICK, "damping": damping, "random_state": 0}
            rounder.round(node, moments, objective, network, settings)
    return {objective: judge.compare(network).divergence for objective, network in networks.items()}


def _allotted(rounder: _Rounder, judge: Reference, mean_bits: float) -> dict[str, int]:
    """Bits for each layer under a budget, by the divergence with each layer alone rounded, at each number of bits."""
    check_number("mean_bits", mean_bits, above=0, maximum=_WIDTHS[-1] + 32)
    levels, nodes, original = rounder.settings["levels"], rounder.nodes, rounder.original
    if levels not in ("symmetric", "with_zero", "twos_complement"):
        raise InvalidInputError(f"levels are {levels!r}, of one number of bits; mean_bits needs 'symmetric'")
    widths = [bits for bits in _WIDTHS if bits > 1 or levels != "with_zero"]
    sizes, losses = (np.empty((len(nodes), len(widths))) for _ in range(2))
    trial = OnnxGraph(original.model)
    before, held = PartialRun(original, rounder.shown.feeds), PartialRun(trial, judge.feeds)
    for place, node in enumerate(nodes):
        moments, feeds = rounder.moments(node, before, None, "rows"), list(held.at(node.output))
        for choice, bits in enumerate(widths):
            settings = {"bits": bits, "method": QUICK, "damping": _DAMPING, "random_state": 0}
            found = rounder.round(node, moments, "rows", trial, settings)
            sizes[place, choice] = stored_bits(found.grid) * found.levels.size + 32 * found.scales.size
            losses[place, choice] = compare(zip(judge.outputs, map(held.rest(feeds[0]), feeds), strict=True)).divergence
        for name in filter(None, (node.weight, node.bias)):
            trial.set_constant(name, original.constant(name))
    number = sum(int(np.prod(node.shape)) for node in nodes)
    chosen = least_divergence(sizes, losses, mean_bits * number)
    if chosen is None:
        raise InvalidInputError(
            f"mean_bits is {mean_bits:g}; with {widths[0]} bits in every layer, scales counted, it is "
            f"{sizes.min(axis=1).sum() / number:.3g}"
        )
    return {node.name: widths[choice] for node, choice in zip(nodes, chosen, strict=True)}


def _warn_of_few_rows(nodes: Sequence[WeightedNode], places: Mapping[str, float], rows: int) -> None:
    needed = {node.name: int(np.ceil(_ROWS_PER_INPUT * node.n_inputs / places[node.name])) for node in nodes}
    most = max(needed, key=needed.__getitem__)
    if needed[most] > rows:
        warnings.warn(
            f"{rows} calibration rows are few for the inputs of layer {most!r}: give {needed[most]} or more, besides "
            "those that are held out",
            stacklevel=3,
        )


def _bits_of(names: Sequence[str], bits: Any) -> Mapping[str, Any]:
    if not isinstance(bits, Mapping):
        return dict.fromkeys(names, bits)
    if set(bits) != set(names):
        raise InvalidInputError(f"bits are given for {sorted(bits)}; the layers to quantise are {sorted(names)}")
    return bits


def read_packed_weights(path: StrPath) -> dict[str, NDArray[Any]]:
    """The weights of an ONNX file that `QuantizedNetwork.save` wrote, by their names in the network, dequantised.

    Safetensors files that annealfit 0.2.0 wrote beside networks are read, too.
    """
    if Path(path).suffix.lower() != ".safetensors":
        model = read_network(path)
        with damage_named(name_of(path)):
            return {name: weights for name, (_, _, weights) in unpack_network(model).items()}
    tensors, content = read_tensors(path, KIND_OF_FILE)
    return dict(_unpacked(described, tensors) for described in content["layers"].items())


def _unpacked(described: Field, tensors: TensorFields) -> tuple[str, NDArray[Any]]:
    levels, name = described["levels"], described["name"].text()
    with settings_of(levels):
        grid = Grid(*(levels[key].value for key in ("lowest", "step", "count")))
    shape = tuple(length.whole(minimum=1) for length in levels["shape"].items(most=2))
    size = described.get("group_size")
    group_size = None if size is None else size.whole(minimum=1)
    groups = () if group_size is None else (-(-shape[0] // group_size),)
    scales = tensors.real(f"{name}.scales", (*groups, shape[-1]))
    packed = tensors.whole(f"{name}.levels", (None,), maximum=255).astype(np.uint8)
    matrix = dequantized(grid.unpack(packed, shape), scales, group_size)
    with settings_of(described):
        values = (matrix.T if described["outputs_first"].flag() else matrix).reshape(
            [length.whole(minimum=1) for length in described["shape"].items()]
        )
        return described["weight"].text(), values.astype(described["dtype"].one_of(_FLOATS))
