"""What a solve on a device would cost, known before it is paid for, and what it did cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Preflight:
    """What solving some problems once would take on a device: nothing has been submitted."""

    calls: int
    qubits: int  # of the largest call
    longest_chain: int
    access_seconds: float
    unresolved_share: float  # of the couplings: below the published analog error, in the worst problem

    @classmethod
    def of_all(cls, parts: Sequence[Preflight]) -> Preflight:
        """One after another: costs add up, and the worst of each limit counts."""
        return cls(
            calls=sum(part.calls for part in parts),
            qubits=max(part.qubits for part in parts),
            longest_chain=max(part.longest_chain for part in parts),
            access_seconds=sum(part.access_seconds for part in parts),
            unresolved_share=max(part.unresolved_share for part in parts),
        )


@dataclass(eq=False)
class Receipt:
    """What a solve cost, and what went wrong on the way; filled while it runs."""

    calls: int = 0
    access_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    breaks: list[tuple[float, int]] = field(default_factory=list)  # of each call: share of broken chains, reads

    @property
    def chain_breaks(self) -> float:
        """The mean share of broken chains in a read."""
        reads = sum(count for _, count in self.breaks)
        return sum(share * count for share, count in self.breaks) / reads if reads else 0.0
