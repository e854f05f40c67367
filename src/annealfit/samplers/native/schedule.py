"""Temperature schedules: the forms dwave-samplers has, and a range of temperatures that suits a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError, check_number, choose

SCHEDULE_TYPES = ("geometric", "linear", "custom")

BetaRange = tuple[float, float]


@dataclass(frozen=True)
class Schedule:
    """How the inverse temperature β runs from hot to cold.

    `beta_schedule_type` "geometric" or "linear" interpolates between the ends of `beta_range` (None: ends
    that suit the problem) over `num_sweeps`, staying `num_sweeps_per_beta` sweeps at each value; "custom"
    takes the values of `beta_schedule` one by one.
    """

    num_sweeps: int
    beta_range: BetaRange | None = None
    beta_schedule_type: str = "geometric"
    num_sweeps_per_beta: int = 1
    beta_schedule: Sequence[float] | None = None

    def __post_init__(self) -> None:
        choose("beta_schedule_type", self.beta_schedule_type, SCHEDULE_TYPES)
        check_number("num_sweeps", self.num_sweeps, Integral, minimum=0)
        check_number("num_sweeps_per_beta", self.num_sweeps_per_beta, Integral, minimum=1)
        if self.num_sweeps % self.num_sweeps_per_beta:
            raise InvalidInputError(
                f"num_sweeps is {self.num_sweeps}; it must be a multiple of num_sweeps_per_beta, "
                f"{self.num_sweeps_per_beta}"
            )
        if (self.beta_schedule is None) == (self.beta_schedule_type == "custom"):
            raise InvalidInputError("beta_schedule goes with beta_schedule_type='custom', and only with it")
        if self.beta_schedule is not None:
            if self.beta_range is not None:
                raise InvalidInputError("a custom beta_schedule has its own ends; leave beta_range out")
            betas = np.asarray(self.beta_schedule, dtype=float)
            if betas.ndim != 1 or not np.isfinite(betas).all() or (betas < 0).any():
                raise InvalidInputError("beta_schedule must be a sequence of finite numbers, none below 0")
            if len(betas) * self.num_sweeps_per_beta != self.num_sweeps:
                raise InvalidInputError(
                    f"beta_schedule has {len(betas)} values of {self.num_sweeps_per_beta} sweeps each; "
                    f"num_sweeps must be {len(betas) * self.num_sweeps_per_beta}, not {self.num_sweeps}"
                )
        if self.beta_range is not None:
            if np.shape(self.beta_range) != (2,):
                raise InvalidInputError(f"beta_range is {self.beta_range!r}; it must be a pair (hot, cold)")
            geometric = self.beta_schedule_type == "geometric"  # no ratio leads up from 0
            for beta in self.beta_range:
                check_number(
                    "an end of beta_range", beta, minimum=None if geometric else 0, above=0 if geometric else None
                )

    def shares(self, first: int, last: int) -> NDArray[np.float64]:
        """How far the sweeps `first` to `last − 1` are between the ends, 0 to 1; of a custom schedule, their β."""
        index = np.arange(first, last) // self.num_sweeps_per_beta
        if self.beta_schedule is not None:
            return np.asarray(self.beta_schedule, dtype=float)[index]
        n_betas = self.num_sweeps // self.num_sweeps_per_beta
        # A single temperature is the cold one, as in dwave-samplers.
        return index / (n_betas - 1) if n_betas > 1 else np.ones(len(index))

    def line(
        self, hot: NDArray[np.float64], cold: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`(intercept, slope)` such that a sweep's β is `intercept + share·slope`, geometric: the exponential of it.

        `hot` and `cold` are the ends of several chains; to a custom schedule `cold` is a factor.
        """
        if self.beta_schedule is not None:
            return np.zeros_like(cold), cold
        if self.beta_schedule_type == "linear":
            return hot, cold - hot
        return np.log(hot), np.log(cold / hot)

    @property
    def is_geometric(self) -> bool:
        """Whether β is the exponential of the line."""
        return self.beta_schedule_type == "geometric"
