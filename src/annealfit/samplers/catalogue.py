"""Samplers by name, with the settings one would try first: what the command line offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from annealfit.errors import InvalidInputError, choose, require
from annealfit.samplers.annealer import SimulatedAnnealer
from annealfit.samplers.base import Sampler
from annealfit.samplers.dimod_adapter import DimodSampler
from annealfit.samplers.openjij_adapter import OpenJijSampler
from annealfit.samplers.qpu import QPUSampler
from annealfit.samplers.rounded import RoundedSampler


def _of_dwave(name: str, **usual: Any) -> Callable[..., Sampler]:
    def make(seed: int, **settings: Any) -> Sampler:
        samplers = require("dwave.samplers", extra="dwave", purpose=f"D-Wave's {name}")
        return DimodSampler(getattr(samplers, name)(), **{**usual, **settings})

    return make


def _rehearsal(
    seed: int, *, topology: str = "P16", defects: float = 0.0, faults: float = 0.0, **settings: Any
) -> Sampler:
    require("dwave.system", extra="qpu", purpose="the mock QPU")
    from annealfit.samplers.mock_qpu import MockQPU

    device = MockQPU(topology, defects=defects, faults=faults, seed=seed)
    return QPUSampler(device, **{"backoff_seconds": 0.0, **settings})  # there is nobody to wait for


# Each is made with a seed, which only a device that is simulated needs (the others get theirs with every problem),
# and with settings of its own.
SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "native": lambda seed, **settings: SimulatedAnnealer(**settings),
    "rounded": lambda seed, **settings: RoundedSampler(**settings),
    "dwave-sa": _of_dwave("SimulatedAnnealingSampler", num_sweeps=100),
    "tabu": _of_dwave("TabuSampler", timeout=20),
    "steepest-descent": _of_dwave("SteepestDescentSampler"),
    "openjij": lambda seed, **settings: OpenJijSampler(**settings),
    "mock-qpu": _rehearsal,
    "qpu": lambda seed, **settings: QPUSampler(**settings),
}


def make_sampler(name: str, seed: int = 0, **settings: Any) -> Sampler:
    """The sampler of this name, or an error that lists the names.

    >>> make_sampler("rounded")
    RoundedSampler()
    """
    make = SAMPLERS[choose("sampler", name, SAMPLERS)]
    try:
        return make(seed, **settings)
    except TypeError as error:
        raise InvalidInputError(f"the sampler {name} cannot be made with {settings}: {error}") from error


def parse_sampler(text: str, seed: int = 0) -> Sampler:
    """The sampler that `name` or `name:setting=value,setting=value` describes.

    >>> parse_sampler("native:num_sweeps=20,num_reads=4").num_sweeps
    20
    """
    name, _, rest = text.partition(":")
    settings = {}
    for part in filter(None, rest.split(",")):
        setting, equals, value = part.partition("=")
        if not equals or not setting or not value:
            raise InvalidInputError(f"sampler is {text!r}; write settings as in mock-qpu:topology=Z12,num_reads=50")
        settings[setting.strip()] = _value(value.strip())
    return make_sampler(name, seed, **settings)


def _value(text: str) -> Any:
    """A number or truth value if it reads as one, else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
