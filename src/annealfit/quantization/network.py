"""quantize_network: all layers of an ONNX network, one after another, each with the inputs that it will see."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit._support.errors import FileFormatError, InvalidInputError, check_number
from annealfit._support.files import StrPath, check_regular, read_arrays, read_tensors, replacing
from annealfit._support.randomness import child_seed, seed_of
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.data.features.onnx_files import damage_named, name_of, read_network
from annealfit.quantization.grids import Grid
from annealfit.quantization.methods import QUICK, methods_of
from annealfit.quantization.moments import InputMoments, MomentSums
from annealfit.quantization.onnx_graph import Feed, OnnxGraph, Shown, WeightedNode, find_layers, first_rows
from annealfit.quantization.packing import dequantized, pack_network, stored_bits, unpack_network
from annealfit.quantization.quantize import LayerInNetwork, QuantizedLayer, quantize_layers
from annealfit.quantization.sensitivity import (
    MOST_ROWS,
    Fidelity,
    compare,
    corrections_of,
    least_divergence,
    output_weights_of,
)

KIND_OF_FILE = "quantized weights"
_FLOATS = ("<f4", "<f8", "<f2")  # types of weights

_ROWS_PER_BATCH = 64
_ROWS_PER_GRAM = 16  # of a layer, times its inputs, and at least so many: more are thinned out
_LEAST_THINNED = 1 << 14  # rows
HELD_OUT = 5  # every fifth row is held out, of at least so many rows:
_LEAST_ROWS = 20
_DAMPINGS = (0.01, 0.05, 0.15)  # that are tried on held-out rows
# Of perturbing outputs: multiplications in all, and as how many of them a number counts that is not multiplied.
_WORK, _WORK_OF_NUMBER = 2e11, 30.0
_RIDGES = (1.0, 0.1, 0.01)  # of a refit, in shares of the mean curvature, that are tried on held-out rows
_LEAST_FACTOR = 0.1  # of a scale
_WIDTHS = (1, 2, 4, 8)  # bits to choose from
_ROWS_PER_INPUT = 2  # of a layer: less is too few to tell its inputs' Gram matrix


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NetworkLayer(QuantizedLayer):
    """A quantised layer of a network; weights and bias have the shape and type of the network's constants."""

    name: str
    operator: str
    weight: str  # the constant's name in the network
    is_transposed: bool  # outputs come first in the constant
    damping: float  # given, or chosen on held-out rows
    along_loss: bool  # whether its outputs were weighted by what they do to the network's: then errors are, too

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

    Every fifth of at least 20 calibration rows is held out. On them it is chosen, layer by layer, how much the layer is
    damped, and whether errors of its outputs count by what they do to the network's outputs (`output_weights` of
    `quantize_layer`) or all the same: what gives the least divergence with the layer rounded by descent.

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
        As in `quantize_layer`. None is chosen on held-out rows.
    validation : as calibration, or None
        Rows to choose on and to tell the divergence on, instead of a part of the calibration rows.
    along_loss : bool or None
        Whether outputs are weighted by what they do to the network's. None is decided on held-out rows.
    refit : bool
        After rounding, fit scales and biases to the outputs of the float network, layer by layer from the last one, as
        far as the divergence on held-out rows falls. Not for methods that start from nothing, such as GPTQ, nor
        without held-out rows.
    keep : sequence of str
        Names of nodes that stay as they are.
    time_limit : float or None
        Seconds after which layers are rounded by GPTQ and descent alone. A layer that was begun is completed.
    on_layer : function or None
        Called before each layer with its number, how many there are, and its name.

    Returns
    -------
    QuantizedNetwork
        `.model` with dequantised weights, `.layers`, `.floats`, `.save(path)`. The written file is small, has the
        integers, and computes with exactly the same weights.

    """
    original, network = OnnxGraph(model), OnnxGraph(model)
    began, processor_began, seed = time.perf_counter(), time.process_time(), seed_of(random_state)
    held: list[Feed] = []
    if validation is None:
        batches, held = _calibration_batches(calibration, original, HELD_OUT)
    else:
        batches, held = (_calibration_batches(given, original)[0] for given in (calibration, validation))
    nodes, floats = find_layers(network, keep)
    names, places = [node.name for node in nodes], _places(nodes, original, batches[0])
    _warn_of_few_rows(nodes, places, sum(_rows_of(feed) for feed in batches))
    most = _rows_to_perturb(nodes, places)
    methods_of(method)  # refuses what is none before anything is run
    judge = _Judge(original, held or batches)
    settings = {"levels": levels, "group_size": group_size}
    if time_limit is not None:
        check_number("time_limit", time_limit, minimum=0)
    if mean_bits is not None:
        bits = _allotted(nodes, original, batches, places, judge, settings, mean_bits)
    bits_of = _bits_of(names, bits, levels)
    reached = dict[str, Shown]()  # the layer in turn: what it reads now, and what it read
    choices = _Choices(reached, held, judge, most, damping, along_loss, methods_of(method)[-1])
    rounded, done = list[QuantizedLayer](), list[NetworkLayer]()

    def is_late() -> bool:
        return time_limit is not None and time.perf_counter() - began > time_limit

    def put(node: WeightedNode, found: QuantizedLayer) -> None:
        rounded.append(found)
        done.append(_put(node, network, found, *choices.made[node.name]))

    def moments(node: WeightedNode) -> list[InputMoments]:
        reached["float"] = Shown(original, batches).at(node.source)
        reached["now"] = Shown(network, batches).at(node.source) if done else reached["float"]
        return _moments(node, reached["float"], reached["now"], places[node.name])

    def layers() -> Iterator[LayerInNetwork]:
        for number, node in enumerate(nodes):
            if on_layer is not None:
                on_layer(number, len(nodes), node.name)
            late = is_late()
            own = {"bits": bits_of[node.name], "random_state": child_seed(seed, number) >> 32}  # 32 bits at most
            own |= {"method": QUICK if late else method}
            yield _layer(
                node,
                network,
                settings | own,
                partial(moments, node),
                partial(put, node),
                partial(choices.choose, node, network, late, child_seed(seed, number, 1)),
            )

    quantize_layers(layers())
    if refit and held and not getattr(choices.method, "starts_from_nothing", False):
        least = judge.of(network).divergence
        for number in reversed(range(len(nodes))):
            if not is_late():
                found = rounded[number], done[number], least, most[names[number]] // 2
                done[number], least = _refitted(nodes[number], reached["now"], reached["float"], judge, *found)
                reached["now"] = Shown(network, batches)
    packed, large = pack_network(network.model, done)
    written = OnnxGraph(packed)
    known = reached["float"]
    before, after = known.runner(judge.outputs), written.runner(judge.outputs)
    own = compare((before(feed), after(feed)) for feed in known.feeds)
    return QuantizedNetwork(
        network.model,
        packed,
        tuple(done),
        floats | large,
        original.n_bytes,
        own.error,
        own.agreement,
        own.divergence,
        judge.of(written) if held else None,
        time.process_time() - processor_began,
        lambda other: judge.of(OnnxGraph(other)),
    )


def _layer(
    node: WeightedNode,
    network: OnnxGraph,
    settings: Mapping[str, Any],
    moments: Callable[[], Sequence[InputMoments | None]],
    put: Callable[[QuantizedLayer], object],
    choose: Any = None,
) -> LayerInNetwork:
    bias = None if node.bias is None else node.bias_factor * network.constant(node.bias).astype(float).ravel()
    weights = node.factor * node.matrix(network.constant(node.weight)).astype(float)
    return LayerInNetwork(node.name, weights, bias, settings, moments, put, choose)


class _Judge:
    """Compares a network's outputs on some rows with those of the float network, which are kept."""

    def __init__(self, original: OnnxGraph, feeds: Sequence[Feed]) -> None:
        self._feeds = feeds
        self.outputs = [value.name for value in original.graph.output]
        before = original.runner(self.outputs)
        self._before = [before(feed) for feed in feeds]

    def of(self, network: OnnxGraph) -> Fidelity:
        """What it has lost."""
        return self._compared(network, self._feeds, None)

    def after(self, tensor: str, network: OnnxGraph) -> Callable[[OnnxGraph], Fidelity]:
        """The same for networks that differ only in what follows a tensor, which is computed once."""
        shown = Shown(network, self._feeds).at(tensor)
        return partial(self._compared, feeds=shown.feeds, fed=shown.fed)

    def _compared(self, network: OnnxGraph, feeds: Sequence[Feed], fed: str | None) -> Fidelity:
        run = network.runner(self.outputs, fed)
        return compare((before, run(feed)) for before, feed in zip(self._before, feeds, strict=True))


