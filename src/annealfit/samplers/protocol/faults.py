"""Which failures of a remote sampler pass, and which stay."""

from __future__ import annotations

import sys
from typing import Any


def is_passing(error: BaseException) -> bool:
    """Whether trying again can help: time-outs and the network's troubles, not bad requests or missing rights.

    >>> is_passing(TimeoutError("no answer")), is_passing(FileNotFoundError("no such file"))
    (True, False)
    """
    if isinstance(error, _known("dwave.cloud.api.exceptions", _LASTING)) or is_refusal(error):
        return False
    return isinstance(
        error,
        (
            ConnectionError,
            TimeoutError,
            *_known("requests.exceptions", ("RequestException",)),  # D-Wave's request errors too
            *_known("dwave.cloud.exceptions", ("PollingTimeout", "CanceledFutureError", "ProblemUploadError")),
        ),
    )


def is_refusal(error: BaseException) -> bool:
    """Whether the solver looked at the problem and declined it: the same problem will be declined again."""
    offline = _known("dwave.cloud.exceptions", ("SolverOfflineError",))
    return isinstance(error, _known("dwave.cloud.exceptions", ("SolverFailureError",))) and not isinstance(
        error, offline
    )


_LASTING = (
    "ResourceAuthenticationError",
    "ResourceAccessForbiddenError",
    "ResourceNotFoundError",
    "ResourceBadRequestError",
)


def _known(module: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Exceptions of an optional package; if it is not loaded, none of them can have been raised."""
    loaded = sys.modules.get(module)
    return tuple(getattr(loaded, name) for name in names if hasattr(loaded, name))
