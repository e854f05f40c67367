"""Samplers: what takes a quadratic problem and returns bits of low energy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from annealfit.errors import require
from annealfit.samplers.annealer import SimulatedAnnealer
from annealfit.samplers.base import Sampler, Samples
from annealfit.samplers.blocks import BlockSampler
from annealfit.samplers.dimod_adapter import DimodSampler
from annealfit.samplers.exact import ExactSolver
from annealfit.samplers.openjij_adapter import OpenJijSampler
from annealfit.samplers.qpu import QPUSampler
from annealfit.samplers.rounded import RoundedSampler

if TYPE_CHECKING:
    from annealfit.samplers.dense import DenseAnnealingSampler
    from annealfit.samplers.mock_qpu import MockQPU

__all__ = [
    "BlockSampler",
    "DenseAnnealingSampler",
    "DimodSampler",
    "ExactSolver",
    "MockQPU",
    "OpenJijSampler",
    "QPUSampler",
    "RoundedSampler",
    "Sampler",
    "Samples",
    "SimulatedAnnealer",
]


# Subclasses of dimod's samplers, so dimod is needed to define them: module and extra.
_DEFINED_WITH_DIMOD = {"DenseAnnealingSampler": ("dense", "dwave"), "MockQPU": ("mock_qpu", "qpu")}
_NEEDED = {"dwave": "dimod", "qpu": "dwave.system"}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_WITH_DIMOD:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _DEFINED_WITH_DIMOD[name]
    require(_NEEDED[extra], extra=extra, purpose=name)
    return getattr(import_module(f"annealfit.samplers.{module}"), name)
