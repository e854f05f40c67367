"""What quantising a network gives, and the file in which its integers are stored packed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit._support.files import StrPath, read_tensors, replacing, write_tensors
from annealfit._support.schema import Field, TensorFields, settings_of
from annealfit.quantization.grids import Grid
from annealfit.quantization.onnx_layers import WeightedLayer
from annealfit.quantization.packing import pack_levels, unpack_levels
from annealfit.quantization.results import QuantizedLayer

KIND_OF_FILE = "quantized weights"


@dataclass(frozen=True, eq=False)
class NetworkLayer:
    """A quantised layer of a network."""

    name: str
    operator: str
    weight: str  # the constant's name in the network
    weights: NDArray[Any]  # dequantised, with the shape and type of the constant
    bias: NDArray[Any] | None
    levels: NDArray[np.int16]  # (n_inputs, n_outputs)
    scales: NDArray[np.float32]  # (n_outputs,) or (n_groups, n_outputs)
    grid: Grid
    group_size: int | None
    is_transposed: bool
    errors: Mapping[str, float]  # of each method that was tried, relative
    error: float
    seconds: float = 0.0

    @classmethod
    def of(
        cls,
        layer: WeightedLayer,
        constant: NDArray[Any],
        bias: NDArray[Any] | None,
        parts: Sequence[QuantizedLayer],
    ) -> NetworkLayer:
        """The layer with its groups put together; scales in single precision, and the weights just those."""
        total = sum(part.power for part in parts)

        def mean(errors: Sequence[float]) -> float:
            weighted = sum(error * part.power for error, part in zip(errors, parts, strict=True))
            return weighted / total if total > 0 else 0.0

        levels = np.hstack([part.levels for part in parts])
        scales = (np.concatenate([part.scales for part in parts], axis=-1) / layer.factor).astype(np.float32)
        first = parts[0]
        matrix = dequantized(levels, scales, first.group_size)
        new_bias = None
        if bias is not None:
            joined = np.concatenate([_known(part.bias) for part in parts]) / layer.bias_factor
            new_bias = joined.reshape(bias.shape).astype(bias.dtype)
        return cls(
            layer.name,
            layer.operator,
            layer.weight,
            layer.constant(matrix).astype(constant.dtype),
            new_bias,
            levels,
            scales,
            first.grid,
            first.group_size,
            layer.is_transposed,
            {name: mean([part.errors[name] for part in parts]) for name in first.errors},
            mean([part.error for part in parts]),
        )

    def after(self, seconds: float) -> NetworkLayer:
        """The same with the time it took."""
        return replace(self, seconds=seconds)

    @property
    def bytes_before(self) -> int:
        """Of the weights as they were."""
        return self.weights.nbytes

    @property
    def bytes_after(self) -> int:
        """Of the packed levels and the scales."""
        return -(-self.levels.size * self.grid.storage_bits // 8) + self.scales.nbytes


def _known(bias: NDArray[Any] | None) -> NDArray[Any]:
    assert bias is not None, "groups share one bias, or have none"
    return bias


def dequantized(levels: NDArray[Any], scales: NDArray[Any], group_size: int | None) -> NDArray[np.float64]:
    """Weights (n_inputs, n_outputs) of levels and scales.

    >>> dequantized(np.array([[1], [-3]]), np.array([0.5], dtype=np.float32), None).tolist()
    [[0.5], [-1.5]]
    """
    spread = scales if group_size is None else np.repeat(scales, group_size, axis=0)[: len(levels)]
    return spread.astype(np.float64) * levels


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """A network with low-bit weights: an ONNX model that computes with their values, and the integers themselves."""

    model: Any  # onnx.ModelProto
    layers: tuple[NetworkLayer, ...]
    bytes_before: int  # of all constants
    output_error: float  # relative squared error of the network's outputs on the calibration rows
    agreement: float | None  # share of these rows whose largest output is the same as before; None where it has none

    @property
    def bytes_after(self) -> int:
        """Of all constants, those that were quantised packed."""
        return self.bytes_before + sum(layer.bytes_after - layer.bytes_before for layer in self.layers)

    def __iter__(self) -> Iterator[NetworkLayer]:
        return iter(self.layers)

    def save(self, path: StrPath) -> tuple[Path, Path]:
        """Write the ONNX model, and beside it, with the ending safetensors, the packed integers and scales."""
        target, beside = Path(path), packed_path(path)
        with replacing(target) as file:
            file.write(self.model.SerializeToString())
        tensors: dict[str, NDArray[Any]] = {}
        manifest = []
        for layer in self.layers:
            numbers = (layer.levels.astype(np.int64) - layer.grid.lowest) // layer.grid.step
            tensors[f"{layer.name}.levels"] = pack_levels(numbers, layer.grid.storage_bits)
            tensors[f"{layer.name}.scales"] = layer.scales
            if layer.bias is not None:
                tensors[f"{layer.name}.bias"] = layer.bias
            manifest.append(_described(layer))
        write_tensors(beside, KIND_OF_FILE, tensors, {"layers": manifest})
        return target, beside


def packed_path(path: StrPath) -> Path:
    """Where the integers of a network at this path are stored."""
    target = Path(path)
    if target.suffix.lower() == ".safetensors":
        raise InvalidInputError(f"{target.name} ends in safetensors, which is for the integers; name an onnx file")
    return target.with_suffix(".safetensors")


def _described(layer: NetworkLayer) -> dict[str, Any]:
    grid = layer.grid
    return {
        "name": layer.name,
        "operator": layer.operator,
        "weight": layer.weight,
        "shape": list(layer.weights.shape),
        "dtype": layer.weights.dtype.str,
        "levels": {"lowest": grid.lowest, "step": grid.step, "count": grid.count, "shape": list(layer.levels.shape)},
        "group_size": layer.group_size,
        "outputs_first": layer.is_transposed,
        "errors": dict(layer.errors),
    }


_FLOATS = ("<f4", "<f8", "<f2")  # types of weights


def read_packed_weights(path: StrPath) -> dict[str, NDArray[Any]]:
    """The weights of a file that `QuantizedNetwork.save` wrote, by their names in the network, dequantised."""
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
    numbers = grid.at(unpack_levels(packed, grid.storage_bits, shape).astype(np.int64))
    matrix = dequantized(numbers, scales, group_size)
    with settings_of(described):
        values = (matrix.T if described["outputs_first"].flag() else matrix).reshape(
            [length.whole(minimum=1) for length in described["shape"].items()]
        )
        return described["weight"].text(), values.astype(described["dtype"].one_of(_FLOATS))
