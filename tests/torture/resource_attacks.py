"""What a system can refuse: room, memory, rights, a home; each ends in a sentence, and nothing is lost."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from outcomes import Tally
from PIL import Image
from process_attacks import check_run_folder

REPRODUCE = ["reproduce", "digits", "--preset", "annealfit", "--seeds", "42-46", "--jobs", "1"]
TRAIN = ["train", "digits", "--bits", "1", "--max-iter", "5", "--no-plots"]

# Numbers that size an allocation.
ENORMOUS = (
    ("--filters", "10000000000"),
    ("--n-train", "99999999999999999999"),
    ("--seed", "99999999999999999999"),
    ("--sampler", "levels:num_reads=10000000000"),
    ("--sampler", "native:num_reads=10000000000"),
    ("--sampler", "mock-qpu:num_reads=1000000000000"),
    ("--sampler", "mock-qpu:topology=Z99999"),
    ("--set", "max_couplings=99999999999999999999"),
)


def attack_resources(folder: Path) -> Tally:
    """Run the program under each lack, and look at its last words."""
    tally = Tally("resources: disk, rights, another user, memory, pipe, home, cache, two at once")
    folder.mkdir(parents=True, exist_ok=True)
    without_home = {name: value for name, value in os.environ.items() if name not in ("HOME", "ANNEALFIT_DATA")}
    nowhere = {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none", "NUMBA_CACHE_DIR": "/proc/none"}
    out = lambda name: ["--out", str(folder / name)]  # noqa: E731
    _run(tally, "a full disk", [*TRAIN, *out("full")], prepare=_no_room)
    _run(tally, "a folder that cannot be written", [*TRAIN, "--out", "/proc/annealfit"])
    _run(tally, "a file where the folder would be", [*TRAIN, "--out", __file__])
    _run(tally, "little memory", [*TRAIN, *out("memory")], prepare=_little_memory)
    _run(tally, "no home", [*TRAIN, *out("home")], environment=without_home)
    _run(tally, "no cache", [*TRAIN, *out("cache")], environment={**without_home, **nowhere})
    _run(tally, "no data directory", ["datasets", "--json"], environment={**without_home, **nowhere})
    _run(tally, "a closed pipe", ["datasets", "--json"], closed=True)
    _run(tally, "a device that is full", ["export", "digits", "-o", "/dev/full"])
    _run(tally, "a device", ["export", "digits", "-o", "/dev/null"])
    os.mkfifo(folder / "pipe")
    _run(tally, "a pipe without a reader", ["export", "digits", "-o", str(folder / "pipe")])
    _run(tally, "a pipe for a model", ["predict", str(folder / "pipe"), __file__])
    _run(tally, "a directory for a model", ["predict", str(folder), __file__])
    for option, value in ENORMOUS:
        _run(tally, f"{option} {value}", [*TRAIN, option, value, *out("enormous")], prepare=_little_memory)
    _run(tally, "enormous lists", ["reproduce", "digits", "--seeds", "1-99999999999", *out("enormous")])
    mine = folder / "mine"
    mine.mkdir()
    (mine / "config.json").write_text('{"mine": 1}')
    _run(tally, "a folder of somebody's own", [*TRAIN, "--out", str(mine)])
    if (mine / "config.json").read_text() != '{"mine": 1}':
        tally.add("wrong", "a user's file was replaced")
    for what, arguments in _closed_to_others(folder):
        _run(tally, what, arguments, environment={**os.environ, **nowhere}, prepare=_ordinary_user)
    for number, command in enumerate((TRAIN, TRAIN, REPRODUCE)):
        _two_at_once(tally, command, folder / f"both-{number}")
    for run in folder.iterdir():
        if run.is_dir():
            check_run_folder(run)
    if not Path("/dev/null").is_char_device() or not (folder / "pipe").is_fifo():
        tally.add("wrong", "a device was replaced by a file")
    return tally


def _closed_to_others(folder: Path) -> list[tuple[str, list[str]]]:
    """Files and folders that another user may not read or write, and commands that need them."""
    rows = folder / "rows.npz"
    np.savez(rows, X=np.eye(40), y=np.arange(40) % 2)
    subprocess.run(_command([*TRAIN, "--out", str(folder / "images")]), check=True, capture_output=True)
    closed, picture = folder / "closed", folder / "picture.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(picture)
    closed.mkdir()
    for path, mode in ((rows, 0), (closed, 0o555), (picture, 0), (folder, 0o755), (folder.parent, 0o755)):
        path.chmod(mode)
    return [
        ("rows that may not be read", ["train", str(rows), "--out", str(closed / "run")]),
        ("an image that may not be read", ["predict", str(folder / "images"), str(picture)]),
        ("a folder that may not be written", [*TRAIN, "--out", str(closed / "run")]),
        ("a file that may not be written", ["export", "digits", "-o", str(closed / "problem.bqm")]),
        ("another user's run", [*TRAIN, "--out", str(folder / "images"), "--resume"]),
    ]


def _ordinary_user() -> None:
    """Give up what lets root ignore permissions, for programs that are started from here, too."""
    if os.geteuid() == 0:
        for capability in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "annealfit", *arguments]


def _run(
    tally: Tally,
    what: str,
    arguments: list[str],
    *,
    environment: dict[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
    closed: bool = False,
) -> None:
    reading, writing = os.pipe()
    if closed:
        os.close(reading)
    try:
        found = subprocess.run(
            _command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=writing if closed else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            preexec_fn=prepare,
            timeout=180,
            check=False,
        )
    except subprocess.TimeoutExpired:
        tally.add("hangs", what)
        return
    finally:
        os.close(writing)
        if not closed:
            os.close(reading)
    _judge(tally, what, found.returncode, found.stderr.decode(errors="replace"))


def _judge(tally: Tally, what: str, status: int, said: str) -> None:
    if "Traceback" in said:
        tally.add("raw", f"{what}: {said[-1200:]}")
    elif status < 0:
        tally.add("crashes", f"{what}: {signal.Signals(-status).name} {said[-500:]}")
    else:
        tally.add("right" if status == 0 else "clean")


def _no_room() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing more is an error, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


def _little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1_400_000_000, 1_400_000_000))


def _two_at_once(tally: Tally, arguments: list[str], folder: Path) -> None:
    """Of two programs in one folder one works, and the other is told so."""
    command = _command([*arguments, "--out", str(folder)])
    programs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
    said = [program.communicate(timeout=180)[1].decode() for program in programs]
    codes = sorted(program.returncode for program in programs)
    if "Traceback" in "".join(said):
        tally.add("raw", "".join(said)[-1200:])
    else:
        tally.add("clean" if codes == [0, 2] else "wrong", f"two at once: {arguments[0]} {codes} {said}")
