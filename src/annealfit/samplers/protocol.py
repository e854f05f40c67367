"""The sampler protocol: problems in, `Samples` out, and the checks of answers. Training knows samplers by it alone."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from annealfit._support.errors import InvalidInputError, SamplerError
from annealfit._support.settings import Settings
from annealfit.problems.problem import Problems, QuadraticProblem


@dataclass(frozen=True)
class Preflight:
    """The estimated cost of solving some problems once on a device; nothing has been submitted."""

    calls: int
    qubits: int  # of the largest call
    longest_chain: int
    access_seconds: float
    unresolved_share: float  # of the couplings: below the published analog error, in the worst problem

    @classmethod
    def of_all(cls, parts: Sequence[Preflight]) -> Preflight:
        """Return the cost of solving parts one after another: sums of costs, the worst of each limit."""
        return cls(
            calls=sum(part.calls for part in parts),
            qubits=max(part.qubits for part in parts),
            longest_chain=max(part.longest_chain for part in parts),
            access_seconds=sum(part.access_seconds for part in parts),
            unresolved_share=max(part.unresolved_share for part in parts),
        )


class SolveInfo(TypedDict, total=False):
    """The entries of `Samples.info` that samplers of this package write; seconds are those of the whole solve."""

    preprocessing_seconds: float
    sampling_seconds: float
    # annealers
    num_sweeps: int  # done, which is fewer than asked where the anneal ended early
    beta_range: tuple[float, float]  # inverse temperatures of the first and the last sweep, in units of energy
    # a search for the proven optimum
    proven: bool  # whether no bits have a lower energy than the answer
    gap: float  # by how much the answer can be above the optimum at most; 0 if it is proven
    lower_bound: float
    nodes: int  # how many times the search set a parameter to a level
    # what the coefficients were divided by before they went to a dimod sampler or a device
    coefficient_scale: float
    # a device
    chain_strength: float  # in the device's units
    raw_energy: float  # the best read's before polishing
    receipt: Any  # calls, cost and faults (`dwave.call_queue.Receipt`), shared by the problems of one solve
    # a problem that was solved in blocks: the answers of its blocks, in turn
    blocks: tuple[Samples, ...]


@dataclass(frozen=True, eq=False)
class Samples:
    """The reads of one problem, with energies that `Samples.of` computes from the bits.

    A sampler that could not solve a problem, and whose next try might, answers with `Samples.failed`.
    """

    bits: NDArray[np.uint8]  # (reads, D, K)
    energies: NDArray[np.float64]  # (reads,)
    info: Mapping[str, Any] = field(default_factory=dict)  # see `SolveInfo`
    failure: str | None = None  # why there are no reads

    @classmethod
    def of(cls, problem: QuadraticProblem, bits: ArrayLike, info: Mapping[str, Any] | None = None) -> Samples:
        """Check the bits of shape (reads, D, K) or (reads, D·K) and compute their energies."""
        try:
            given = np.asarray(bits)
            if given.ndim == 2:  # flat; said here, because with one parameter the shapes look alike
                given = given.reshape(len(given), problem.n_parameters, problem.encoding.bits)
            checked = problem.as_bits(given)
        except (InvalidInputError, TypeError, ValueError) as error:
            raise SamplerError(f"the sampler returned something that is not bits: {error}") from error
        if checked.ndim != 3 or len(checked) == 0:
            raise SamplerError(
                f"the sampler returned {'no reads' if checked.ndim == 3 else f'an array of shape {checked.shape}'}; "
                f"expected (reads, {problem.n_parameters}, {problem.encoding.bits}) with at least one read"
            )
        return cls(checked, problem.energy(checked), info or {})

    @classmethod
    def failed(cls, problem: QuadraticProblem, reason: str, info: Mapping[str, Any] | None = None) -> Samples:
        """Return an answer without reads, with the reason. Training keeps the problem's weights and continues."""
        none = np.empty((0, problem.n_parameters, problem.encoding.bits), dtype=np.uint8)
        return cls(none, np.empty(0), info or {}, reason)

    @property
    def best_bits(self) -> NDArray[np.uint8]:
        """The bits of lowest energy, shape (D, K)."""
        return self.bits[self._best]

    @property
    def best_energy(self) -> float:
        """The lowest energy."""
        return float(self.energies[self._best])

    @property
    def _best(self) -> int:
        if self.failure is not None:
            raise SamplerError(f"the problem was not solved: {self.failure}")
        return int(self.energies.argmin()) if len(self.energies) > 1 else 0


