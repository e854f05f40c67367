"""The campaigns by name, and a process that runs one of them."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from outcomes import Tally, limit_memory


def files(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """Every kind of file of ours: 10,000 mutations of models and of checkpoints, 2,000 of each other kind."""
    import file_attacks

    targets = file_attacks.targets(folder)
    limit_memory()
    others = [target.path.read_bytes() for target in targets]
    for target in targets:
        many = target.name in ("model", "checkpoint")
        count = max(1, round(share * (5000 if many else 1000)))
        if target.name == "model":
            yield file_attacks.attack_bits(target, step=max(1, round(1 / share)))
        yield file_attacks.attack_bytes(target, count if target.kind else 2 * count, seed, others)
        if target.kind:
            yield file_attacks.attack_fields(target, count, seed)


def data(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """What users bring along, and names that mean something to a terminal or a plot."""
    import data_attacks

    limit_memory()
    yield from data_attacks.attack_inputs(folder, round(share * 2000), seed)
    yield data_attacks.attack_columns(folder, max(4, round(share * 200)), seed)
    yield data_attacks.attack_texts(folder, seed, max(1, round(share * 100)))


def numbers(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """Trainings and bounds at the edges of what numbers can be."""
    import number_attacks
    import process_attacks

    process_attacks.warm_up()
    yield number_attacks.attack_bounds(seed, round(share * 2000))
    yield number_attacks.attack_threads(seed, max(1, round(share * 30)))
    yield number_attacks.attack_trainings(seed, share)
    yield number_attacks.attack_units(seed, max(4, round(share * 400)))
    yield number_attacks.attack_layers(seed, max(2, round(share * 400)))
    yield number_attacks.attack_proofs(seed, max(3, round(share * 4000)))
    yield number_attacks.attack_exports(folder, seed, max(4, round(share * 200)))
    yield number_attacks.attack_arrays(seed, max(4, round(share * 400)))


def samplers(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """Samplers that lie, and devices that fail."""
    import process_attacks
    import sampler_attacks

    process_attacks.warm_up()
    yield sampler_attacks.attack_training(seed, round(share * 5 * len(sampler_attacks.LIES)))
    yield sampler_attacks.attack_device(seed, max(1, round(share * 50)))


def processes(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """More than 500 kills, of commands and of their workers."""
    import process_attacks as attacks

    attacks.warm_up()
    for number, (make, kills) in enumerate(
        (
            (attacks.train_chain, 300),
            (lambda own: attacks.reproduce_chain(own, 1), 100),
            (attacks.compare_chain, 60),
            (lambda own: attacks.reproduce_chain(own, 2), 40),
        )
    ):
        own = folder / str(number)
        own.mkdir()
        yield attacks.kill_repeatedly(make(own), max(1, round(share * kills)), seed)
    own = folder / "dask"
    own.mkdir()
    with attacks.dask_cluster(own) as (address, _):
        yield attacks.kill_repeatedly(attacks.dask_chain(own, address), max(1, round(share * 20)), seed)
    own = folder / "clusters"
    own.mkdir()
    yield attacks.attack_clusters(own, max(2, round(share * 20)), seed)


def resources(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """A full disk, a read-only folder, little memory, a closed pipe, no home, no cache, two at once."""
    import resource_attacks

    yield resource_attacks.attack_resources(folder)


CAMPAIGNS = {
    "files": files,
    "data": data,
    "numbers": numbers,
    "samplers": samplers,
    "resources": resources,
    "processes": processes,
}


def run_campaign(name: str, seed: int, share: float, results: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="annealfit-torture-") as folder:
        started = time.monotonic()
        for tally in CAMPAIGNS[name](Path(folder), seed, share):
            seconds, started = time.monotonic() - started, time.monotonic()
            print(
                f"{tally.campaign}: {tally.tried} tried, {'clean' if tally.is_clean else 'NOT CLEAN'}, {seconds:.0f} s"
            )
            for example in tally.examples:
                print(f"  {example}")
            sys.stdout.flush()
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(tally)) + "\n")
