"""Samplers by word and by description: the words of the command line and of `AnnealedClassifier(sampler=…)`."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from annealfit import samplers  # whose samplers are imported when they are made
from annealfit._support.description import NEUTRAL, TYPE, describe, is_plain
from annealfit._support.errors import InvalidInputError, choose, require
from annealfit.samplers.protocol import Sampler


def default_sampler() -> Sampler:
    """What solves the problems where nothing else is asked for."""
    return samplers.LevelAnnealer()


def _of_dwave(name: str, **usual: Any) -> Callable[..., Sampler]:
    def make(seed: int, **settings: Any) -> Sampler:
        theirs = require("dwave.samplers", extra="dwave", purpose=f"D-Wave's {name}")
        return samplers.DimodSampler(getattr(theirs, name)(), **{**usual, **settings})

    return make


def _openjij(seed: int, **settings: Any) -> Sampler:
    openjij = require("openjij", extra="openjij", purpose="openjij's simulated annealing")
    return samplers.DimodSampler(openjij.SASampler(), **{"num_sweeps": 100, "num_reads": 1, **settings})


def _rehearsal(
    seed: int, *, topology: str = "P16", defects: float = 0.0, faults: float = 0.0, **settings: Any
) -> Sampler:
    device = samplers.MockQPU(topology, defects=defects, faults=faults, seed=seed)
    return samplers.QPUSampler(device, **{"backoff_seconds": 0.0, **settings})  # there is nobody to wait for


def _qpu(seed: int, **settings: Any) -> Sampler:
    if "max_access_seconds" not in settings:
        raise InvalidInputError(
            "the sampler qpu spends QPU access time; say how much, as in qpu:max_access_seconds=10 "
            "(rehearse with mock-qpu, which estimates it)"
        )
    return samplers.QPUSampler(**settings)


# Each is made with a seed, which only a device that is simulated needs (the others get theirs with every problem),
# and with settings of its own.
SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "levels": lambda seed, **settings: samplers.LevelAnnealer(**settings),
    "native": lambda seed, **settings: samplers.SimulatedAnnealer(**settings),
    "rounded": lambda seed, **settings: samplers.RoundedSampler(**settings),
    "lattice": lambda seed, **settings: samplers.LatticeSolver(**settings),
    "dwave-sa": _of_dwave("SimulatedAnnealingSampler", num_sweeps=100),
    "tabu": _of_dwave("TabuSampler", timeout=20),
    "steepest-descent": _of_dwave("SteepestDescentSampler"),
    "openjij": _openjij,
    "mock-qpu": _rehearsal,
    "qpu": _qpu,
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
        known = ""
        with contextlib.suppress(InvalidInputError, TypeError):
            known = f"; it has {', '.join(make(seed).get_params(deep=False))}"
        raise InvalidInputError(f"the sampler {name} cannot be made with {settings}: {error}{known}") from error


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


def resolve_sampler(given: Any, seed: int = 0) -> Sampler:
    """The sampler that a setting means: a sampler itself, a word (with settings), or None for the default.

    >>> resolve_sampler("rounded"), resolve_sampler(None).num_sweeps
    (RoundedSampler(), 3)
    """
    if given is None:
        return default_sampler()
    if isinstance(given, str):
        return parse_sampler(given, seed)
    if isinstance(given, Sampler):
        return given
    if inspect.isclass(given):
        raise InvalidInputError(f"sampler is the class {given.__name__}; pass an object of it: {given.__name__}(…)")
    raise InvalidInputError(
        f"sampler is {given!r}; pass an annealfit sampler, one of the words {', '.join(SAMPLERS)}, "
        "or wrap a dimod sampler: DimodSampler(it)"
    )


@contextlib.contextmanager
def opened_sampler(given: Any, seed: int = 0) -> Iterator[Sampler]:
    """The sampler that a setting means; one that was made here is closed in the end."""
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


def restore_sampler(description: Mapping[str, Any]) -> Sampler:
    """The sampler that `Sampler.describe` described.

    Only samplers of this package, around dimod samplers of D-Wave's and openjij's packages, are made again: a file
    cannot name code to run. A connection to a real device is not opened either.

    >>> restore_sampler(samplers.SimulatedAnnealer(num_sweeps=20).describe()).num_sweeps
    20
    """
    told = {name: _unlisted(value) for name, value in description.items() if name not in (TYPE, NEUTRAL)}
    settings = {**told, **{name: value for name, value in description.get(NEUTRAL, {}).items() if is_plain(value)}}
    kind = description.get(TYPE)
    if kind not in _RESTORED:
        raise InvalidInputError(f"{kind} is not one of {', '.join(_RESTORED)}, which can be made from a description")
    try:
        return _RESTORED[kind](settings)
    except (TypeError, KeyError) as error:
        raise InvalidInputError(f"{description} does not describe a sampler: {error}") from error


def _restore_dimod(settings: dict[str, Any]) -> Sampler:
    child = settings.pop("child")
    if isinstance(child, Mapping) and child.get(TYPE) in _DIMOD_SAMPLERS:
        module, name, extra = _DIMOD_SAMPLERS[child[TYPE]]
        made = getattr(require(module, extra=extra, purpose=name), name)()
        if describe(made) == child:  # it had no settings but the usual ones
            return samplers.DimodSampler(made, **settings)
    raise InvalidInputError(f"the dimod sampler {child} cannot be made from its description")


def _restore_qpu(settings: dict[str, Any]) -> Sampler:
    device = settings.pop("device")
    if not isinstance(device, Mapping):
        raise InvalidInputError(f"a connection to {device} is not opened by itself; connect again: QPUSampler(…)")
    chip = {name: value for name, value in device.items() if name not in (TYPE, NEUTRAL)}
    return samplers.QPUSampler(samplers.MockQPU(**chip, **device.get(NEUTRAL, {})), **settings)


_RESTORED: dict[str, Callable[[dict[str, Any]], Sampler]] = {
    "SimulatedAnnealer": lambda settings: samplers.SimulatedAnnealer(**settings),
    "LevelAnnealer": lambda settings: samplers.LevelAnnealer(**settings),
    "RoundedSampler": lambda settings: samplers.RoundedSampler(**settings),
    "ExactSolver": lambda settings: samplers.ExactSolver(**settings),
    "LatticeSolver": lambda settings: samplers.LatticeSolver(**settings),
    "BlockSampler": lambda settings: samplers.BlockSampler(**{**settings, "child": restore_sampler(settings["child"])}),
    "DimodSampler": _restore_dimod,
    "QPUSampler": _restore_qpu,
}

# dimod samplers that are made without arguments, by what `describe` calls them: module, name and extra.
_DIMOD_SAMPLERS = {
    f"dwave.samplers.{module}.{name}": ("dwave.samplers", name, "dwave")
    for module, name in (
        ("sa.sampler", "SimulatedAnnealingSampler"),
        ("sqa.sampler", "PathIntegralAnnealingSampler"),
        ("sqa.sampler", "RotorModelAnnealingSampler"),
        ("tabu.sampler", "TabuSampler"),
        ("greedy.sampler", "SteepestDescentSampler"),
        ("random.sampler", "RandomSampler"),
        ("tree.samplers", "TreeDecompositionSampler"),
        ("tree.samplers", "TreeDecompositionSolver"),
    )
} | {
    "dimod.reference.samplers.exact_solver.ExactSolver": ("dimod", "ExactSolver", "dwave"),
    "openjij.sampler.sa_sampler.SASampler": ("openjij", "SASampler", "openjij"),
    "DenseAnnealingSampler": ("annealfit.samplers", "DenseAnnealingSampler", "dwave"),
}


def _unlisted(value: Any) -> Any:
    """JSON has no tuples; the samplers' pairs and schedules are."""
    return tuple(value) if isinstance(value, list) else value


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
