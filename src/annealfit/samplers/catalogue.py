"""Samplers by name, with the settings one would try first: what the command line offers."""

from __future__ import annotations

from collections.abc import Callable

from annealfit.errors import choose, require
from annealfit.samplers.annealer import SimulatedAnnealer
from annealfit.samplers.base import Sampler
from annealfit.samplers.dimod_adapter import DimodSampler
from annealfit.samplers.openjij_adapter import OpenJijSampler
from annealfit.samplers.qpu import QPUSampler
from annealfit.samplers.rounded import RoundedSampler


def _dwave(name: str) -> Callable[[], type]:
    return lambda: getattr(require("dwave.samplers", extra="dwave", purpose=f"D-Wave's {name}"), name)


def _rehearsal(seed: int) -> Sampler:
    require("dwave.system", extra="qpu", purpose="the mock QPU")
    from annealfit.samplers.mock_qpu import MockQPU

    return QPUSampler(MockQPU(seed=seed), backoff_seconds=0.0)  # nobody to wait for


_annealing, _tabu, _descent = map(_dwave, ("SimulatedAnnealingSampler", "TabuSampler", "SteepestDescentSampler"))

# Each is made with a seed, which only a device that is simulated needs: the others take theirs with every problem.
SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "native": lambda seed: SimulatedAnnealer(),
    "rounded": lambda seed: RoundedSampler(),
    "dwave-sa": lambda seed: DimodSampler(_annealing()(), num_sweeps=100),
    "tabu": lambda seed: DimodSampler(_tabu()(), timeout=20),
    "steepest-descent": lambda seed: DimodSampler(_descent()()),
    "openjij": lambda seed: OpenJijSampler(),
    "mock-qpu": _rehearsal,
    "qpu": lambda seed: QPUSampler(),
}


def make_sampler(name: str, seed: int = 0) -> Sampler:
    """The sampler of this name, or an error that lists the names.

    >>> make_sampler("rounded")
    RoundedSampler()
    """
    return SAMPLERS[choose("sampler", name, SAMPLERS)](seed)
