"""Samplers: what takes quadratic problems and returns bits of low energy.

`protocol` is what a sampler is, `native` the engine of our own, `dwave` the way to an annealer, `adapters` make
samplers of other samplers, and `catalogue` knows them all by name.
"""

from typing import TYPE_CHECKING, Any

from annealfit._support.errors import require
from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.samplers.blocks import BlockSampler
    from annealfit.samplers.dimod_adapter import DimodSampler
    from annealfit.samplers.dwave.mock_qpu import MockQPU
    from annealfit.samplers.dwave.qpu import QPUSampler
    from annealfit.samplers.native.annealer import SimulatedAnnealer
    from annealfit.samplers.native.dense import DenseAnnealingSampler
    from annealfit.samplers.native.exact import ExactSolver, RoundedSampler
    from annealfit.samplers.native.lattice import LatticeSolver
    from annealfit.samplers.native.levels import LevelAnnealer
    from annealfit.samplers.protocol import Sampler, Samples, SolveInfo

__all__ = [
    "BlockSampler",
    "DenseAnnealingSampler",
    "DimodSampler",
    "ExactSolver",
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

_get, __dir__ = lazy_exports(
    __name__,
    {
        "BlockSampler": "blocks",
        "DenseAnnealingSampler": "native.dense",
        "DimodSampler": "dimod_adapter",
        "ExactSolver": "native.exact",
        "LatticeSolver": "native.lattice",
        "LevelAnnealer": "native.levels",
        "MockQPU": "dwave.mock_qpu",
        "QPUSampler": "dwave.qpu",
        "RoundedSampler": "native.exact",
        "Sampler": "protocol",
        "Samples": "protocol",
        "SimulatedAnnealer": "native.annealer",
        "SolveInfo": "protocol",
    },
)

# Subclasses of dimod's samplers, so dimod is needed to define them: the extra, and the package that it brings.
_DEFINED_WITH_DIMOD = {"DenseAnnealingSampler": ("dwave", "dimod"), "MockQPU": ("qpu", "dwave.system")}


def __getattr__(name: str) -> Any:
    if name in _DEFINED_WITH_DIMOD:
        extra, needed = _DEFINED_WITH_DIMOD[name]
        require(needed, extra=extra, purpose=name)
    return _get(name)