@dataclass(frozen=True, eq=False)
class _Choices:
    """How each layer is damped, and whether its outputs are weighted: what is given, else what held-out rows say."""

    reached: Mapping[str, Shown]
    held: Sequence[Feed]
    judge: _Judge
    most: Mapping[str, int]  # rows on which outputs are perturbed
    damping: float | None
    along_loss: bool | None
    method: Any
    made: dict[str, tuple[float, bool]] = field(default_factory=dict)

    def choose(
        self, node: WeightedNode, network: OnnxGraph, late: bool, seed: int, quantized: Callable[..., QuantizedLayer]
    ) -> Mapping[str, Any]:
        """Settings of a layer, `quantized` being what rounds it with changed settings."""
        is_fixed = late or not self.held or getattr(self.method, "starts_from_nothing", False)
        coupled = None
        if self.along_loss or (self.along_loss is None and not is_fixed):
            coupled = output_weights_of(node, self.reached["float"], seed, min(self.most[node.name], MOST_ROWS))
        best = self.damping or 0.0, bool(self.along_loss or self.along_loss is None) and coupled is not None
        if not is_fixed and (self.damping is None or (self.along_loss is None and best[1])):
            judge = self.judge.after(node.source, network)

            def divergence(choice: tuple[float, bool]) -> float:
                _put(node, network, quantized(self._settings(choice, coupled) | {"method": QUICK}), *choice)
                return judge(network).divergence

            shares = _DAMPINGS if self.damping is None else (self.damping,)
            tried = {(share, best[1]): divergence((share, best[1])) for share in shares}
            best = min(tried, key=tried.__getitem__)
            if self.along_loss is None and best[1] and divergence((best[0], False)) < tried[best]:
                best = best[0], False
        self.made[node.name] = best
        return self._settings(best, coupled)

    @staticmethod
    def _settings(choice: tuple[float, bool], coupled: Sequence[Array] | None) -> dict[str, Any]:
        return {"damping": choice[0], "output_weights": coupled if choice[1] else None}


