"""Samplers: what takes quadratic problems and returns bits of low energy.

`protocol` is what a sampler is, `native` the engine of our own, `dwave` the way to an annealer, `adapters` make
samplers of other samplers, and `catalogue` knows them all by name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from annealfit.errors import require
from annealfit.samplers.adapters.blocks import BlockSampler
from annealfit.samplers.adapters.dimod_adapter import DimodSampler
from annealfit.samplers.dwave.qpu import QPUSampler
from annealfit.samplers.native.annealer import SimulatedAnnealer
from annealfit.samplers.native.exact import ExactSolver
from annealfit.samplers.native.lattice import LatticeProgress, LatticeSolver
from annealfit.samplers.native.level_annealer import LevelAnnealer
from annealfit.samplers.native.rounded import RoundedSampler
from annealfit.samplers.protocol import Sampler, Samples, SolveInfo

if TYPE_CHECKING:
    from annealfit.samplers.dwave.mock_qpu import MockQPU
    from annealfit.samplers.native.dense import DenseAnnealingSampler

__all__ = [
    "BlockSampler",
    "DenseAnnealingSampler",
    "DimodSampler",
    "ExactSolver",
    "LatticeProgress",
    "LatticeSolver",
    "LevelAnnealer",
    "MockQPU",
    "QPUSampler",
    "RoundedSampler",
    "Sampler",
    "Samples",
    "SimulatedAnnealer",
    "SolveInfo",
]


# Subclasses of dimod's samplers, so dimod is needed to define them: module, extra, and the package that it brings.
_DEFINED_WITH_DIMOD = {
    "DenseAnnealingSampler": ("native.dense", "dwave", "dimod"),
    "MockQPU": ("dwave.mock_qpu", "qpu", "dwave.system"),
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_WITH_DIMOD:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra, needed = _DEFINED_WITH_DIMOD[name]
    require(needed, extra=extra, purpose=name)
    return getattr(import_module(f"annealfit.samplers.{module}"), name)
