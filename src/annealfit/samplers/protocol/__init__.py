"""What a sampler is, what it answers, and how its answers are checked: all that training knows of samplers."""

from annealfit.samplers.protocol.answers import ask
from annealfit.samplers.protocol.costs import Preflight, Receipt
from annealfit.samplers.protocol.faults import is_passing, is_refusal
from annealfit.samplers.protocol.sampler import Sampler
from annealfit.samplers.protocol.samples import Samples, SolveInfo

__all__ = ["Preflight", "Receipt", "Sampler", "Samples", "SolveInfo", "ask", "is_passing", "is_refusal"]