def _allotted(
    nodes: Sequence[WeightedNode],
    original: OnnxGraph,
    batches: Sequence[Feed],
    places: Mapping[str, float],
    judge: _Judge,
    settings: Mapping[str, Any],
    mean_bits: float,
) -> dict[str, int]:
    """Bits for each layer under a budget, by the divergence with each layer alone rounded, at each number of bits."""
    check_number("mean_bits", mean_bits, above=0, maximum=_WIDTHS[-1] + 32)
    if settings["levels"] not in ("symmetric", "with_zero", "twos_complement"):
        raise InvalidInputError(
            f"levels are {settings['levels']!r}, of one number of bits; mean_bits needs 'symmetric'"
        )
    widths = [bits for bits in _WIDTHS if bits > 1 or settings["levels"] != "with_zero"]
    sizes, losses = (np.empty((len(nodes), len(widths))) for _ in range(2))
    trial, shown = OnnxGraph(original.model), Shown(original, batches)
    for place, node in enumerate(nodes):
        moments: Sequence[InputMoments | None] = _moments(node, shown, shown, places[node.name])
        for choice, bits in enumerate(widths):
            own = {**settings, "bits": bits, "method": QUICK, "damping": _DAMPINGS[0]}
            layer = _layer(node, original, own, partial(_same, moments), _same)
            found = _put(node, trial, quantize_layers([layer])[node.name], 0.0, along_loss=False)
            sizes[place, choice] = stored_bits(found.grid) * found.levels.size + 32 * found.scales.size
            losses[place, choice] = judge.of(trial).divergence
        for name in filter(None, (node.weight, node.bias)):
            trial.set_constant(name, original.constant(name))
    count = sum(int(np.prod(node.shape)) for node in nodes)
    chosen = least_divergence(sizes, losses, mean_bits * count)
    if chosen is None:
        raise InvalidInputError(
            f"mean_bits is {mean_bits:g}; with {widths[0]} bits in every layer, scales counted, it is "
            f"{sizes.min(axis=1).sum() / count:.3g}"
        )
    return {node.name: widths[choice] for node, choice in zip(nodes, chosen, strict=True)}


