"""Samplers: what takes quadratic problems and returns bits of low energy.

`protocol` is what a sampler is, `native` has this package's own, `dwave` those of D-Wave's annealers; `dimod_adapter`
and `blocks` make samplers of other samplers, and `catalogue` knows them all by name.
"""

from typing import TYPE_CHECKING, Any

from annealfit._support.errors import require
from annealfit._support.lazy import lazy_exports

if TYPE_CHECKING:
    from annealfit.samplers.blocks import BlockSampler as BlockSampler
    from annealfit.samplers.dimod_adapter import DimodSampler as DimodSampler
    from annealfit.samplers.dwave.mock_qpu import MockQPU as MockQPU
    from annealfit.samplers.dwave.qpu import QPUSampler as QPUSampler
    from annealfit.samplers.native.annealer import SimulatedAnnealer as SimulatedAnnealer
    from annealfit.samplers.native.dense import DenseAnnealingSampler as DenseAnnealingSampler
    from annealfit.samplers.native.exact import ExactSolver as ExactSolver
    from annealfit.samplers.native.exact import RoundedSampler as RoundedSampler
    from annealfit.samplers.native.greedy import GreedyDescent as GreedyDescent
    from annealfit.samplers.native.lattice import LatticeSolver as LatticeSolver
    from annealfit.samplers.native.levels import LevelAnnealer as LevelAnnealer
    from annealfit.samplers.protocol import Sampler as Sampler
    from annealfit.samplers.protocol import Samples as Samples
    from annealfit.samplers.protocol import SolveInfo as SolveInfo

_MODULES = {
    "BlockSampler": "blocks",
    "DenseAnnealingSampler": "native.dense",
    "DimodSampler": "dimod_adapter",
    "ExactSolver": "native.exact",
    "GreedyDescent": "native.greedy",
    "LatticeSolver": "native.lattice",
    "LevelAnnealer": "native.levels",
    "MockQPU": "dwave.mock_qpu",
    "QPUSampler": "dwave.qpu",
    "RoundedSampler": "native.exact",
    "Sampler": "protocol",
    "Samples": "protocol",
    "SimulatedAnnealer": "native.annealer",
    "SolveInfo": "protocol",
}
__all__ = list(_MODULES)
_get, __dir__ = lazy_exports(__name__, _MODULES)

# Subclasses of dimod's samplers, so dimod is needed to define them: the extra, and the package that it brings.
_DEFINED_WITH_DIMOD = {"DenseAnnealingSampler": ("dwave", "dimod"), "MockQPU": ("qpu", "dwave.system")}


def __getattr__(name: str) -> Any:
    if name in _DEFINED_WITH_DIMOD:
        extra, needed = _DEFINED_WITH_DIMOD[name]
        require(needed, extra=extra, purpose=name)
    return _get(name)
