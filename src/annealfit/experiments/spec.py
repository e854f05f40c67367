"""A run as a value: everything that decides its result, and an id made from it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from annealfit.errors import InvalidInputError, choose
from annealfit.schema import Field, settings_of

if TYPE_CHECKING:
    from annealfit.classifier import AnnealedClassifier

RUN_PRESETS = ("literal", "matched", "annealfit")
CLASSICAL = "classical"  # the paper's SGD
OPTIMUM = "optimum"  # logistic regression at the same λ
# A network of the paper's sizes: its head alone, its filters too, and by Adam.
FROZEN_NETWORK, TRAINED_NETWORK, ADAM_NETWORK = "network_frozen", "network", "network_adam"
NETWORK_METHODS = (FROZEN_NETWORK, TRAINED_NETWORK, ADAM_NETWORK)
METHODS_OF_RUNS = (CLASSICAL, OPTIMUM, "qubo", *NETWORK_METHODS)
_LONGEST_NAME = 64  # characters of a data set's name in that of a file


@dataclass(frozen=True)
class RunSpec:
    """One method on one data set with one seed.

    `method` is "classical", "optimum", "qubo" or one of NETWORK_METHODS; the fields after `seed` matter to "qubo"
    only, where None takes the preset's own value.

    >>> spec = RunSpec("digits", "qubo", seed=42, preset="matched", bits=20)
    >>> spec.label, spec == RunSpec.from_json(spec.to_json())
    ('qubo_20', True)
    """

    dataset: str
    method: str
    seed: int
    preset: str | None = None
    bits: int | None = None
    num_sweeps: int | None = None
    max_iter: int | None = None
    update_range: float | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS_OF_RUNS)
        if self.method == "qubo":
            choose("preset", self.preset, RUN_PRESETS)
            if self.bits is None:
                raise InvalidInputError("a QUBO run needs its number of bits")

    @property
    def label(self) -> str:
        """The method's name as in the paper's tables: classical, qubo_5 … qubo_20."""
        return f"qubo_{self.bits}" if self.method == "qubo" else self.method

    @property
    def id(self) -> str:
        """Readable at the front, unique by a digest of all fields at the end."""
        digest = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]
        preset = f"-{self.preset}" if self.preset else ""
        # The name of a file: of a path only what is safe in any folder is left, and the digest still tells all apart.
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.dataset)[:_LONGEST_NAME]
        return f"{name}-{self.label}{preset}-seed{self.seed}-{digest}"

    def to_json(self) -> dict[str, Any]:
        """The fields that are set; a field added later with the default None does not change old ids."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """The inverse of `to_json`, for what a file holds, too."""
        found = Field.of(fields)
        for name, field in found.entries().items():
            if name not in cls.__dataclass_fields__:
                field.refuse("no such setting of a run")
            if name in ("dataset", "method", "preset"):
                field.text()
            elif name in ("update_range", "step"):
                field.number(minimum=0)
            else:
                field.whole(minimum=0 if name == "seed" else 1)
        with settings_of(found):
            return cls(**{name: field.value for name, field in found.entries().items()})

    def classifier(self) -> AnnealedClassifier:
        """The classifier of a QUBO run."""
        from annealfit.classifier import AnnealedClassifier  # here: a run is named without it
        from annealfit.samplers import SimulatedAnnealer

        assert self.bits is not None
        if self.preset == "annealfit":
            classifier = AnnealedClassifier(bits=self.bits, sampler=SimulatedAnnealer(self.num_sweeps or 100))
        else:
            classifier = AnnealedClassifier.from_paper(
                self.bits, preset=str(self.preset), num_sweeps=self.num_sweeps or 100
            )
        changes = {"max_iter": self.max_iter, "update_range": self.update_range, "step": self.step}
        classifier.set_params(**{name: value for name, value in changes.items() if value is not None})
        return classifier.set_params(random_state=self.seed)
