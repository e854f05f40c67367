"""What becomes of an attack, counted."""

from __future__ import annotations

import contextlib
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from annealfit._support.errors import AnnealfitError

HANG_SECONDS = 120  # on a busy machine, too
MOST_BYTES = 2**30  # more than this above what is in use at the start is too much


class HangError(BaseException):
    """An attack took longer than any honest input does."""


@dataclass
class Tally:
    """Outcomes of one campaign; examples of what went wrong are kept for whoever mends it."""

    campaign: str
    tried: int = 0
    clean: int = 0  # refused with a sentence
    right: int = 0  # accepted, and it is what it was or as good
    wrong: int = 0
    raw: int = 0  # a traceback that is not ours
    crashes: int = 0
    hangs: int = 0
    large: int = 0  # above 1 GB
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.wrong + self.raw + self.crashes + self.hangs + self.large == 0 and self.tried > 0

    def add(self, outcome: str, example: str = "") -> None:
        self.tried += 1
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome not in ("clean", "right") and len(self.examples) < 20:
            self.examples.append(f"{outcome}: {example}"[:1500])

    def merge(self, other: Tally) -> None:
        for name, value in asdict(other).items():
            if isinstance(value, int):
                setattr(self, name, getattr(self, name) + value)
        self.examples = [*self.examples, *other.examples][:20]


def attempt(tally: Tally, what: str, act: Callable[[], Any], judge: Callable[[Any], bool]) -> None:
    """Act, and judge what comes of it: right, wrong, a clean refusal, or worse. Errors of the judge are raw, too."""
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = "right" if judge(act()) else "wrong"
        tally.add(outcome, what)
    except AnnealfitError:
        tally.add("clean")
    except HangError:
        tally.add("hangs", what)
    except MemoryError:
        tally.add("large", f"{what}: {traceback.format_exc(limit=-3)}")
    except Exception:
        tally.add("raw", f"{what}: {traceback.format_exc(limit=-3)}")


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """Let this process take 1 GB more than it has: what needs more is a MemoryError, and counted."""
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
