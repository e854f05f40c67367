"""DenseAnnealingSampler: the annealing kernel as a dimod sampler for any dense binary quadratic model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import dimod
import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, choose
from annealfit._support.randomness import child_seeds
from annealfit._support.threads import free_memory
from annealfit.samplers.native.chains import Stop, stop_function
from annealfit.samplers.native.lanes import PRECISIONS, Lanes, anneal_lanes
from annealfit.samplers.native.schedule import BetaRange, Schedule

# A share of the memory that is free: the couplings are held in double and in the annealing precision.
_MEMORY_SHARE = 0.8


class DenseAnnealingSampler(dimod.Sampler, dimod.Initialized):
    """Simulated annealing for dense models, many reads at once.

    Takes the parameters of dwave-samplers' `SimulatedAnnealingSampler` and runs the same Markov chain.
    Time and memory go with n², however sparse the model; `SampleSet.info` holds the effective
    schedule and the timing in nanoseconds.

    >>> bqm = dimod.BinaryQuadraticModel({"a": 1.0, "b": -1.0}, {"ab": 0.5}, "SPIN")
    >>> float(DenseAnnealingSampler().sample(bqm, num_reads=3, seed=1).first.energy)
    -2.5
    """

    parameters = {  # noqa: RUF012 (dimod's protocol: a plain mapping of parameter names)
        "num_reads": [],
        "num_sweeps": [],
        "beta_range": [],
        "beta_schedule_type": ["beta_schedule_options"],
        "num_sweeps_per_beta": [],
        "beta_schedule": [],
        "seed": [],
        "initial_states": [],
        "initial_states_generator": [],
        "interrupt_function": [],
        "time_limit": [],
        "precision": [],
        "num_threads": [],
    }
    properties = {"beta_schedule_options": ("geometric", "linear", "custom")}  # noqa: RUF012

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
        time_limit: float | None = None,
        precision: str = "single",
        num_threads: int | None = None,
    ) -> dimod.SampleSet:
        """Sample a binary quadratic model; energies are the model's own, computed by dimod."""
        began = time.perf_counter_ns()
        if seed is None:
            seed = int(np.random.default_rng().integers(2**31))
        if num_sweeps is None:
            num_sweeps = 1000 if beta_schedule is None else len(beta_schedule) * num_sweeps_per_beta
        schedule = Schedule(num_sweeps, beta_range, beta_schedule_type, num_sweeps_per_beta, beta_schedule)
        should_stop = stop_function(time_limit, interrupt_function)
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
        ends = float(hot), float(cold)
        options = {"precision": precision, "num_threads": num_threads, "should_stop": should_stop}
        spins, sweeps = _anneal_spins(fields, couplings, spins, schedule, ends, seed, options)
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


def _anneal_spins(
    fields: NDArray[np.float64],
    couplings: NDArray[np.float64],
    spins: NDArray[np.int8],
    schedule: Schedule,
    ends: BetaRange,
    seed: int,
    options: dict[str, Any],
) -> tuple[NDArray[np.int8], int]:
    """The spins (reads, n) that anneals from these end in, and the number of sweeps done."""
    reads, size = spins.shape
    if size == 0 or schedule.num_sweeps == 0:
        return spins, 0
    lanes = Lanes(
        curvature=couplings,
        gradient=np.repeat(fields[:, None] / 2, reads, axis=1),
        steps=np.full((1, reads), 2.0),
        hot=np.full(reads, ends[0]),
        cold=np.full(reads, ends[1]),
        seeds=child_seeds(seed, np.arange(reads)),
    )
    start = ((spins.T[:, None] + 1) // 2).astype(np.uint8)
    states, sweeps = anneal_lanes(lanes, schedule, start=start, **options)
    return 2 * states[:, 0].T.astype(np.int8) - 1, sweeps


def automatic_ising_range(fields: NDArray[np.float64], couplings: NDArray[np.float64]) -> BetaRange:
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


def _dense_ising(bqm: dimod.BinaryQuadraticModel, order: list[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fields (n,) and the symmetric matrix of half couplings (n, n), in spins."""
    size = len(order)
    needed, free = 12 * size * size, free_memory()
    if free is not None and needed > _MEMORY_SHARE * free:
        raise InvalidInputError(
            f"a dense matrix of {size} variables needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free; "
            "use a sampler for sparse models (dwave-samplers), or a smaller model"
        )
    fields, (rows, columns, biases), _ = bqm.spin.to_numpy_vectors(variable_order=order)
    if not (np.isfinite(fields).all() and np.isfinite(biases).all()):
        raise InvalidInputError("the model has a bias that is NaN or infinite")
    couplings = np.zeros((size, size))
    np.add.at(couplings, (rows, columns), biases / 2)
    return np.asarray(fields, dtype=float), couplings + couplings.T
