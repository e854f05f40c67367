"""What quantising a layer gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.arrays import Array
from annealfit.quantization.grids import Grid
from annealfit.quantization.packing import pack_levels


@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """A layer on a grid. Shapes are those of the weights that were given, (n_inputs, n_outputs).

    Errors are relative: the mean squared error of the outputs over their mean square (their variance, where a bias
    absorbs the mean), on the inputs that were given.
    """

    weights: NDArray[Any]  # dequantised: scales times levels
    levels: NDArray[np.int16]  # whole numbers of the grid
    scales: Array  # (n_outputs,), or (n_groups, n_outputs)
    bias: Array | None  # with what rounding did to the mean made up for; None if none was given
    error: float
    power: float  # what errors are shares of: the mean square of the outputs, summed over them
    errors: Mapping[str, float]  # what each method that was tried gave by itself, in turn
    seconds: Mapping[str, float]  # what each took
    output_errors: Array  # of each output, (n_outputs,)
    grid: Grid
    group_size: int | None
    method: str
    lower_bound: float | None = None  # an error that no levels with these scales are below, where a method knows
    proven: NDArray[np.bool_] | None = None  # for which outputs no levels with these scales are better, as damped

    @property
    def packed_levels(self) -> NDArray[np.uint8]:
        """The levels in as few bits as the grid takes, input by input."""
        return pack_levels((self.levels - self.grid.lowest) // self.grid.step, self.grid.storage_bits)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed levels and of scales in single precision."""
        return -(-self.levels.size * self.grid.storage_bits // 8) + 4 * self.scales.size

    def __repr__(self) -> str:
        inputs, outputs = self.levels.shape
        return (
            f"QuantizedLayer({inputs}×{outputs}, {self.grid.count} levels, {self.method}, error {self.error:.4g}, "
            f"{self.packed_bytes} bytes)"
        )
