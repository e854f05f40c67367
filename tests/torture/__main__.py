"""The whole campaign (`make torture`): bounded, seeded, a table in the end and in docs/trust.md.

    python tests/torture [--seed 42] [--only files,processes] [--share 1.0] [--write]

Each part runs in a process of its own that may take 1 GB more than it has when it starts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from outcomes import Tally, limit_memory

PAGE = Path(__file__).parents[2] / "docs" / "trust.md"
BEGIN, END = "<!-- torture: begin -->", "<!-- torture: end -->"
COLUMNS = {
    "tried": "tried",
    "clean": "clean errors",
    "right": "accepted and right",
    "wrong": "accepted and wrong",
    "raw": "raw tracebacks",
    "crashes": "crashes",
    "hangs": "hangs",
    "large": "above 1 GB",
}


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
    yield data_attacks.attack_texts(folder, seed, max(1, round(share * 100)))


def numbers(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """Trainings and bounds at the edges of what numbers can be."""
    import number_attacks
    import process_attacks

    process_attacks.warm_up()
    yield number_attacks.attack_bounds(seed, round(share * 2000))
    yield number_attacks.attack_threads(seed, max(1, round(share * 30)))
    yield number_attacks.attack_trainings(seed, share * 0.5)


def samplers(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """Samplers that lie, and devices that fail."""
    import process_attacks
    import sampler_attacks

    process_attacks.warm_up()
    yield sampler_attacks.attack_training(seed, round(share * 5 * len(sampler_attacks.LIES)))
    yield sampler_attacks.attack_device(seed, max(1, round(share * 50)))


def processes(folder: Path, seed: int, share: float) -> Iterator[Tally]:
    """500 kills."""
    import process_attacks as attacks

    attacks.warm_up()
    for number, (make, kills) in enumerate(
        (
            (attacks.train_chain, 300),
            (lambda own: attacks.reproduce_chain(own, 1), 100),
            (attacks.compare_chain, 60),
            (lambda own: attacks.reproduce_chain(own, 2), 20),
        )
    ):
        own = folder / str(number)
        own.mkdir()
        yield attacks.kill_repeatedly(make(own), max(1, round(share * kills)), seed)
    own = folder / "dask"
    own.mkdir()
    with attacks.dask_cluster(own) as address:
        yield attacks.kill_repeatedly(attacks.dask_chain(own, address), max(1, round(share * 20)), seed)


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


def _run(name: str, seed: int, share: float, results: Path) -> None:
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


def table(tallies: list[Tally]) -> str:
    lines = [f"| campaign | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for tally in tallies:
        lines.append(f"| {tally.campaign} | " + " | ".join(f"{getattr(tally, name):,}" for name in COLUMNS) + " |")
    total = Tally("**all**")
    for tally in tallies:
        total.merge(tally)
    lines.append(f"| {total.campaign} | " + " | ".join(f"**{getattr(total, name):,}**" for name in COLUMNS) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--share", type=float, default=1.0, help="of the attacks")
    parser.add_argument("--only", default=",".join(CAMPAIGNS), help="campaigns, with commas between them")
    parser.add_argument("--write", action="store_true", help="write the table into docs/trust.md")
    parser.add_argument("--results", type=Path, help="keep the rows in this file, and add to those that are there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = options.results or Path(scratch) / "results.jsonl"
        crashed = []
        context = multiprocessing.get_context("spawn")
        for name in options.only.split(","):
            process = context.Process(target=_run, args=(name, options.seed, options.share, results))
            process.start()
            process.join()
            if process.exitcode:
                crashed.append(f"{name}: exit status {process.exitcode}")
        rows = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    tallies = [Tally(**json.loads(row)) for row in rows]
    tallies = list({tally.campaign: tally for tally in tallies}.values())  # the last of each name
    text = table(tallies)
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n\nSeed {options.seed}.\n{END}{after}", encoding="utf-8")
    for line in crashed:
        print(line, file=sys.stderr)
    return int(bool(crashed) or not all(tally.is_clean for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