def _same(value: Any) -> Any:
    return value


def _rows_of(feed: Feed) -> int:
    return max((len(values) for values in feed.values() if values.ndim), default=1)


def _places(nodes: Sequence[WeightedNode], network: OnnxGraph, feed: Feed) -> dict[str, float]:
    """How often each layer is applied in a row of the network, such as to the positions of an image."""
    feed = first_rows(feed, network, 1)
    found = network.runner([node.output for node in nodes])(feed)
    rows = _rows_of(feed)
    return {node.name: one.size / (node.n_outputs * rows) for node, one in zip(nodes, found, strict=True)}


def _rows_to_perturb(nodes: Sequence[WeightedNode], places: Mapping[str, float]) -> dict[str, int]:
    """Rows on which each output of a layer can be moved, at equal work for all layers."""
    found, rest = {}, 0.0
    for node in reversed(nodes):
        outputs = places[node.name] * node.n_outputs
        rest += _WORK_OF_NUMBER * outputs
        found[node.name] = int(_WORK / (len(nodes) * 2 * node.n_outputs * rest))
        rest += outputs * node.n_inputs
    return found


def _warn_of_few_rows(nodes: Sequence[WeightedNode], places: Mapping[str, float], rows: int) -> None:
    needed = {node.name: int(np.ceil(_ROWS_PER_INPUT * node.n_inputs / places[node.name])) for node in nodes}
    most = max(needed, key=needed.__getitem__)
    if needed[most] > rows:
        warnings.warn(
            f"{rows} calibration rows are few for the inputs of layer {most!r}: give {needed[most]} or more, besides "
            "those that are held out",
            stacklevel=3,
        )


def _bits_of(names: Sequence[str], bits: Any, levels: str | Grid) -> Mapping[str, Any]:
    if not isinstance(bits, Mapping):
        Grid.of(bits, levels)  # refuses what is wrong
        return dict.fromkeys(names, bits)
    if set(bits) != set(names):
        raise InvalidInputError(f"bits are given for {sorted(bits)}; the layers to quantise are {sorted(names)}")
    return bits


def _moments(node: WeightedNode, original: Shown, shown: Shown, places: float) -> list[InputMoments]:
    """The moments of what a node reads, now and before the layers below it were quantised, one for each group.

    A row of the network is so many rows of the layer, its places.
    """
    now, before = (each.runner([node.source]) for each in (shown, original))
    sums = [MomentSums() for _ in range(node.n_groups)]
    rows = places * sum(_rows_of({name: feed[name] for name in shown.network.inputs}) for feed in shown.feeds)
    share = max(_ROWS_PER_GRAM * node.n_inputs, _LEAST_THINNED) / rows
    for feed, own in zip(shown.feeds, original.feeds, strict=True):
        seen = now(feed)[0]
        reference = seen if shown is original else before(own)[0]
        for parts in zip(node.rows(seen, share), node.rows(reference, share), strict=True):
            for total, part, wanted in zip(sums, *parts, strict=True):
                total.add(part, None if shown is original else wanted)  # a third of the products
    return [total.moments() for total in sums]


