"""Processes ended at any moment: nothing is lost, nobody is left behind, and the next start goes on.

Programs run in forks of a process that has everything imported and compiled, so that hundreds of them take minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from outcomes import Tally, attempt

from annealfit._support.errors import FileFormatError
from annealfit._support.files import read_tensors
from annealfit.cli import main
from annealfit.models.image_classifier import ImageClassifier
from annealfit.studies.records import Store

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LONGEST_SECONDS = 900  # of a program that is left alone
SETTLE_SECONDS = 15  # in which workers notice that they are alone
KILLS_PER_RUN = 40  # after which a run is let go on to its end
NO_WORKERS = "distributed.scheduler.no-workers-timeout"  # in Dask's configuration
_QUIET_EXITS = (0, 1, 2, 130)


@dataclass
class Program:
    """A command line, run in a process group of its own."""

    arguments: Sequence[str]
    output: Path

    def __post_init__(self) -> None:
        self.process = os.fork()
        if self.process == 0:
            _become(self.arguments, self.output)

    def wait(self, seconds: float) -> int | None:
        """The exit status, or None if it is still running."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found, status = os.waitpid(self.process, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        return None

    def kill(self, number: int) -> int | None:
        """End it with a signal; what does not end is killed, and None."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)
        status = self.wait(120)
        if status is None:
            os.kill(self.process, signal.SIGKILL)
            self.wait(120)
        return status

    def kill_worker(self, generator: np.random.Generator) -> int | None:
        """End one of its workers, as a system without memory does, and see how it ends then."""
        workers = sorted(set(_group(self.process)) - {self.process})
        if not workers:
            return self.kill(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(generator.choice(workers)), signal.SIGKILL)
        if (status := self.wait(LONGEST_SECONDS)) is None:
            self.kill(signal.SIGKILL)
        return status

    def strays(self) -> list[int]:
        """Processes of its group that outlive it, after some seconds in which they may notice."""
        end = time.monotonic() + SETTLE_SECONDS
        while (left := _group(self.process)) and time.monotonic() < end:
            time.sleep(0.1)
        for process in left:  # so that they do not disturb what follows
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return left

    def traceback(self) -> str:
        """What the program said from its first traceback on, and a little before; nothing if there is none."""
        said = self.output.read_text(errors="replace")
        place = said.find("Traceback (most recent call last)")
        return said[max(place - 200, 0) :][:1200] if place >= 0 else ""


def warm_up() -> None:
    """Import and compile what the programs need, once for all of them."""
    from annealfit import AnnealedClassifier, load_dataset
    from annealfit.studies import execute, sampler_study  # noqa: F401
    from annealfit.studies.report import page  # noqa: F401

    data = load_dataset("digits", n_train=100, n_test=20)
    features = data.X_train.reshape(100, -1)
    for sampler in ("native", "levels", "rounded", "lattice"):
        AnnealedClassifier(bits=2, max_iter=2, sampler=sampler, random_state=0).fit(features, data.y_train)


def _become(arguments: Sequence[str], output: Path) -> None:
    os.setsid()
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(handle, stream)
    sys.argv = ["annealfit", *arguments]
    code = 70
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        for file in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                file.flush()
        os._exit(code)


def _group(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def leftovers(folder: Path) -> list[Path]:
    """Files in the making, and locks, that nobody works on any more."""
    return [*folder.rglob(".*.part"), *folder.rglob(".annealfit.lock")]


@dataclass(frozen=True)
class Chain:
    """A command that is killed and started again until it is done, and what has to hold."""

    name: str
    folder: Path
    arguments: Callable[[Path], list[str]]  # those of the next start
    check: Callable[[Path], None]  # raises if a file with its final name is not whole
    is_same: Callable[[Path, Path], bool]  # whether what it ended with is what an undisturbed run ended with
    most_seconds: float  # before it is killed
    is_done: Callable[[Path], bool] = lambda folder: False  # whether a run that was killed had done all its work
    has_workers: bool = False  # of which one is killed now and then, instead of the command


def kill_repeatedly(chain: Chain, kills: int, seed: int) -> Tally:
    """Kill the command at random moments, in run after run, until it was killed so many times."""
    generator, tally = np.random.default_rng([seed, 5]), Tally(f"killed: {chain.name}")
    undisturbed = chain.folder / "undisturbed"
    program = Program(chain.arguments(undisturbed), chain.folder / "output")
    if program.wait(LONGEST_SECONDS) != 0:
        raise RuntimeError(f"{chain.name} does not run: {program.output.read_text()}")
    run = 0
    while tally.tried < kills:
        folder = chain.folder / f"run-{run}"
        run += 1
        done = False
        for _ in range(min(KILLS_PER_RUN, kills - tally.tried)):
            program = Program(chain.arguments(folder), chain.folder / "output")
            status = program.wait(float(generator.uniform(0, chain.most_seconds)))
            if status is not None:  # it was done before it was killed
                done = True
                _judge(tally, chain, program, folder, status, killed=False)
                break
            kind = int(generator.integers(0, 6 if chain.has_workers else 3))
            status = program.kill(SIGNALS[kind]) if kind < 3 else program.kill_worker(generator)
            _judge(tally, chain, program, folder, status, killed=True)
            if done := chain.is_done(folder):
                break
        if not done:
            program = Program(chain.arguments(folder), chain.folder / "output")
            _judge(tally, chain, program, folder, program.wait(LONGEST_SECONDS), killed=False)
        if not chain.is_same(folder, undisturbed):
            tally.add("wrong", f"{folder} is not what an undisturbed run gives")
    return tally


def _judge(tally: Tally, chain: Chain, program: Program, folder: Path, status: int | None, *, killed: bool) -> None:
    """A kill is counted; a run that went to its end has to have cleaned up, too."""
    strays = program.strays()
    text = program.output.read_text(errors="replace")[-800:]
    problem = None
    if status is None:
        problem = "hangs", f"did not end: {text}"
    elif program.traceback() and status != -signal.SIGKILL:
        problem = "raw", program.traceback()
    elif status not in (*_QUIET_EXITS, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
        problem = "crashes", f"exit status {status}: {text}"
    elif not killed and status != 0:
        problem = "wrong", f"could not go on: exit status {status}: {text}"
    elif strays:
        problem = "wrong", f"left {len(strays)} processes"
    elif not killed and leftovers(folder):
        problem = "wrong", f"left {leftovers(folder)}"
    else:
        try:
            chain.check(folder)
        except Exception as error:
            problem = "wrong", f"a file is not whole: {type(error).__name__}: {error}"
    if problem is not None:
        tally.add(*problem)
    elif killed:
        tally.add("right")


def check_run_folder(folder: Path) -> None:
    """Whatever has its final name is whole."""
    if (path := folder / "checkpoint.safetensors").exists():
        read_tensors(path, "training checkpoint")
    if (path := folder / "model.safetensors").exists():
        ImageClassifier.load(path)
    for path in folder.glob("*.json"):
        json.loads(path.read_text())


def same_models(folder: Path, other: Path) -> bool:
    models = [ImageClassifier.load(path / "model.safetensors").classifier for path in (folder, other)]
    losses = [[row["loss"] for row in model.history_] for model in models]
    return np.array_equal(models[0].coef_, models[1].coef_) and losses[0] == losses[1]


def check_records(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Store(folder).records()


def same_records(folder: Path, other: Path) -> bool:
    found = [Store(path).records() for path in (folder, other)]
    return len(found[0]) == len(found[1]) and all(
        a.spec == b.spec and a.loss == b.loss and a.iterations == b.iterations and a.error is None
        for a, b in zip(*found, strict=True)
    )


def check_comparison(folder: Path) -> None:
    if (path := folder / "comparison.json").exists():
        json.loads(path.read_text())
    for path in folder.rglob("*.png"):
        if not path.read_bytes().endswith(b"IEND\xaeB`\x82"):
            raise FileFormatError(f"{path} was cut short")


def same_problems(folder: Path, other: Path) -> bool:
    found = [{path.name: path.read_bytes() for path in (run / "problems").iterdir()} for run in (folder, other)]
    return found[0] == found[1] != {}


def train_chain(folder: Path) -> Chain:
    def arguments(run: Path) -> list[str]:
        started = ["--resume"] if (run / "checkpoint.safetensors").exists() else []
        options = ["--preset", "matched", "--bits", "5", "--max-iter", "1500", "--no-plots"]
        return ["train", "digits", *options, "--out", str(run), *started]

    return Chain("train", folder, arguments, check_run_folder, same_models, 2.0)


def reproduce_chain(folder: Path, jobs: int) -> Chain:
    def arguments(run: Path) -> list[str]:
        options = ["--preset", "annealfit", "--seeds", "42-43", "--jobs", str(jobs)]
        return ["reproduce", "digits", *options, "--out", str(run)]

    name = f"reproduce, {jobs} {'process' if jobs == 1 else 'processes'}"
    seconds = 2.0 if jobs == 1 else 8.0
    return Chain(name, folder, arguments, check_records, same_records, seconds, has_workers=jobs > 1)


def dask_chain(folder: Path, address: str) -> Chain:
    def arguments(run: Path) -> list[str]:
        options = ["--preset", "annealfit", "--seeds", "42-43", "--dask", address]
        return ["reproduce", "digits", *options, "--out", str(run)]

    return Chain("reproduce on a Dask cluster", folder, arguments, check_records, same_records, 5.0)


def compare_chain(folder: Path) -> Chain:
    def arguments(run: Path) -> list[str]:
        options = ["--bits", "2", "--samplers", "native,rounded", "--iterations", "3", "--late", "2", "--reads", "4"]
        return ["compare-samplers", "digits", *options, "--out", str(run)]

    def is_done(run: Path) -> bool:
        return (run / "comparison.json").exists()  # which is written last

    return Chain("compare-samplers", folder, arguments, check_comparison, same_problems, 2.5, is_done)


@contextlib.contextmanager
def dask_cluster(folder: Path):  # type: ignore[no-untyped-def]
    """A scheduler and a worker in processes of their own."""
    port = folder / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--scheduler-file", str(port)]
    programs = [
        subprocess.Popen(
            [dask[0], "-m", "distributed.cli.dask_scheduler", *options, "--port", "0", "--no-dashboard"], **quiet
        ),
        subprocess.Popen(
            [
                dask[0],
                "-m",
                "distributed.cli.dask_worker",
                *options,
                "--nworkers",
                "1",
                "--nthreads",
                "1",
                "--no-dashboard",
                "--local-directory",
                str(folder),
            ],
            **quiet,
        ),
    ]
    try:
        end = time.monotonic() + 60
        while not (port.exists() and port.stat().st_size):
            if time.monotonic() > end:
                raise RuntimeError("no Dask cluster came up")
            time.sleep(0.2)
        yield json.loads(port.read_text())["address"], programs
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait(30)


def attack_clusters(folder: Path, count: int, seed: int) -> Tally:
    """Schedulers and workers that are killed while a training uses them: it ends in a sentence."""
    import dask.array
    from distributed import Client

    from annealfit import AnnealedClassifier

    generator, tally = np.random.default_rng([seed, 30]), Tally("Dask: scheduler or worker killed in a training")
    rows = generator.normal(size=(5000, 10))
    table = dask.array.from_array(rows, chunks=(1000, -1)), dask.array.from_array((rows[:, 0] > 0) * 1, chunks=1000)
    for number in range(count):
        own = folder / str(number)
        own.mkdir()
        moment = int(generator.integers(1, 20))
        with dask_cluster(own) as (address, programs), dask.config.set({NO_WORKERS: 3}), Client(address):

            def kill(iteration, programs=programs, number=number, moment=moment) -> None:  # type: ignore[no-untyped-def]
                if iteration.row["iteration"] == moment:
                    programs[number % 2].kill()

            classifier = AnnealedClassifier(tol=0, max_iter=200, random_state=0, callbacks=[kill])
            attempt(tally, f"cluster {number}", lambda c=classifier: c.fit(*table), lambda fitted: False)
    return tally
