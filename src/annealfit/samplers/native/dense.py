"""DenseAnnealingSampler: the annealing kernel as a dimod sampler for dense binary quadratic models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import dimod
import numpy as np

from annealfit._support.arrays import Array
from annealfit._support.errors import InvalidInputError, choose
from annealfit._support.randomness import child_seeds
from annealfit._support.threads import free_memory
from annealfit.samplers.native.annealer import PRECISIONS, Lanes
from annealfit.samplers.native.annealing import BetaRange, Limit, Schedule, Stop

_MEMORY_SHARE = 0.8  # of the memory that is free
_BYTES_PER_PAIR = 12  # couplings are held in double and in the annealing precision
# Above so many variables, models with a smaller share of all couplings are refused: a sampler for sparse models is
# faster there, and its lead grows with the number of variables.
_MANY_VARIABLES, _LEAST_DENSITY = 2000, 0.02


class DenseAnnealingSampler(dimod.Sampler, dimod.Initialized):
    """Simulated annealing for dense models, many reads at once.

    Takes the parameters of dwave-samplers' `SimulatedAnnealingSampler` and runs the same Markov chain; of
    `randomize_order` and `proposal_acceptance_criteria` only the default values. Time and memory go with n², however
    sparse the model, so models of more than 2,000 variables with fewer than 2 % of all couplings are refused.
    `SampleSet.info` holds the effective schedule and the timing in nanoseconds.

    >>> bqm = dimod.BinaryQuadraticModel({"a": 1.0, "b": -1.0}, {"ab": 0.5}, "SPIN")
    >>> float(DenseAnnealingSampler().sample(bqm, num_reads=3, seed=1).first.energy)
    -2.5
    """

    parameters = {  # noqa: RUF012 (dimod's protocol: a plain mapping of parameter names)
        **dict.fromkeys(("num_reads", "num_sweeps", "beta_range", "num_sweeps_per_beta", "beta_schedule", "seed"), ()),
        **dict.fromkeys(("initial_states", "initial_states_generator", "interrupt_function", "randomize_order"), ()),
        **dict.fromkeys(("time_limit", "precision", "num_threads"), ()),
        "beta_schedule_type": ("beta_schedule_options",),
        "proposal_acceptance_criteria": ("proposal_acceptance_criteria_options",),
    }
    properties = {  # noqa: RUF012
        "beta_schedule_options": ("geometric", "linear", "custom"),
        "proposal_acceptance_criteria_options": ("Metropolis",),
    }

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        num_sweeps: int | None = None,
        beta_range: BetaRange | None = None,
        beta_schedule_type: str = "geometric",
        num_sweeps_per_beta: int = 1,
        beta_schedule: Sequence[float] | None = None,
        seed: int | None = None,
        initial_states: Any = None,
        initial_states_generator: str = "random",
        interrupt_function: Stop | None = None,
        randomize_order: bool = False,
        proposal_acceptance_criteria: str = "Metropolis",
        time_limit: float | None = None,
        precision: str = "single",
        num_threads: int | None = None,
    ) -> dimod.SampleSet:
        """Sample a binary quadratic model; energies are the model's own, computed by dimod."""
        began = time.perf_counter_ns()
        only = {
            "randomize_order": (randomize_order, False),
            "proposal_acceptance_criteria": (proposal_acceptance_criteria, "Metropolis"),
        }
        for name, (given, known) in only.items():
            if given != known:
                raise InvalidInputError(
                    f"{name} is {given!r}; this sampler visits variables in order and knows 'Metropolis' alone: leave "
                    "it out, or use dwave-samplers' SimulatedAnnealingSampler"
                )
        _check_size(bqm)
        if seed is None:
            seed = int(np.random.default_rng().integers(2**31))
        if num_sweeps is None:
            num_sweeps = 1000 if beta_schedule is None else len(beta_schedule) * num_sweeps_per_beta
        schedule = Schedule(num_sweeps, beta_range, beta_schedule_type, num_sweeps_per_beta, beta_schedule)
        limit = Limit.of(time_limit, interrupt_function)
        choose("precision", precision, PRECISIONS)
        start = self.parse_initial_states(
            bqm,
            num_reads=num_reads,
            initial_states=initial_states,
            initial_states_generator=initial_states_generator,
            seed=seed % 2**31,
        )
        order = list(start.initial_states.variables)
        spins = start.initial_states.record.sample
        if start.initial_states.vartype is dimod.BINARY:
            spins = 2 * spins - 1
        fields, couplings = _dense_ising(bqm, order)
        # A custom sequence is taken as it is.
        hot, cold = (1.0, 1.0) if beta_schedule is not None else beta_range or automatic_ising_range(fields, couplings)
        prepared = time.perf_counter_ns()
        sweeps = 0
        if spins.size and num_sweeps:
            reads = len(spins)
            lanes = Lanes(
                curvature=couplings,
                gradient=np.repeat(fields[:, None] / 2, reads, axis=1),
                steps=np.full((1, reads), 2.0),
                hot=np.full(reads, float(hot)),
                cold=np.full(reads, float(cold)),
                seeds=child_seeds(seed, np.arange(reads)),
                schedule=schedule,
                precision=precision,
                num_threads=num_threads,
                start=((spins.T[:, None] + 1) // 2).astype(np.uint8),
            )
            states, sweeps = lanes.anneal(limit)
            spins = 2 * states[:, 0].T.astype(np.int8) - 1
        sampled = time.perf_counter_ns()
        samples = (spins, order) if bqm.vartype is dimod.SPIN else ((spins + 1) // 2, order)
        sampleset = dimod.SampleSet.from_samples_bqm(samples, bqm)
        sampleset.info.update(
            beta_range=[hot, cold] if beta_schedule is None else [*beta_schedule[:1], *beta_schedule[-1:]],
            beta_schedule_type=beta_schedule_type,
            num_sweeps=sweeps,
            timing={
                "preprocessing_ns": prepared - began,
                "sampling_ns": sampled - prepared,
                "postprocessing_ns": time.perf_counter_ns() - sampled,
            },
        )
        return sampleset


def _check_size(bqm: dimod.BinaryQuadraticModel) -> None:
    """Refuse models that a dense matrix does not suit, before one is made."""
    size, pairs, free = bqm.num_variables, bqm.num_interactions, free_memory()
    needed = f"a dense matrix of {size} variables needs {_BYTES_PER_PAIR * size**2 / 2**30:.1f} GiB"
    remedy = "use a sampler for sparse models: dwave-samplers' SimulatedAnnealingSampler takes the same parameters"
    density = 2 * pairs / (size * (size - 1)) if size > 1 else 1.0
    if size > _MANY_VARIABLES and density < _LEAST_DENSITY:
        raise InvalidInputError(
            f"the model has {size} variables and {pairs} couplings, {density:.2%} of all pairs, and {needed}; above "
            f"{_MANY_VARIABLES} variables at least {_LEAST_DENSITY:.0%} of all pairs must be coupled: {remedy}"
        )
    if free is not None and _BYTES_PER_PAIR * size**2 > _MEMORY_SHARE * free:
        raise InvalidInputError(f"{needed} and {free / 2**30:.1f} GiB are free; {remedy}, or use a smaller model")


def automatic_ising_range(fields: Array, couplings: Array) -> BetaRange:
    """Hot and cold β of an Ising model with fields h (n,) and symmetric halves J/2 (n, n).

    The local field of a spin is about `√(h² + Σ J²)` in a random state: at the hot end the strongest spin
    flips half of the time. In a dense model the n local fields of a low state reach down to about
    1/√n of that; at the cold end such a spin is excited once in a hundred visits.
    """
    scale = max(np.abs(fields).max(initial=0.0), np.abs(couplings).max(initial=0.0))
    if scale == 0:
        return 1.0, 1.0
    # Scaled before they are squared, and the result scaled back: biases may be of any size.
    local = scale * np.sqrt((fields / scale) ** 2 + (4 * (couplings / scale) ** 2).sum(axis=1))
    live = local[local > 0]
    hot = np.log(2) / (2 * live.max())
    cold = np.log(100) * np.sqrt(len(fields)) / (2 * live.mean())
    return float(hot), float(max(cold, hot))


def _dense_ising(bqm: dimod.BinaryQuadraticModel, order: list[Any]) -> tuple[Array, Array]:
    """Fields (n,) and the symmetric matrix of half couplings (n, n), in spins."""
    fields, (rows, columns, biases), _ = bqm.spin.to_numpy_vectors(variable_order=order)
    if not (np.isfinite(fields).all() and np.isfinite(biases).all()):
        raise InvalidInputError("the model has a bias that is NaN or infinite")
    couplings = np.zeros((len(order), len(order)))
    np.add.at(couplings, (rows, columns), biases / 2)
    return np.asarray(fields, dtype=float), couplings + couplings.T