def _put(
    node: WeightedNode, network: OnnxGraph, found: QuantizedLayer, damping: float, along_loss: bool
) -> NetworkLayer:
    """Put new weights and bias into the network: scales in single precision, and weights just those times levels."""
    scales, bias = (found.scales / node.factor).astype(np.float32), None
    values = dequantized(found.levels, scales, found.group_size)
    weights = node.constant(values).astype(network.constant(node.weight).dtype)
    network.set_constant(node.weight, weights)
    if node.bias is not None and found.bias is not None:
        old = network.constant(node.bias)
        bias = (found.bias / node.bias_factor).reshape(old.shape).astype(old.dtype)
        network.set_constant(node.bias, bias)
    own = {"name": node.name, "operator": node.operator, "weight": node.weight, "is_transposed": node.is_transposed}
    own |= {"damping": damping, "along_loss": along_loss}
    return NetworkLayer(**{**vars(found), **own, "weights": weights, "bias": bias, "scales": scales})


def _refitted(
    node: WeightedNode,
    shown: Shown,
    original: Shown,
    judge: _Judge,
    rounded: QuantizedLayer,
    layer: NetworkLayer,
    least: float,
    most: int,
) -> tuple[NetworkLayer, float]:
    """The layer with the scales and the bias of least divergence on the judge's rows, which is returned, too."""
    network, step = shown.network, corrections_of(node, shown, original, rounded.bias, most)
    if step is None:
        return layer, least
    compared = judge.after(node.source, network)
    for ridge in _RIDGES:
        factors, *shifts = np.atleast_2d(step(ridge))
        scales = rounded.scales * np.maximum(1 + factors, _LEAST_FACTOR)
        bias = None if rounded.bias is None else rounded.bias + shifts[0]
        found = _put(node, network, replace(rounded, scales=scales, bias=bias), layer.damping, layer.along_loss)
        divergence = compared(network).divergence
        if divergence < least:
            layer, least = found, divergence
    for name, values in ((node.weight, layer.weights), (node.bias, layer.bias)):
        if name is not None and values is not None:
            network.set_constant(name, values)
    return layer, least


