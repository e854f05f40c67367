"""Samplers by word and by description, for the command line, `AnnealedClassifier(sampler=…)` and model files."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from annealfit import samplers  # whose samplers are imported when they are made
from annealfit._support.description import NEUTRAL, TYPE, constructor_arguments, is_plain
from annealfit._support.errors import InvalidInputError, choose, require
from annealfit.samplers.protocol import Sampler


def default_sampler() -> Sampler:
    """Return the sampler of a training that names none."""
    return samplers.LevelAnnealer()


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
    "levels": lambda seed, **settings: samplers.LevelAnnealer(**settings),
    "native": lambda seed, **settings: samplers.SimulatedAnnealer(**settings),
    "rounded": lambda seed, **settings: samplers.RoundedSampler(**settings),
    "greedy": lambda seed, **settings: samplers.GreedyDescent(**settings),
    "lattice": lambda seed, **settings: samplers.LatticeSolver(**settings),
    "dwave-sa": _adapted("dwave.samplers", "SimulatedAnnealingSampler", "dwave", num_sweeps=100),
    "tabu": _adapted("dwave.samplers", "TabuSampler", "dwave", timeout=20),
    "steepest-descent": _adapted("dwave.samplers", "SteepestDescentSampler", "dwave"),
    "openjij": _adapted("openjij", "SASampler", "openjij", num_sweeps=100, num_reads=1),
    "mock-qpu": _mock_qpu,
    "qpu": _qpu,
}


def make_sampler(name: str, seed: int = 0, **settings: Any) -> Sampler:
    """Return the sampler of this name, or raise an error that lists the names.

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
    """Return the sampler that `name` or `name:setting=value,setting=value` describes.

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
    if not inspect.isclass(given) and callable(getattr(given, "sample", None)) and hasattr(given, "parameters"):
        return samplers.DimodSampler(given)
    if inspect.isclass(given):
        raise InvalidInputError(f"sampler is the class {given.__name__}; pass an object of it: {given.__name__}(…)")
    raise InvalidInputError(
        f"sampler is {given!r}; pass an annealfit sampler, one of the words {', '.join(SAMPLERS)}, "
        "or wrap a dimod sampler: DimodSampler(it)"
    )


@contextlib.contextmanager
def opened_sampler(given: Any, seed: int = 0) -> Iterator[Sampler]:
    """Open the sampler that a setting means; a sampler that was made here is closed at the end."""
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


# Samplers that `restore_sampler` makes.
_RESTORED = (
    *("SimulatedAnnealer", "LevelAnnealer", "RoundedSampler", "ExactSolver", "LatticeSolver"),
    *("GreedyDescent", "BlockSampler"),
)


def restore_sampler(description: Mapping[str, Any]) -> Sampler:
    """Return the sampler of this package that `Sampler.describe` described.

    Wrapped samplers of other packages, devices and classes of the user are not made again: a file names no code to
    run, and opens no connection.

    >>> restore_sampler(samplers.SimulatedAnnealer(num_sweeps=20).describe()).num_sweeps
    20
    """
    kind = description.get(TYPE)
    if kind not in _RESTORED:
        raise InvalidInputError(f"{kind} is not one of {', '.join(_RESTORED)}, which can be made from a description")
    # JSON has no tuples; the samplers' pairs and schedules are tuples.
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in description.items()
    }
    try:
        del settings[TYPE]
        known = constructor_arguments(getattr(samplers, kind))  # files of other versions may have other neutral ones
        given = settings.pop(NEUTRAL, {})
        neutral = {name: given[name] for name in known if name in given and is_plain(given[name])}
        if kind == "BlockSampler":
            settings["child"] = restore_sampler(settings["child"])
        return getattr(samplers, kind)(**settings, **neutral)
    except (TypeError, KeyError, AttributeError) as error:
        raise InvalidInputError(f"{description} does not describe a sampler: {error}") from error


def _value(text: str) -> Any:
    """Return the text as a number or truth value if it is one, else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
