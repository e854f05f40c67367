"""What a device waits for: embeddings searched and read from disk, calls one after the other and in flight together."""

import concurrent.futures
import os
import tempfile
import threading
import time
from typing import Any

from benchmarks.timing import print_table

import dimod
import numpy as np

from annealfit import AnnealedClassifier, Method, RandomConvFeatures, load_dataset
from annealfit.problems.encoding import Encoding
from annealfit.hardware.chip import CACHE_ENVIRONMENT, Chip
from annealfit.hardware.topologies import ideal_chip
from annealfit.problems.problem import QuadraticProblem
from annealfit.samplers import MockQPU, QPUSampler
from annealfit.samplers.dwave.qpu import Program


def seconds_of_tiles(topology: str, size: int) -> float:
    """Of a chip that has found nothing yet, as in a new process; what importing takes is left out."""
    chip = Chip(topology, ideal_chip(topology).graph)
    began = time.perf_counter()
    chip.tiles(size, 10)
    return time.perf_counter() - began


def run_embeddings() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE_ENVIRONMENT] = folder
        ideal_chip("P16").clique(9)  # imports
        for topology in ("P16", "Z12"):
            for size in (19, 38, 57):
                searched = seconds_of_tiles(topology, size)
                read = min(seconds_of_tiles(topology, size) for _ in range(3))
                rows.append([topology, str(size), f"{searched:.2f}", f"{read:.2f}", f"{searched / read:.0f}"])
    print_table("Ten tiles: seconds of a search, and from disk", ["chip", "variables", "search", "disk", "ratio"], rows)


class Distant:
    """A device whose answers take half a second more to come."""

    def __init__(self, device: MockQPU) -> None:
        self.device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def sample(self, bqm: dimod.BinaryQuadraticModel, **parameters: Any) -> dimod.SampleSet:
        answer = self.device.sample(bqm, **parameters)
        future: concurrent.futures.Future[dimod.SampleSet] = concurrent.futures.Future()
        threading.Timer(0.5, future.set_result, [answer]).start()
        return dimod.SampleSet.from_future(future)


def run_calls() -> None:
    generator = np.random.default_rng(0)
    square = generator.normal(size=(8, 8))
    problem = QuadraticProblem(square @ square.T, generator.normal(size=8), Encoding(bits=2, range=0.5))
    rows = []
    for gauges in (1, 2, 4, 8):
        apart = QPUSampler(Distant(MockQPU("Z12")), num_reads=16 // gauges)
        together = QPUSampler(Distant(MockQPU("Z12")), num_reads=16, spin_reversals=gauges)
        apart.sample(problem), together.sample(problem)  # embeds
        began = time.perf_counter()
        for seed in range(gauges):
            apart.sample(problem, seed=seed)
        between = time.perf_counter()
        together.sample(problem)
        ended = time.perf_counter()
        rows.append([str(gauges), f"{between - began:.2f}", f"{ended - between:.2f}"])
    print_table(
        "Calls whose answers take half a second to come: seconds one after the other, and in flight together",
        ["calls", "one by one", "together"],
        rows,
    )


def run_limits() -> None:
    data = load_dataset("digits", seed=42)
    X = RandomConvFeatures(n_filters=2, random_state=42).fit_transform(data.X_train)
    rows = []
    for topology in ("P16", "Z12"):
        sampler = QPUSampler(MockQPU(topology))
        for coordinates in ("raw", "centred"):
            for bits in (1, 2, 3):
                classifier = AnnealedClassifier(bits=bits, random_state=0, method=Method(coordinates=coordinates))
                problems = list(classifier.problems(X, data.y_train))
                limits = sampler._tiles_of(problems).limits
                program = Program.of(problems, sampler.ranges, sampler.chain_prefactor)
                size = problems[0].n_variables
                taken = max(
                    limit.excess(problem.to_ising()[1][np.triu_indices(size, 1)] / scaled.scale, scaled.chain_strength)
                    for problem, scaled, tile in zip(problems, program.resolutions, limits, strict=True)
                    for limit in tile
                )
                rows.append([topology, coordinates, str(bits), f"{taken:.0%}"])
    print_table(
        "Digits, first problems: what couplings add up to at a qubit, as a share of the range",
        ["chip", "coordinates", "bits", "taken"],
        rows,
    )


def run(*, quick: bool) -> None:
    run_embeddings()
    run_calls()
    run_limits()


if __name__ == "__main__":
    run(quick=False)
