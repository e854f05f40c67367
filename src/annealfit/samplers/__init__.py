"""Samplers: what takes a quadratic problem and returns bits of low energy."""

from annealfit.samplers.base import Sampler, Samples
from annealfit.samplers.dimod_adapter import DimodSampler
from annealfit.samplers.exact import ExactSolver

__all__ = ["DimodSampler", "ExactSolver", "Sampler", "Samples"]
