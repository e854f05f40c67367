"""How much of a problem an annealer resolves: its coefficients against the device's ranges and analog control error.

A device takes fields and couplings in fixed ranges and realises them with an error that does not depend on their
size. So a problem is first divided by one number, the scale at which it fills the ranges, and what is then smaller
than the error is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Published standard deviations, from and to, of fields in ±4 and of couplings in ±1 ("Errors and Error Correction" in
# D-Wave's documentation). They vary along the anneal, and were measured on a D-Wave 2X; it has none newer.
FIELD_ERROR = (0.01, 0.025)
COUPLING_ERROR = (0.01, 0.015)
# The levels at which a problem is looked at: the least error, the most of couplings, the most of all.
ERROR_LEVELS = (COUPLING_ERROR[0], COUPLING_ERROR[1], FIELD_ERROR[1])
# Multiple of uniform torque compensation. The usual 1.414 is meant for couplings of random sign; those of a Gram matrix
# mostly share theirs, and pull at a chain together: with it a fifth of the chains broke at 2 bits (docs/qpu.md).
CHAIN_PREFACTOR = 2.0
# Couplings below this share of the largest are what rounding leaves of those that cancel, as a centred bias's do.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class DeviceRanges:
    """The largest field, coupling and chain strength of a device; chains may use its extended coupling range."""

    field: float = 4.0
    coupling: float = 1.0
    chain: float = 2.0

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> DeviceRanges:
        """The ranges that a solver's properties publish; the smaller side of each counts."""
        coupling = min(map(abs, properties["j_range"]))
        return cls(
            field=min(map(abs, properties["h_range"])),
            coupling=coupling,
            chain=-properties.get("extended_j_range", [-coupling])[0],
        )


ADVANTAGE = DeviceRanges()


def torque_compensation(couplings: NDArray[np.float64], prefactor: float = CHAIN_PREFACTOR) -> float:
    """Chain strength by uniform torque compensation: `prefactor · rms(J) · √(mean degree)`; 1 without couplings.

    `couplings` is strictly upper triangular, as `problem.to_ising()` gives it.

    >>> torque_compensation(np.array([[0.0, 1.0], [0.0, 0.0]]), prefactor=2.0)
    2.0
    """
    size, count = len(couplings), int(np.count_nonzero(couplings))
    if count == 0:
        return 1.0
    return float(prefactor * np.sqrt((couplings**2).sum() / count) * np.sqrt(2 * count / size))


def device_scale(
    fields: NDArray[np.float64],
    couplings: NDArray[np.float64],
    chain_strength: float,
    ranges: DeviceRanges = ADVANTAGE,
) -> float:
    """The number by which coefficients and chain strength have to be divided to fill the device's ranges."""
    return float(
        max(
            np.abs(fields).max() / ranges.field,
            np.abs(couplings).max() / ranges.coupling,
            chain_strength / ranges.chain,
        )
    )


def share_below(couplings: NDArray[np.float64], scale: float, error: float) -> float:
    """The share of the couplings that are smaller than the error once divided by the scale; 0 if there are none.

    Couplings of 0 do not count: nothing has to be resolved there.

    >>> share_below(np.array([[0.0, 8.0, 0.1], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), scale=8.0, error=0.02)
    0.5
    """
    sizes = _sizes(couplings)
    return float((sizes < error * scale).mean()) if len(sizes) else 0.0


def span(couplings: NDArray[np.float64]) -> float:
    """The largest coupling over the smallest that is not 0; 1 if there are none.

    >>> span(np.array([[0.0, 8.0, -0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    16.0
    """
    sizes = _sizes(couplings)
    return float(sizes.max() / sizes.min()) if len(sizes) else 1.0


@dataclass(frozen=True)
class Resolution:
    """What a device's ranges and error make of a problem."""

    scale: float  # by which its coefficients are divided
    couplings: int  # that are not 0
    largest_coupling: float  # once divided: where it is below the range, chains or fields decide the scale
    chain_strength: float  # likewise
    span_of_couplings: float  # as a power of two
    share_below: dict[float, float]  # of the couplings, by error level


def resolve(
    fields: NDArray[np.float64],
    couplings: NDArray[np.float64],
    ranges: DeviceRanges = ADVANTAGE,
    chain_prefactor: float = CHAIN_PREFACTOR,
) -> Resolution:
    """How much of the problem the device resolves beside chains of the usual strength.

    >>> resolution = resolve(np.ones(3), np.triu(np.array([[0.0, 8.0, -0.1]] * 3), 1))
    >>> resolution.share_below[0.025]
    0.6666666666666666
    """
    chain = torque_compensation(couplings, chain_prefactor)
    scale = device_scale(fields, couplings, chain, ranges)
    sizes = _sizes(couplings)
    return Resolution(
        scale,
        couplings=len(sizes),
        largest_coupling=float(sizes.max(initial=0.0) / scale),
        chain_strength=chain / scale,
        span_of_couplings=float(np.log2(span(couplings))),
        share_below={error: share_below(couplings, scale, error) for error in ERROR_LEVELS},
    )


def _sizes(couplings: NDArray[np.float64]) -> NDArray[np.float64]:
    sizes = np.abs(couplings[couplings != 0])
    return sizes[sizes > _ROUNDING * sizes.max(initial=0.0)]
