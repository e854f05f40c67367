"""Quadratic problems over bits: encoding, curvature, coordinates, lower bounds, export and import."""

from annealfit._support.lazy import lazy_exports

__all__ = ["Curvature", "Encoding", "Problems", "QuadraticProblem"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {"Curvature": "curvature", "Encoding": "encoding", "Problems": "problem", "QuadraticProblem": "problem"},
)
