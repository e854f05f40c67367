"""The campaigns by name, each in parts, and a process that runs the parts of one that are not done yet."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from outcomes import Tally, limit_memory

import annealfit

Parts = Iterator[Callable[[], Tally]]


def files(folder: Path, seed: int, share: float) -> Parts:
    """Every kind of file of ours: 10,000 mutations of models and of checkpoints, 2,000 of each other kind."""
    import file_attacks

    targets = file_attacks.targets(folder)
    limit_memory()
    others = [target.path.read_bytes() for target in targets]
    for target in targets:
        many = target.name in ("model", "checkpoint")
        count = max(1, round(share * (5000 if many else 1000)))
        if target.name == "model":
            yield partial(file_attacks.attack_bits, target, step=max(1, round(1 / share)))
        yield partial(file_attacks.attack_bytes, target, count if target.kind else 2 * count, seed, others)
        if target.kind:
            yield partial(file_attacks.attack_fields, target, count, seed)


def data(folder: Path, seed: int, share: float) -> Parts:
    """What users bring along, and names that mean something to a terminal or a plot."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others reserve more than the attacks may take
    import data_attacks

    limit_memory()
    yield from data_attacks.attack_inputs(folder, round(share * 2000), seed)
    yield partial(data_attacks.attack_columns, folder, max(4, round(share * 200)), seed)
    yield partial(data_attacks.attack_texts, folder, seed, max(1, round(share * 100)))


def numbers(folder: Path, seed: int, share: float) -> Parts:
    """Trainings and bounds at the edges of what numbers can be."""
    import number_attacks
    import process_attacks

    process_attacks.warm_up()
    yield partial(number_attacks.attack_bounds, seed, round(share * 2000))
    yield partial(number_attacks.attack_threads, seed, max(1, round(share * 30)))
    yield partial(number_attacks.attack_side_by_side, seed, max(1, round(share * 30)))
    yield partial(number_attacks.attack_trainings, seed, share)
    yield partial(number_attacks.attack_units, seed, max(4, round(share * 400)))
    yield partial(number_attacks.attack_layers, seed, max(2, round(share * 400)))
    yield partial(number_attacks.attack_proofs, seed, max(3, round(share * 4000)))
    yield partial(number_attacks.attack_exports, folder, seed, max(4, round(share * 200)))
    yield partial(number_attacks.attack_arrays, seed, max(4, round(share * 400)))


def samplers(folder: Path, seed: int, share: float) -> Parts:
    """Samplers that lie, and devices that fail."""
    import process_attacks
    import sampler_attacks

    process_attacks.warm_up()
    yield partial(sampler_attacks.attack_training, seed, round(share * 5 * len(sampler_attacks.LIES)))
    yield partial(sampler_attacks.attack_device, seed, max(1, round(share * 50)))


def processes(folder: Path, seed: int, share: float) -> Parts:
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
        yield partial(attacks.kill_repeatedly, make(own), max(1, round(share * kills)), seed)
    own = folder / "dask"
    own.mkdir()
    with attacks.dask_cluster(own) as (address, _):
        yield partial(attacks.kill_repeatedly, attacks.dask_chain(own, address), max(1, round(share * 20)), seed)
    own = folder / "clusters"
    own.mkdir()
    yield partial(attacks.attack_clusters, own, max(2, round(share * 20)), seed)


def resources(folder: Path, seed: int, share: float) -> Parts:
    """A full disk, a read-only folder, little memory, a closed pipe, no home, no cache, two at once."""
    import resource_attacks

    yield partial(resource_attacks.attack_resources, folder)


CAMPAIGNS = {  # the longest first
    "processes": processes,
    "numbers": numbers,
    "files": files,
    "data": data,
    "samplers": samplers,
    "resources": resources,
}


def identity(seed: int, share: float) -> dict[str, Any]:
    """What results have to have in common to be put together: seed, share, and the sources."""
    sources, digest = Path(annealfit.__file__).parent, hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        digest.update(path.read_bytes())
    return {"seed": seed, "share": share, "sources": digest.hexdigest()[:12]}


def run_campaign(name: str, run: dict[str, Any], results: Path) -> None:
    """Run the parts that the file of results does not have yet, and add them to it."""
    with tempfile.TemporaryDirectory(prefix="annealfit-torture-") as folder:
        for number, attack in enumerate(CAMPAIGNS[name](Path(folder), run["seed"], run["share"])):
            part = {**run, "part": f"{name} {number}"}
            if any(part.items() <= row.items() for row in rows_of(results)):
                continue
            started = time.monotonic()
            tally = attack()
            found, seconds = "clean" if tally.is_clean else "NOT CLEAN", time.monotonic() - started
            print(f"{tally.campaign}: {tally.tried} tried, {found}, {seconds:.0f} s")
            for example in tally.examples:
                print(f"  {example}")
            sys.stdout.flush()
            with results.open("a", encoding="utf-8") as file:  # one write, as other campaigns add to it too
                file.write("\n" + json.dumps({**part, **asdict(tally)}))  # the last line may have been cut short


def rows_of(results: Path) -> list[dict[str, Any]]:
    """The rows of a file of results; one that was cut short by a kill is left out."""
    rows = []
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows
