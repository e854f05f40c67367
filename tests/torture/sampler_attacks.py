"""Samplers that hang, lie, change what they are given, raise, or fail half of the time."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from outcomes import Tally, attempt
from sklearn.datasets import load_iris

from annealfit import AnnealedClassifier
from annealfit._support.errors import BudgetExhaustedError
from annealfit._support.files import read_tensors
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import BlockSampler, MockQPU, QPUSampler, Sampler, Samples, SimulatedAnnealer

Answer = Callable[[QuadraticProblem, Samples, np.random.Generator], Any]


def _with(samples: Samples, **changes: Any) -> Samples:
    return Samples(**{"bits": samples.bits, "energies": samples.energies, "info": samples.info, **changes})


def _write(array: np.ndarray) -> None:
    array[...] = np.nan


def _raise(error: BaseException) -> Any:
    raise error


def _slow(samples: Samples) -> Samples:
    time.sleep(0.02)
    return samples


# What a sampler may do instead of answering; each has to end in a SamplerError, in failed problems, or do no harm.
LIES: dict[str, Answer] = {
    "NaN bits": lambda p, s, g: _with(s, bits=np.full(s.bits.shape, np.nan)),
    "bits of 7": lambda p, s, g: _with(s, bits=np.full(s.bits.shape, 7, np.uint8)),
    "bits of -1": lambda p, s, g: _with(s, bits=np.full(s.bits.shape, -1, np.int8)),
    "bits of 0.5": lambda p, s, g: _with(s, bits=np.full(s.bits.shape, 0.5)),
    "texts for bits": lambda p, s, g: _with(s, bits=np.full(s.bits.shape, "1")),
    "no array": lambda p, s, g: _with(s, bits=[[1, 0]]),
    "another shape": lambda p, s, g: _with(s, bits=s.bits[:, :-1]),
    "no reads": lambda p, s, g: _with(s, bits=s.bits[:0], energies=s.energies[:0]),
    "NaN energies": lambda p, s, g: _with(s, energies=np.full(s.energies.shape, np.nan)),
    "energies of -1e300": lambda p, s, g: _with(s, energies=np.full(s.energies.shape, -1e300)),
    "too few energies": lambda p, s, g: _with(s, energies=s.energies[:0]),
    "None": lambda p, s, g: None,
    "a number": lambda p, s, g: 3.0,
    "random bits": lambda p, s, g: _with(s, bits=g.integers(0, 2, s.bits.shape, dtype=np.uint8)),
    "a read-only answer": lambda p, s, g: (s.bits.setflags(write=False), s)[1],
    "writing to the gradient": lambda p, s, g: (_write(p.gradient), s)[1],
    "writing to the curvature": lambda p, s, g: (_write(p.curvature), s)[1],
    "writing to the diagonal": lambda p, s, g: (_write(p.shared_curvature.diagonal), s)[1],
    "writing to row sums": lambda p, s, g: (_write(p.shared_curvature.row_sums), s)[1],
    "an error": lambda p, s, g: _raise(ValueError("broken")),
    "a lost connection": lambda p, s, g: _raise(ConnectionError("lost")),
    "a time-out": lambda p, s, g: _raise(TimeoutError("late")),
    "no memory": lambda p, s, g: _raise(MemoryError("none")),
    "no recursion": lambda p, s, g: _raise(RecursionError("deep")),
    "a spent budget": lambda p, s, g: _raise(BudgetExhaustedError("spent")),
    "a failed answer": lambda p, s, g: Samples.failed(p, "down"),
    "a slow answer": lambda p, s, g: _slow(s),
}


class Liar(Sampler):
    """Answers well, but for a share of the time."""

    def __init__(self, lie: str, share: float, seed: int) -> None:
        self.lie, self.share, self.seed = lie, share, seed
        self._honest = SimulatedAnnealer(num_sweeps=20)
        self._generator = np.random.default_rng(seed)

    def solve(self, problems: Sequence[QuadraticProblem], seeds: Sequence[int]) -> list[Samples]:
        answers = self._honest.solve(problems, seeds)
        return [
            LIES[self.lie](problem, answer, self._generator) if self._generator.random() < self.share else answer
            for problem, answer in zip(problems, answers, strict=True)
        ]


class Summariser(SimulatedAnnealer):
    """Says more of its answers than it may."""

    columns: Any = None

    def summarise(self, answers: Sequence[Samples]) -> Any:
        return type(self).columns


def attack_training(seed: int, count: int) -> Tally:
    """Train with every liar: weights and checkpoint stay whole, and the loss never rises."""
    tally, X, y = Tally("samplers: lies of every kind"), *load_iris(return_X_y=True)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            lie = list(LIES)[number % len(LIES)]
            share = (0.5, 1.0, 0.1)[number // len(LIES) % 3]
            path = Path(folder) / f"{number}.safetensors"
            liar: Sampler = Liar(lie, share, seed + number)
            if number % 2:  # asked for the parts of every problem, one after the other
                liar = BlockSampler(liar, max_variables=4)

            def train(liar: Sampler = liar, path: Path = path) -> Any:
                clf = AnnealedClassifier(bits=2, max_iter=8, random_state=1, sampler=liar, checkpoint=path)
                try:
                    clf.set_params(checkpoint_every=1).fit(X, y)
                finally:
                    _check_checkpoint(path)
                return clf

            attempt(tally, f"{lie}, {share:.0%}", train, _is_sound)
        for columns in ({"loss": 0.0}, {"seconds": 1}, {"accuracy": "x"}, {"iteration": 7}, {"failures": ""}, 3, None):
            kind = type("Said", (Summariser,), {"columns": columns})
            attempt(
                tally,
                f"summarise gives {columns}",
                lambda kind=kind: AnnealedClassifier(max_iter=3, random_state=0, sampler=kind()).fit(X, y),
                _is_sound,
            )
    return tally


def _check_checkpoint(path: Path) -> None:
    if path.exists():
        tensors, _ = read_tensors(path, "training checkpoint")
        if not np.isfinite(tensors.tensors["weights"]).all():
            raise AssertionError("a checkpoint was overwritten with weights that are not numbers")


def _is_sound(clf: Any) -> bool:
    losses = np.array([row["loss"] for row in clf.history_])
    return bool(np.isfinite(clf.coef_).all() and np.isfinite(losses).all() and (np.diff(losses) <= 1e-12).all())


def attack_device(seed: int, count: int) -> Tally:
    """A simulated chip that fails half of the time, with a budget: every call that was paid for is in the history.

    Some have several calls in flight, some are asked block by block.
    """
    tally, X, y = (
        Tally("devices: half of the calls fail, budgets, calls in flight, blocks"),
        *load_iris(return_X_y=True),
    )
    generator = np.random.default_rng([seed, 11])
    for number in range(count):
        faults, budget = float(generator.choice([0.0, 0.2, 0.5])), float(generator.uniform(0.02, 0.6))
        calls, in_blocks = (1, 1, 3)[number % 3], number % 2 == 1

        def train(
            number: int = number,
            faults: float = faults,
            budget: float = budget,
            calls: int = calls,
            in_blocks: bool = in_blocks,
        ) -> Any:
            device = MockQPU(topology="Z12", faults=faults, seed=number)
            sampler = QPUSampler(
                device, num_reads=12, spin_reversals=calls, max_access_seconds=budget, backoff_seconds=0
            )
            asked = BlockSampler(sampler, max_variables=3) if in_blocks else sampler
            clf = AnnealedClassifier(bits=1, max_iter=12, random_state=number, sampler=asked, tol=0.0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return clf.fit(X, y), sampler, budget

        def holds(found: Any) -> bool:
            clf, sampler, budget = found
            told = sum(row["access_seconds"] for row in clf.history_)
            return (
                _is_sound(clf)
                and sampler.access_seconds <= budget
                and np.isclose(told, sampler.access_seconds, rtol=1e-9)
            )

        attempt(
            tally, f"training {number}, faults {faults}, budget {budget:.2f}, {calls} calls, {in_blocks}", train, holds
        )
    return tally
