"""A device to work with: found through D-Wave's own configuration, or checked to be one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from annealfit.errors import InvalidInputError, SamplerError, check_number, require
from annealfit.hardware.embeddings import EXTRA


def connect() -> Any:
    """The solver that D-Wave's configuration names; credentials never pass through annealfit."""
    system = require("dwave.system", extra=EXTRA, purpose="running on a QPU")
    try:
        return system.DWaveSampler()
    except Exception as error:
        raise SamplerError(
            f"no connection to a D-Wave solver ({type(error).__name__}: {error}); set up access with "
            "`dwave config create`, or rehearse with QPUSampler(MockQPU())"
        ) from error


def check_device(device: Any, parameters: Mapping[str, Any], settings: Iterable[str]) -> None:
    """Raise unless this is a QPU that takes these parameters; `settings` are the sampler's own, for the message."""
    if not callable(getattr(device, "to_networkx_graph", None)):
        raise InvalidInputError(
            f"{device!r} is not a QPU: pass a DWaveSampler or a MockQPU; for other dimod samplers there is DimodSampler"
        )
    if "auto_scale" in parameters:
        raise InvalidInputError("auto_scale is not a choice here: every problem is scaled to the range by itself")
    if "annealing_time" in parameters:
        shortest, longest = device.properties.get("annealing_time_range", (0, np.inf))
        check_number("annealing_time", parameters["annealing_time"], minimum=shortest, maximum=longest)
    unknown = sorted(set(parameters) - set(device.parameters))
    if unknown:
        raise InvalidInputError(
            f"neither QPUSampler nor the solver has a setting {', '.join(unknown)}; QPUSampler has "
            f"{', '.join(settings)}; the solver takes {', '.join(sorted(device.parameters))}"
        )