def _calibration_batches(given: Any, network: OnnxGraph, apart: int = 0) -> tuple[list[Feed], list[Feed]]:
    """What the network is fed, in turn: of an array, an npy or npz file, or a mapping of inputs' names to these.

    Every `apart`-th row, or run of a fixed number of rows, goes into the second list, if there are enough.

    Arrays have rows, as the network reads them. One with an axis more has a whole input for each run (the state of a
    recurrent network, say), and then rows are run one by one. A single number is the same in all runs. A network that
    reads a fixed number of rows at a time is not fed the rest that does not fill it.
    """
    shapes = {name: _shape_of(kind) for name, kind in network.inputs.items()}
    arrays = _arrays(given, list(shapes))
    if set(arrays) != set(shapes):
        raise InvalidInputError(
            f"the network has the inputs {list(shapes)} and the calibration {list(arrays)}; give each one's rows"
        )
    for name, shape in shapes.items():
        _check(arrays[name], name, shape)
    axes = {name: array.ndim if (shape := shapes[name]) is None else len(shape) for name, array in arrays.items()}
    same = {name: array for name, array in arrays.items() if array.ndim == 0}
    whole = {name: array for name, array in arrays.items() if array.ndim > axes[name]}
    rows = {name: array for name, array in arrays.items() if name not in whole | same}
    fixed = min((shape[0] for name in rows if (shape := shapes[name]) and shape[0]), default=None)
    step = fixed or (1 if whole else _ROWS_PER_BATCH)
    counts = {name: len(array) // (fixed or 1) for name, array in rows.items()}
    counts |= {name: len(array) for name, array in whole.items()}
    if len(set(counts.values())) != 1:
        raise InvalidInputError(
            f"calibration has different numbers of rows: {sorted(counts.values())} ({', '.join(counts)}); an input "
            "that is no rows, such as a state, is given as one whole input for each row"
        )
    if 0 in counts.values():
        raise InvalidInputError(f"the network reads {fixed} rows at a time, and calibration has fewer")
    runs = np.arange(min(counts.values()))
    is_apart = (runs % apart == apart - 1) & (len(runs) >= _LEAST_ROWS) if apart else np.zeros(len(runs), dtype=bool)

    def feeds(chosen: NDArray[np.intp]) -> list[Feed]:
        places = (chosen[:, None] * (fixed or 1) + np.arange(fixed or 1)).ravel()
        return [
            {name: array[places[first : first + step]] for name, array in rows.items()}
            | {name: array[places[first] // step] for name, array in whole.items()}
            | same
            for first in range(0, len(places), step)
        ]

    return feeds(runs[~is_apart]), feeds(runs[is_apart])


def _shape_of(kind: Any) -> list[int | None] | None:
    """The lengths of an input's axes, None where any will do; None where the network does not say how many axes."""
    return [dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim] if kind.HasField("shape") else None


def _arrays(given: Any, inputs: list[str]) -> dict[str, NDArray[Any]]:
    """Arrays by the names of inputs; a single array is that of a single input."""
    if not isinstance(given, Mapping):
        found = _read(given)
        if isinstance(found, np.ndarray):
            return {inputs[0] if len(inputs) == 1 else "(an array)": found}
        if len(found) == len(inputs) == 1:
            return dict(zip(inputs, found.values(), strict=True))
        return {name: found[name] for name in inputs if name in found}
    arrays = {name: _read(value) for name, value in given.items()}
    for name, found in arrays.items():
        if not isinstance(found, np.ndarray):
            raise InvalidInputError(
                f"{os.fspath(given[name])} holds {len(found)} arrays; give one array for each input"
            )
    return arrays


def _read(given: Any) -> Any:
    """An array as it is, the array of an npy file, or those of an npz file by name; nothing is unpickled."""
    if not isinstance(given, str | os.PathLike):
        return np.asarray(given)
    name, suffix = os.fspath(given), Path(given).suffix.lower()
    if suffix not in (".npy", ".npz"):
        raise InvalidInputError(f"{name} is neither an npy nor an npz file; write calibration rows with numpy.save")
    check_regular(given)
    try:
        return np.load(name, mmap_mode="r", allow_pickle=False) if suffix == ".npy" else dict(read_arrays(given))
    except FileFormatError:
        raise
    except (ValueError, EOFError, KeyError) as error:
        raise FileFormatError(f"{name} is not a file of plain NumPy arrays ({error})") from error


def _check(array: NDArray[Any], name: str, shape: Sequence[int | None] | None) -> None:
    """Refuse what an input of this shape cannot read."""
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"calibration is an array of {array.dtype}; expected numbers")
    is_rows = shape is None or (array.ndim == len(shape) and _fits(array.shape[1:], shape[1:]))
    if shape is not None and not is_rows and not _fits(array.shape[1:], shape):
        wanted = f"({', '.join('N' if size is None or k == 0 else str(size) for k, size in enumerate(shape))})"
        hint = "one row for each image, as the network reads it"
        fixed = [size for size in shape[1:] if size is not None]
        if len(fixed) == len(shape) - 1 and array.ndim and np.prod(fixed) == np.prod(array.shape[1:]):
            hint = f"reshape it: X.reshape(-1, {', '.join(map(str, fixed))})"
        raise InvalidInputError(
            f"calibration has shape {array.shape}; the network's input {name!r} is {wanted}: {hint}"
        )
    if array.size == 0:
        raise InvalidInputError("calibration has no rows; some hundred are needed, better a thousand or more")
    parts = [array[first : first + 1024] for first in range(0, len(array), 1024)] if array.ndim else [array]
    if array.dtype.kind == "f" and not all(np.isfinite(part).all() for part in parts):
        raise InvalidInputError("calibration holds NaN or infinity")


def _fits(found: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(found) == len(wanted) and all(size in (None, own) for own, size in zip(found, wanted, strict=True))


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
