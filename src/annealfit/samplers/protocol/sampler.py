"""What a sampler is: problems in, bits out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from annealfit.description import NEUTRAL, TYPE, constructor_arguments, describe, qualified_name
from annealfit.errors import InvalidInputError
from annealfit.problem import QuadraticProblem
from annealfit.samplers.protocol.costs import Preflight
from annealfit.samplers.protocol.samples import Samples

_MISSING = object()  # no setting has this value


class Sampler(ABC):
    """A sampler has one method to implement, `solve`, and its settings are the arguments of its constructor.

    Settings are kept as attributes of the same names. They do not change while a sampler is used; what does is the
    budget of one that is paid for by use.

    >>> import numpy as np
    >>> from annealfit.encoding import Encoding
    >>> class AllOnes(Sampler):
    ...     def solve(self, problems, seeds):
    ...         return [Samples.of(p, np.ones((1, p.n_variables))) for p in problems]
    >>> problem = QuadraticProblem([[1.0]], [-1.0], Encoding(bits=2, range=1.0))
    >>> AllOnes().sample(problem).best_energy
    -1.0
    """

    # Settings that cannot change an answer: a checkpoint may be resumed with others.
    neutral_settings: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        """Sample every problem, in order; there is a seed for each.

        On this computer a problem's seed alone decides its answer, whatever the other problems are. A device that
        takes several problems in one call can use one seed for the call, that of its first problem, and its chance is
        its own. A sampler with a budget raises `BudgetExhaustedError` before a call that the budget has no room for.
        """

    def sample(self, problem: QuadraticProblem, *, seed: int = 0) -> Samples:
        """Sample one problem."""
        return self.solve([problem], [seed])[0]

    def summarise(self, answers: Sequence[Samples]) -> dict[str, float | str]:
        """What the sampler adds to the history's row of an iteration that got these answers: always the same columns.

        Most samplers add nothing; one that is paid for by use says what it cost.
        """
        return {}

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        """What solving these problems would cost; None for a sampler that costs nothing but this computer's time."""
        return None

    def carry_on(self, history: Sequence[Mapping[str, Any]]) -> None:  # noqa: B027 (most samplers have no budget)
        """Take note of the history of a training that is resumed: what it cost so far, say."""

    def prepare(self) -> None:  # noqa: B027 (most samplers are ready)
        """Do what is done once per process, before any clock runs: compile, say."""

    def close(self) -> None:  # noqa: B027 (most samplers hold nothing)
        """Let go of what the sampler holds: a connection, say. Leaving a `with` block does it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name, as scikit-learn's estimators give them; `deep` adds those of a sampler inside."""
        settings = {name: self._setting(name) for name in self._setting_names() if self._setting(name) is not _MISSING}
        for name, value in list(settings.items()) if deep else ():
            if isinstance(value, Sampler):
                settings |= {f"{name}__{inner}": setting for inner, setting in value.get_params().items()}
        return settings

    def set_params(self, **changes: Any) -> Self:
        """Change settings in place, as scikit-learn does in a grid search; all are checked before any is changed.

        >>> from annealfit.samplers import SimulatedAnnealer
        >>> SimulatedAnnealer().set_params(num_reads=8).num_reads
        8
        """
        lost = [name for name in self._setting_names() if self._setting(name) is _MISSING]
        if lost:
            raise InvalidInputError(
                f"{type(self).__name__} keeps its argument {', '.join(lost)} under another name, so it cannot be made "
                "again with other settings; keep every argument as an attribute of the same name"
            )
        own = {name: value for name, value in changes.items() if "__" not in name}
        settings = self.get_params(deep=False) | own
        for name, value in changes.items():
            outer, delimiter, inner = name.partition("__")
            if not delimiter:
                continue
            if not isinstance(settings.get(outer), Sampler):
                raise InvalidInputError(f"{type(self).__name__} has no sampler {outer!r} inside whose {inner} to set")
            settings[outer] = copy.copy(settings[outer]).set_params(**{inner: value})
        self._become(self._remade(settings, own))
        return self

    def describe(self) -> dict[str, Any]:
        """The sampler as plain data: its name and its settings, those apart that cannot change an answer.

        >>> from annealfit.samplers import ExactSolver
        >>> ExactSolver().describe()
        {'type': 'ExactSolver', 'max_variables': 24}
        """
        settings = {name: describe(value) for name, value in self.get_params(deep=False).items()}
        neutral = {name: settings.pop(name) for name in sorted(self.neutral_settings & settings.keys())}
        return {TYPE: qualified_name(type(self)), **settings, **({NEUTRAL: neutral} if neutral else {})}

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in self.get_params(deep=False).items())
        return f"{type(self).__name__}({', '.join(settings)})"

    def __sklearn_clone__(self) -> Self:
        return copy.copy(self)  # whatever it holds, a connection or a budget, is shared

    @classmethod
    def _setting_names(cls) -> list[str]:
        return constructor_arguments(cls)

    def _setting(self, name: str) -> Any:
        return getattr(self, name, getattr(self, f"_{name}", _MISSING))

    def _remade(self, settings: dict[str, Any], changed: dict[str, Any]) -> Self:
        unknown = sorted(set(changed) - set(self._setting_names()))
        if unknown:
            raise InvalidInputError(
                f"{type(self).__name__} has no setting {', '.join(unknown)}; "
                f"it has {', '.join(self._setting_names()) or 'none'}"
            )
        return type(self)(**settings)

    def _become(self, other: Self) -> None:
        own = vars(self)
        own.clear()  # what was worked out from the old settings, too
        own.update(vars(other))