class Sampler(Settings, ABC):
    """A sampler has one method to implement, `solve`, and its settings are the arguments of its constructor.

    Settings are kept as attributes of the same names and never change: `set_params` returns another sampler. What
    changes is the budget of a sampler that is paid for by use.

    >>> import numpy as np
    >>> from annealfit.problems.encoding import Encoding
    >>> class AllOnes(Sampler):
    ...     def solve(self, problems, seeds):
    ...         return [Samples.of(p, np.ones((1, p.n_variables))) for p in problems]
    >>> problem = QuadraticProblem([[1.0]], [-1.0], Encoding(bits=2, range=1.0))
    >>> AllOnes().sample(problem).best_energy
    -1.0
    """

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
        """Return columns for the history's row of the iteration that got these answers: always the same columns."""
        return {}

    @property
    def has_preflight(self) -> bool:
        """Whether `preflight` can return a cost; if not, training builds no problems for it."""
        return type(self).preflight is not Sampler.preflight

    def preflight(self, problems: Sequence[QuadraticProblem]) -> Preflight | None:
        """Return the cost of solving these problems on a device; None for a sampler without one."""
        return None

    def restore_usage(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Restore the cost so far from the history of a training that is resumed."""

    def prepare(self) -> None:
        """Load or compile code, once per process, before a clock starts."""

    def close(self) -> None:
        """Close connections. Leaving a `with` block calls it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


# Exceptions of optional packages, by their modules: an error is one of them only if its package is loaded.
_API, _CLIENT = "dwave.cloud.api.exceptions", "dwave.cloud.exceptions"
_PERMANENT = tuple(f"Resource{what}Error" for what in ("Authentication", "AccessForbidden", "NotFound", "BadRequest"))
_TRANSIENT = "PollingTimeout", "CanceledFutureError", "ProblemUploadError"


def is_transient(error: BaseException) -> bool:
    """Whether a retry can help: after time-outs and network errors, not after bad requests or missing rights.

    >>> is_transient(TimeoutError("no answer")), is_transient(FileNotFoundError("no such file"))
    (True, False)
    """
    if _is_one(error, _API, *_PERMANENT) or is_refusal(error):
        return False
    of_others = _is_one(error, "requests.exceptions", "RequestException") or _is_one(error, _CLIENT, *_TRANSIENT)
    return of_others or isinstance(error, (ConnectionError, TimeoutError))


def is_refusal(error: BaseException) -> bool:
    """Whether the solver declined the problem itself; it will decline it again."""
    return _is_one(error, _CLIENT, "SolverFailureError") and not _is_one(error, _CLIENT, "SolverOfflineError")


def _is_one(error: BaseException, module: str, *names: str) -> bool:
    loaded = sys.modules.get(module)
    return isinstance(error, tuple(getattr(loaded, name) for name in names if hasattr(loaded, name)))


def solve_checked(sampler: Sampler, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
    """The sampler's answers, checked: one per problem, of the right shape, bits and nothing else.

    A transient error becomes failed answers. Any other error is a `SamplerError`.
    """
    try:
        answers = sampler.solve(problems, seeds)
    except SamplerError:  # it says itself what is wrong; a spent budget among others
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if is_transient(error):
            return [Samples.failed(problem, reason) for problem in problems]
        raise SamplerError(f"{type(sampler).__name__} raised {reason}") from error
    check_answers(f"{type(sampler).__name__} answered", problems, answers)
    return answers


def check_answers(source: str, problems: Sequence[QuadraticProblem], answers: Any) -> None:
    """Raise a `SamplerError` that begins with `source` unless there is a well-formed answer to every problem."""
    if not isinstance(answers, Sequence) or not all(isinstance(answer, Samples) for answer in answers):
        raise SamplerError(f"{source} with {answers!r}; expected a list of Samples, one for each problem")
    if len(answers) != len(problems):
        raise SamplerError(f"{source} {len(answers)} of {len(problems)} problems")
    if isinstance(problems, Problems):
        shapes = [(problems.n_parameters, problems.bits)] * len(problems)
    else:
        shapes = [(problem.n_parameters, problem.encoding.bits) for problem in problems]
    for answer, expected in zip(answers, shapes, strict=True):
        bits, energies = answer.bits, answer.energies
        if not isinstance(bits, np.ndarray) or not isinstance(energies, np.ndarray):
            raise SamplerError(f"{source} with bits or energies that are no arrays; Samples.of makes them")
        shape = bits.shape
        if shape[1:] != expected or (shape[0] == 0 and answer.failure is None):
            raise SamplerError(
                f"{source} with bits of shape {shape}; "
                f"expected (reads, {expected[0]}, {expected[1]}) with at least one read"
            )
        if energies.shape != shape[:1]:
            raise SamplerError(f"{source} with {len(bits)} reads and {energies.size} energies")
    # Of all at once: it is done at every iteration.
    if not np.isfinite(np.concatenate([answer.energies for answer in answers])).all():
        raise SamplerError(f"{source} with energies that are not finite; Samples.of computes them")
    values = np.concatenate([answer.bits for answer in answers], axis=None)
    if not (values.max(initial=0) <= 1 if values.dtype == np.uint8 else np.isin(values, (0, 1)).all()):
        raise SamplerError(f"{source} with bits other than 0 and 1; for spins use (1 + spin) / 2")
