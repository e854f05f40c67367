"""Method and FilterMethod: the choices that make a training, grouped in values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from annealfit._support.errors import InvalidInputError, check_number, choose, choose_or_own
from annealfit._support.settings import Settings
from annealfit.data.rows import ARITHMETICS
from annealfit.problems.coordinates import COORDINATES, COORDINATES_METHODS
from annealfit.training.acceptance import ACCEPTANCES
from annealfit.training.objectives.conv_net import FILTER_CURVATURES
from annealfit.training.objectives.curvature import CURVATURES
from annealfit.training.policies import (
    DAMPINGS,
    INITIALIZATIONS,
    PRECISION_POLICIES,
    RANGE_POLICIES,
    DampingPolicy,
    FixedDamping,
)


@dataclass(frozen=True, repr=False)
class Method(Settings):
    """How a training chooses, accepts and applies updates. Every word may be an object: see docs/extending.md.

    Parameters
    ----------
    curvature : {"local", "bound", "gram", "joint", "gauss_newton", "diagonal"} or function
        Quadratic part of the surrogate. "local" is the mean over the classes of the Hessian of the loss, computed anew
        when the cross-entropy has halved; beyond 256 features in blocks of 64. "bound" (½G + Λ), "gram" (G + Λ, the
        paper's) and "joint" (one problem over all classes) bound the loss from above; "gauss_newton" is the Hessian
        of every class at every iteration, and "diagonal" is separable.
    coordinates : {"centred", "raw"} or `annealfit.problems.coordinates.Coordinates`
        The basis in which bits are chosen. "centred" measures features from their means, which makes the problems
        much easier and changes neither loss nor optimum. "raw" are the weights themselves, as in the paper.
    acceptance : {"subspace", "line_search", "descent", "always"} or function
        "descent" applies the classes whose surrogate is negative: with a bounding curvature the loss decreases at
        every iteration. "line_search" steps along them as far as the true loss says; "subspace" chooses a multiple
        for each class, and one of its previous step. "always" applies everything, as the paper does.
    range_policy : {"relaxation", "adaptive", "fixed"} or `annealfit.training.RangePolicy`
        Whether δ is a multiple of the size of the continuous minimum, follows success and failure, or is fixed.
    precision_policy : {"fixed", "adaptive"} or `annealfit.training.PrecisionPolicy`
        Whether updates have `bits` bits throughout, or start with one and gain another whenever they get stuck.
    update_range : float or None
        The (first) δ: the largest update of a weight before any line search. None leaves it to the range policy.
    step : float
        α in (0, 1]: the multiple of an accepted update that is applied.
    max_couplings : int or None
        Keep at most this many couplings in each problem: the largest; the others are added to the diagonal so
        that an upper bound stays one.
    initialization : {"zeros", "uniform"} or function
        Initial weights: zero, or uniform in ±1/√d (the paper's).
    arithmetic : {"auto", "double", "numpy"}
        Precision of products with the rows, for arrays, streamed rows and Dask alike. "auto" computes outputs in
        single precision from 100 features on, in half the time; sums, and the loss and certificate that are
        reported, are in double precision. "double" is double throughout, "numpy" also without compiled kernels,
        bit for bit as in `annealfit.paper`.

    Examples
    --------
    >>> Method(acceptance="line_search").set_params(curvature="bound").curvature
    'bound'

    """

    curvature: Any = "local"
    coordinates: Any = "centred"
    acceptance: Any = "subspace"
    range_policy: Any = "relaxation"
    precision_policy: Any = "fixed"
    update_range: float | None = None
    step: float = 1.0
    max_couplings: int | None = None
    initialization: Any = "zeros"
    arithmetic: str = "auto"

    def resolved(self, curvatures: Mapping[str, Any] = CURVATURES) -> Method:
        """Return the method with the objects that its words stand for; values out of bounds are refused."""
        if isinstance(self.coordinates, np.ndarray):
            shape = self.coordinates.shape
            raise InvalidInputError(f"coordinates is an array of shape {shape}; pass LinearCoordinates(matrix)")
        check_number("step", self.step, above=0, maximum=1)
        if self.update_range is not None:
            check_number("update_range", self.update_range, above=0, remedy="the paper's is 0.5")
        if self.max_couplings is not None:
            check_number("max_couplings", self.max_couplings, Integral, minimum=0)
        choose("arithmetic", self.arithmetic, ARITHMETICS)
        return replace(
            self,
            curvature=choose_or_own("curvature", self.curvature, curvatures),
            coordinates=choose_or_own("coordinates", self.coordinates, COORDINATES, COORDINATES_METHODS),
            acceptance=choose_or_own("acceptance", self.acceptance, ACCEPTANCES),
            range_policy=choose_or_own(
                "range_policy", self.range_policy, RANGE_POLICIES, ("first", "choose", "revise", "rate")
            ),
            precision_policy=choose_or_own(
                "precision_policy", self.precision_policy, PRECISION_POLICIES, ("first", "following")
            ),
            initialization=choose_or_own("initialization", self.initialization, INITIALIZATIONS),
        )


@dataclass(frozen=True, repr=False)
class FilterMethod(Settings):
    """How the filters of a network are trained; acceptance rule, ranges and bits are those of the network's `Method`.

    Parameters
    ----------
    layers : "all", or a sequence of layers, the first being 1
        Which convolution layers are trained.
    head_steps : int
        Steps of the head in a round, before one step of each trained layer.
    curvature : {"by_filter", "joint"} or function
        Gauss-Newton with a problem for each filter, or one for all filters of a layer.
    damping : {"adaptive", "none"}, float or `annealfit.training.DampingPolicy`
        Added to the diagonal of a filter's curvature, in units of its mean: less after a step that was applied and
        more after one that was refused, nothing, or a fixed number.
    curvature_rows : int or None
        Images that a filter's curvature is computed from, drawn for every step; None uses all. Loss and gradient are
        those of all images in use.
    first_images : int or None
        Images that the first two rounds use, drawn once; every two rounds they become twice as many, until all are
        used. A step decreases the loss of the images in use: rows of the history say how many. None uses all from the
        beginning.

    """

    layers: Any = "all"
    head_steps: int = 6
    curvature: Any = "by_filter"
    damping: Any = "adaptive"
    curvature_rows: int | None = 2000
    first_images: int | None = None

    def resolved(self, method: Method) -> tuple[Method, DampingPolicy]:
        """Return the method of the filters and their damping policy; values out of bounds are refused."""
        check_number("head_steps", self.head_steps, Integral, minimum=1)
        for name in ("curvature_rows", "first_images"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), Integral, minimum=1)
        curvature = choose_or_own("filter_curvature", self.curvature, FILTER_CURVATURES)
        if isinstance(self.damping, Real):
            check_number("damping", self.damping, minimum=0)
            damping: DampingPolicy = FixedDamping(float(self.damping))
        else:
            damping = choose_or_own("damping", self.damping, DAMPINGS, ("first", "revise"))
        return replace(method, curvature=curvature, coordinates="raw").resolved(FILTER_CURVATURES), damping

    def layers_of(self, count: int) -> list[int]:
        """Return the layers that are trained, counted from 0, of a network of `count` layers."""
        given: Any = self.layers
        if isinstance(given, str) and given == "all":
            return list(range(count))
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        if not listed or not all(isinstance(layer, Integral) and 1 <= int(layer) <= count for layer in given):
            raise InvalidInputError(f"layers is {given!r}; it must be 'all', or a list of layers from 1 to {count}")
        if not len(given):
            raise InvalidInputError(
                "layers is empty: nothing to train but the head; use make_pipeline(RandomConvFeatures(…), "
                "AnnealedClassifier(…))"
            )
        return sorted({int(layer) - 1 for layer in given})


_PAPER = Method(
    curvature="gram",
    coordinates="raw",
    acceptance="always",
    range_policy="fixed",
    update_range=0.5,
    initialization="uniform",
    arithmetic="numpy",
)

# "literal" and "matched" differ in the final temperature of the annealer: see `AnnealedClassifier.from_paper`.
METHODS: dict[str, Method] = {
    "annealfit": Method(),
    "literal": _PAPER,
    "matched": _PAPER,
    "descent": Method(curvature="bound", acceptance="descent"),
}


def as_method(given: Any) -> Method:
    """Return the method that a word or a `Method` stands for.

    >>> as_method("descent").curvature
    'bound'
    """
    if isinstance(given, Method):
        return given
    return METHODS[choose("method", given, METHODS)]
