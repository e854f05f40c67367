"""compare_methods: quantize_network beside the field's methods on the same rows, which --compare prints."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from annealfit._support.errors import InvalidInputError
from annealfit.data.features.onnx_files import first_line, onnx_module, read_network
from annealfit.quantization.network import QuantizedNetwork, quantize_network
from annealfit.quantization.sensitivity import Fidelity

_PLAIN: dict[str, Any] = {"damping": 0.0, "along_loss": False, "refit": False}  # each layer along its own error
OPPONENTS = {
    "nearest": "nearest",
    "GPTQ": "gptq",
    "GPTQ, scales searched": "gptq_search",
    "coordinate descent": "descent",
}


@dataclass(frozen=True)
class Compared:
    """What a method made of a network, on the held-out rows."""

    method: str
    fidelity: Fidelity | None  # None where it could not be made, and
    n_bytes: int
    seconds: float  # of processor time
    failure: str = ""  # says why


def compare_methods(
    found: QuantizedNetwork,
    model: Any,
    calibration: Any,
    *,
    on_method: Callable[[str], object] | None = None,
    **settings: Any,
) -> list[Compared]:
    """What `quantize_network` found beside the field's methods, with the same bits in each layer.

    Settings are `levels`, `group_size`, `keep` and `validation`, as they were. The others round each layer along its
    own error without damping; coordinate descent fits the scales in turn with the levels. All see the same calibration
    rows and are judged on the same held-out ones. onnxruntime's own 8 bits (`quantize_dynamic`) stand beside them.
    """
    if found.held_out is None:
        raise InvalidInputError("a comparison takes held-out rows: 20 calibration rows or more, or validation")
    rows, bits = list[Compared](), {layer.name: layer.grid.storage_bits for layer in found}
    for title, method in OPPONENTS.items():
        if on_method is not None:
            on_method(title)
        other = quantize_network(model, calibration, bits, method=method, **settings, **_PLAIN)
        rows.append(Compared(title, other.held_out, other.bytes_after, other.seconds))
    name = f"{found.layers[0].method}, chosen on held-out rows"
    own = Compared(name, found.held_out, found.bytes_after, found.seconds)
    return [*rows, own, by_onnxruntime(model, found)]


def by_onnxruntime(model: Any, found: QuantizedNetwork) -> Compared:
    """Onnxruntime's dynamic quantisation to 8 bits."""
    title, began, source = "onnxruntime, 8 bits", time.process_time(), read_network(model)
    root, before = logging.getLogger(), logging.getLogger().level
    try:
        root.setLevel(logging.ERROR)  # it advises to optimise the network first
        from onnxruntime.quantization import QuantType, quantize_dynamic

        with TemporaryDirectory() as folder:
            path = Path(folder) / "int8.onnx"
            quantize_dynamic(type(source).FromString(source.SerializeToString()), path, weight_type=QuantType.QInt8)
            written = onnx_module().load(str(path))
        fidelity = found.judge(written)
    except Exception as error:  # its errors have no common base but this
        return Compared(title, None, 0, 0.0, first_line(error))
    finally:
        root.setLevel(before)
    return Compared(title, fidelity, written.ByteSize(), time.process_time() - began)
