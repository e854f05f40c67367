"""Samplers: what takes a quadratic problem and returns bits of low energy."""

from typing import TYPE_CHECKING, Any

from annealfit.errors import require
from annealfit.samplers.annealer import SimulatedAnnealer
from annealfit.samplers.base import Sampler, Samples
from annealfit.samplers.dimod_adapter import DimodSampler
from annealfit.samplers.exact import ExactSolver
from annealfit.samplers.rounded import RoundedSampler

if TYPE_CHECKING:
    from annealfit.samplers.dense import DenseAnnealingSampler

__all__ = [
    "DenseAnnealingSampler",
    "DimodSampler",
    "ExactSolver",
    "RoundedSampler",
    "Sampler",
    "Samples",
    "SimulatedAnnealer",
]


def __getattr__(name: str) -> Any:
    if name == "DenseAnnealingSampler":  # a subclass of dimod's, so dimod is needed to define it
        require("dimod", extra="dwave", purpose="DenseAnnealingSampler")
        from annealfit.samplers.dense import DenseAnnealingSampler

        return DenseAnnealingSampler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
