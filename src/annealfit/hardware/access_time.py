"""How long a call occupies the QPU: what D-Wave bills, by its published timing model.

access time = programming + reads × (anneal + readout(qubits) + delay)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from annealfit.errors import SamplerError, require
from annealfit.hardware.embeddings import EXTRA

_MICROSECONDS = 1e-6


def published_timing() -> dict[str, Any]:
    """The `problem_timing_data` of an Advantage system, as dwave-cloud-client ships it (of August 2022)."""
    mocks = require("dwave.cloud.testing.mocks", extra=EXTRA, purpose="estimating QPU access time")
    return mocks.qpu_problem_timing_data("advantage")


def access_seconds(timing: Mapping[str, Any], n_qubits: int, num_reads: int, **parameters: Any) -> float:
    """Estimated QPU access time of one call; `timing` is a solver's property `problem_timing_data`.

    >>> round(access_seconds(published_timing(), n_qubits=1780, num_reads=100), 4)
    0.0427
    """
    solver = require("dwave.cloud.solver", extra=EXTRA, purpose="estimating QPU access time")
    # D-Wave's own model, which reads nothing of its solver but these properties: no connection is needed.
    properties = SimpleNamespace(properties={"problem_timing_data": timing})
    try:
        microseconds = solver.StructuredSolver.estimate_qpu_access_time(properties, n_qubits, num_reads, **parameters)
    except (KeyError, ValueError, TypeError) as error:
        raise SamplerError(f"the solver's problem_timing_data gives no estimate of access time: {error}") from error
    return float(microseconds) * _MICROSECONDS


def most_reads(timing: Mapping[str, Any], duration_limit_seconds: float, n_qubits: int, **parameters: Any) -> int:
    """The most reads of one call that stay within the solver's limit of a call's duration; 0 if not even one does."""
    none = access_seconds(timing, n_qubits, 0, **parameters)
    one = access_seconds(timing, n_qubits, 1, **parameters) - none
    return max(int((duration_limit_seconds - none) / one), 0)
