"""The sampler that a command was asked to use: made from words, its costs told before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from annealfit.samplers.catalogue import resolve_sampler
from annealfit.samplers.protocol import Preflight, Sampler

if TYPE_CHECKING:
    from annealfit.models import AnnealedClassifier


def choose_sampler(text: str | None, blocks: int | None, usual: Sampler | str | None, seed: int) -> Sampler:
    """The sampler of `--sampler` and `--blocks`, or else the usual one."""
    sampler = resolve_sampler(text if text is not None else usual, seed)
    if blocks is None:
        return sampler
    from annealfit.samplers import BlockSampler

    return BlockSampler(sampler, blocks)


def describe_plan(plan: Preflight, max_iter: int, *, of_layers: bool = False) -> str:
    """One line of what is about to be paid; where layers take turns, the plan is that of a step of each."""
    from annealfit.samplers.dwave.qpu import UNRESOLVED_SHARE

    advice = ": use fewer bits, or --standardize features" if plan.unresolved_share > UNRESOLVED_SHARE else ""
    what, most = ("A step of every layer", "at most ") if of_layers else ("An iteration", "")
    return (
        f"{what}: {plan.calls} {'call' if plan.calls == 1 else 'calls'}, {plan.qubits:,} qubits, chains of at "
        f"most {plan.longest_chain}, {plan.access_seconds:.3f} s of QPU access; {max_iter} iterations: "
        f"{most}{max_iter * plan.access_seconds:.1f} s. {plan.unresolved_share:.0%} of the couplings are below the "
        f"device's analog error{advice}."
    )


def sampler_notes(classifier: AnnealedClassifier) -> list[str]:
    """What the device cost, what failed, and why the training ended if it was cut short."""
    from annealfit.models import CUT_SHORT

    history, notes = classifier.history_, []
    if history and "access_seconds" in history[0]:
        calls, seconds = (sum(row[name] for row in history) for name in ("calls", "access_seconds"))
        answered = [row["chain_breaks"] for row in history if row["solved"]]
        breaks = sum(answered) / max(len(answered), 1)
        faults = sum(row["fault_count"] for row in history)
        notes.append(
            f"{calls} calls, {seconds:.3f} s of QPU access, {breaks:.1%} of chains broken, {faults} faults "
            "(history, column faults)."
        )
    failed = sum(bool(row["failures"]) for row in history)
    if failed:
        notes.append(f"In {failed} of {len(history)} iterations solves failed and weights stayed (column failures).")
    if classifier.stop_reason_ in ("budget", "sampler"):
        notes.append(
            f"Training {CUT_SHORT[classifier.stop_reason_]} after {classifier.n_iter_} of {classifier.max_iter} "
            "iterations; what was learnt is saved, and --resume goes on from there."
        )
    return notes
