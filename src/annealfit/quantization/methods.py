"""The methods by word, each with those whose answers it starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from annealfit._support.errors import InvalidInputError, choose_or_own
from annealfit.quantization.annealed import Annealed
from annealfit.quantization.classical import GPTQ, Descent, Nearest
from annealfit.quantization.layer_problem import LayerProblem, Rounding
from annealfit.quantization.sampled import Sampled
from annealfit.samplers import LatticeSolver, Sampler


class Method(Protocol):
    """Something that rounds a layer: from nothing, or from the best answer of the methods before it.

    An object of one's own is run after the classical methods and starts from the best of their answers, unless it says
    otherwise: `starts_from_nothing = True`.
    """

    @property
    def name(self) -> str:
        """What errors and seconds are listed under."""

    def improve(self, problem: LayerProblem, start: Rounding | None, seed: int) -> Rounding:
        """An answer. It need not be better than the start: the best one of each output is kept."""


# What all methods but the first two start from: for each output the best of these.
_CLASSICAL: tuple[Method, ...] = (Nearest(), GPTQ(), GPTQ(search=True), Descent())

ROUNDING_METHODS: dict[str, Sequence[Method]] = {
    "nearest": (Nearest(),),
    "gptq": (GPTQ(),),
    "gptq_search": (GPTQ(search=True),),
    "descent": _CLASSICAL,
    "annealed": (*_CLASSICAL, Annealed()),
    "lattice": (*_CLASSICAL, Sampled(LatticeSolver(), rounds=8)),
}


def methods_of(method: Any) -> Sequence[Method]:
    """The methods to run for a word, a sampler, or a method of one's own: the last is the one that was asked for.

    >>> [one.name for one in methods_of("annealed")]
    ['nearest', 'gptq', 'gptq_search', 'descent', 'annealed']
    """
    if isinstance(method, Sampler):
        return (*_CLASSICAL, Sampled(method))
    if isinstance(method, str):
        return choose_or_own("method", method, ROUNDING_METHODS)
    if callable(getattr(method, "sample", None)):
        raise InvalidInputError(f"{method!r} is not an annealfit sampler; wrap dimod's: DimodSampler(it)")
    own: Method = choose_or_own(
        "method", method, {word: chain[-1] for word, chain in ROUNDING_METHODS.items()}, ("improve",)
    )
    return (own,) if getattr(own, "starts_from_nothing", False) else (*_CLASSICAL, own)
