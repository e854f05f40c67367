"""Samplers by word and by description, for the command line, `AnnealedClassifier(sampler=…)` and model files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from annealfit import samplers  # whose samplers are imported when they are made
from annealfit._support.description import NEUTRAL, TYPE, constructor_arguments, describe
from annealfit._support.errors import InvalidInputError, choose, require
from annealfit.samplers.protocol import Sampler


def default_sampler() -> Sampler:
    """Return the sampler of a training that names none."""
    return samplers.LevelAnnealer()


def _own(name: str) -> Callable[..., Sampler]:
    """Return a maker of a sampler of this package; settings that it does not have are refused by `set_params`."""
    return lambda seed, **settings: getattr(samplers, name)().set_params(**settings)


def _adapted(module: str, name: str, extra: str, **usual: Any) -> Callable[..., Sampler]:
    """Return a maker of a `DimodSampler` around a dimod sampler of another package."""

    def make(seed: int, **settings: Any) -> Sampler:
        child = getattr(require(module, extra=extra, purpose=f"the sampler {name}"), name)()
        return samplers.DimodSampler(child, **{**usual, **settings})

    return make


def _mock_qpu(
    seed: int, *, topology: str = "P16", defects: float = 0.0, faults: float = 0.0, **settings: Any
) -> Sampler:
    device = samplers.MockQPU(topology, defects=defects, faults=faults, seed=seed)
    return samplers.QPUSampler(device, **{"backoff_seconds": 0.0, **settings})  # a mock has no queue to wait for


def _qpu(seed: int, **settings: Any) -> Sampler:
    if "max_access_seconds" not in settings:
        raise InvalidInputError(
            "the sampler qpu spends QPU access time; say how much, as in qpu:max_access_seconds=10 "
            "(rehearse with mock-qpu, which estimates it)"
        )
    return samplers.QPUSampler(**settings)


# Makers of samplers from a seed and settings. Only a simulated device needs the seed: the others get one per problem.
SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "levels": _own("LevelAnnealer"),
    "native": _own("SimulatedAnnealer"),
    "rounded": _own("RoundedSampler"),
    "greedy": _own("GreedyDescent"),
    "lattice": _own("LatticeSolver"),
    "dwave-sa": _adapted("dwave.samplers", "SimulatedAnnealingSampler", "dwave", num_sweeps=100),
    "tabu": _adapted("dwave.samplers", "TabuSampler", "dwave", timeout=20),
    "steepest-descent": _adapted("dwave.samplers", "SteepestDescentSampler", "dwave"),
    "openjij": _adapted("openjij", "SASampler", "openjij", num_sweeps=100, num_reads=1),
    "mock-qpu": _mock_qpu,
    "qpu": _qpu,
}


def make_sampler(text: str, seed: int = 0, **settings: Any) -> Sampler:
    """Return the sampler that `name` or `name:setting=value,setting=value` describes, with these further settings.

    >>> make_sampler("rounded"), make_sampler("native:num_sweeps=20", num_reads=4).num_sweeps
    (RoundedSampler(), 20)
    """
    name, _, rest = text.partition(":")
    for part in filter(None, rest.split(",")):
        setting, equals, value = part.partition("=")
        if not equals or not setting or not value:
            raise InvalidInputError(f"sampler is {text!r}; write settings as in mock-qpu:topology=Z12,num_reads=50")
        try:
            settings[setting.strip()] = json.loads(value.lower())  # a number or a truth value
        except ValueError:
            settings[setting.strip()] = value.strip()
    return SAMPLERS[choose("sampler", name, SAMPLERS)](seed, **settings)


def resolve_sampler(given: Any, seed: int = 0) -> Sampler:
    """Return the sampler of a setting: a sampler, any dimod sampler, a word (with settings), or None for the default.

    >>> resolve_sampler("rounded"), resolve_sampler(None).num_sweeps
    (RoundedSampler(), 3)
    """
    if given is None or isinstance(given, str):
        return default_sampler() if given is None else make_sampler(given, seed)
    return given if isinstance(given, Sampler) else samplers.DimodSampler(given)


@contextlib.contextmanager
def opened_sampler(given: Any, seed: int = 0) -> Iterator[Sampler]:
    """Open the sampler of a setting; a sampler that was made here is closed at the end."""
    if isinstance(given, str) and (given.partition(":")[0] == "qpu" or "max_access_seconds" in given):
        raise InvalidInputError(
            f"sampler is {given!r}, and a word is made anew at every fit, with a budget of its own; pass an object, "
            "QPUSampler(max_access_seconds=…), whose budget all fits and all clones share"
        )
    sampler = resolve_sampler(given, seed)
    try:
        yield sampler
    finally:
        if sampler is not given:
            sampler.close()


# What `restore_sampler` makes: samplers of this package, and of other packages those without settings of their own.
_OWN = frozenset(samplers.__all__) - {"DenseAnnealingSampler", "Sampler", "Samples", "SolveInfo"}
_OF_OTHERS = {
    "dwave.samplers": (
        *("SimulatedAnnealingSampler", "TabuSampler", "SteepestDescentSampler", "PathIntegralAnnealingSampler"),
        *("RotorModelAnnealingSampler", "RandomSampler", "TreeDecompositionSampler", "TreeDecompositionSolver"),
    ),
    "dimod": ("ExactSolver",),
    "openjij": ("SASampler",),
    "annealfit.samplers": ("DenseAnnealingSampler",),
}


def restore_sampler(description: Mapping[str, Any]) -> Sampler:
    """Return the sampler that `Sampler.describe` described.

    A file names no code to run: only samplers in the tables above are made again, and no connection is opened.

    >>> restore_sampler(samplers.SimulatedAnnealer(num_sweeps=20).describe()).num_sweeps
    20
    """
    try:
        found = _restored(description)
    except (TypeError, KeyError, AttributeError) as error:
        raise InvalidInputError(f"{description} does not describe a sampler: {error}") from error
    if not isinstance(found, Sampler):
        raise InvalidInputError(f"{description} does not describe a sampler")
    return found


def _restored(value: Any) -> Any:
    """Return a setting as it was before it was described; JSON has lists in place of tuples."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, Mapping) or TYPE not in value:
        return value
    kind = value[TYPE]
    if kind not in _OWN:
        name = kind.rpartition(".")[2]
        module = next((module for module, names in _OF_OTHERS.items() if name in names), None)
        extra = "openjij" if module == "openjij" else "dwave"
        made = getattr(require(module, extra=extra, purpose=name), name)() if module else None
        if describe(made) != value:  # another class of that name, or one with settings of its own
            raise InvalidInputError(f"{value} cannot be made from its description")
        return made
    if kind == "QPUSampler" and not isinstance(value["device"], Mapping):
        raise InvalidInputError(f"no connection to {value['device']} is opened by a file; pass a QPUSampler")
    known = constructor_arguments(getattr(samplers, kind))  # files of other versions may have other neutral settings
    neutral = {
        name: setting
        for name, setting in value.get(NEUTRAL, {}).items()
        if name in known and not (isinstance(setting, Mapping) and TYPE in setting)
    }
    settings = {name: setting for name, setting in {**value, **neutral}.items() if name not in (TYPE, NEUTRAL)}
    return getattr(samplers, kind)(**{name: _restored(setting) for name, setting in settings.items()})
