"""Asking a sampler: what comes back is an answer to every problem, or an error that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit.errors import SamplerError
from annealfit.problem import QuadraticProblem
from annealfit.problems import Problems
from annealfit.samplers.protocol.faults import is_passing
from annealfit.samplers.protocol.sampler import Sampler
from annealfit.samplers.protocol.samples import Samples


def ask(sampler: Sampler, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
    """The sampler's answers, checked: one per problem, of the right shape, bits and nothing else.

    A failure that can pass (the network's) becomes failed answers. Any other error is a `SamplerError`.
    """
    try:
        answers = sampler.solve(problems, seeds)
    except SamplerError:  # it says itself what is wrong; a spent budget among others
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if is_passing(error):
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
    for answer, expected in zip(answers, _expected_shapes(problems), strict=True):
        bits, energies = answer.bits, answer.energies
        if not isinstance(bits, np.ndarray) or not isinstance(energies, np.ndarray):
            raise SamplerError(f"{source} with bits or energies that are no arrays; Samples.of makes them")
        if bits.ndim != 3 or bits.shape[1:] != expected or (len(bits) == 0 and answer.failure is None):
            raise SamplerError(
                f"{source} with bits of shape {bits.shape}; "
                f"expected (reads, {expected[0]}, {expected[1]}) with at least one read"
            )
        if energies.shape != bits.shape[:1]:
            raise SamplerError(f"{source} with {len(bits)} reads and {energies.size} energies")
    # Of all at once: it is done at every iteration.
    if not np.isfinite(np.concatenate([answer.energies for answer in answers])).all():
        raise SamplerError(f"{source} with energies that are not finite; Samples.of computes them")
    if not _are_bits(np.concatenate([answer.bits for answer in answers], axis=None)):
        raise SamplerError(f"{source} with bits other than 0 and 1; for spins use (1 + spin) / 2")


def _expected_shapes(problems: Sequence[QuadraticProblem]) -> list[tuple[int, int]]:
    if isinstance(problems, Problems):
        return [(problems.n_parameters, problems.bits)] * len(problems)
    return [(problem.n_parameters, problem.encoding.bits) for problem in problems]


def _are_bits(values: NDArray[Any]) -> bool:
    return values.max(initial=0) <= 1 if values.dtype == np.uint8 else bool(np.isin(values, (0, 1)).all())
