"""Values with scikit-learn's `get_params` and `set_params`, so that a grid search reaches their settings."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from annealfit._support.description import NEUTRAL, TYPE, constructor_arguments, describe, qualified_name
from annealfit._support.errors import InvalidInputError

_MISSING = object()


class Settings:
    """A value whose settings are the arguments of its constructor, kept as attributes of the same names.

    `set_params` returns a changed copy; the object itself never changes.
    """

    neutral_settings: ClassVar[frozenset[str]] = frozenset()  # settings that cannot change a result
    further_settings: ClassVar[str] = ""  # the attribute that holds those of a constructor with `**parameters`

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; `deep` adds those of nested values, as in `child__num_reads`."""
        settings = {name: self._setting(name) for name in constructor_arguments(type(self))}
        settings = {name: value for name, value in settings.items() if value is not _MISSING}
        if self.further_settings:
            settings |= getattr(self, self.further_settings)
        for name, value in list(settings.items()) if deep else ():
            if isinstance(value, Settings):
                settings |= {f"{name}__{inner}": setting for inner, setting in value.get_params().items()}
        return settings

    def set_params(self, **changes: Any) -> Self:
        """Return a copy with other settings, all of them checked.

        >>> from annealfit.samplers import SimulatedAnnealer
        >>> SimulatedAnnealer().set_params(num_reads=8).num_reads
        8
        """
        names = constructor_arguments(type(self))
        lost = [name for name in names if self._setting(name) is _MISSING]
        if lost:
            raise InvalidInputError(
                f"{type(self).__name__} keeps its argument {', '.join(lost)} under another name, so it cannot be made "
                "again with other settings; keep every argument as an attribute of the same name"
            )
        own = {name: value for name, value in changes.items() if "__" not in name}
        settings = self.get_params(deep=False) | own
        for name, value in changes.items():
            outer, delimiter, inner = name.partition("__")
            if not delimiter:
                continue
            if not isinstance(settings.get(outer), Settings):
                raise InvalidInputError(f"{type(self).__name__} has no value {outer!r} whose {inner} could be set")
            settings[outer] = settings[outer].set_params(**{inner: value})
        return self._remade(settings, own)

    def _remade(self, settings: dict[str, Any], changed: dict[str, Any]) -> Self:
        """Make a value of the same kind; unknown settings are refused."""
        names = constructor_arguments(type(self))
        unknown = sorted(set(changed) - set(names))
        if unknown and not self.further_settings:
            raise InvalidInputError(
                f"{type(self).__name__} has no setting {', '.join(unknown)}; it has {', '.join(names) or 'none'}"
            )
        return type(self)(**settings)

    def describe(self) -> dict[str, Any]:
        """Return the value as plain data: its type and settings; those that cannot change a result are apart."""
        settings = {name: describe(value) for name, value in self.get_params(deep=False).items()}
        neutral = {name: settings.pop(name) for name in sorted(self.neutral_settings & settings.keys())}
        return {TYPE: qualified_name(type(self)), **settings, **({NEUTRAL: neutral} if neutral else {})}

    def _setting(self, name: str) -> Any:
        return getattr(self, name, getattr(self, f"_{name}", _MISSING))

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in self.get_params(deep=False).items())
        return f"{type(self).__name__}({', '.join(settings)})"

    def __sklearn_clone__(self) -> Self:
        return self
