"""Damage: of bytes, and of what they mean, signed again so that only the checks of every field stand in its way."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

_MISSING = object()


def mutate_bytes(content: bytes, others: list[bytes], generator: np.random.Generator) -> bytes:
    """The content with one to three damages of any kind."""
    damaged = bytearray(content)
    for _ in range(generator.integers(1, 4)):
        start = int(generator.integers(0, max(len(damaged), 1)))
        stop = min(len(damaged), start + int(generator.integers(1, 65)))
        kind = generator.integers(0, 9)
        if kind == 0 and damaged:
            damaged[start] ^= 1 << int(generator.integers(0, 8))
        elif kind == 1 and damaged:
            damaged[start] = int(generator.integers(0, 256))
        elif kind == 2:
            del damaged[start:]
        elif kind == 3:
            del damaged[start:stop]
        elif kind == 4:
            damaged[start:start] = generator.bytes(stop - start)
        elif kind == 5:
            damaged[start:stop] = bytes(stop - start)
        elif kind == 6:
            damaged[start:start] = damaged[start:stop]
        elif kind == 7:
            other = others[int(generator.integers(0, len(others)))]
            damaged[start:stop] = other[start:stop]
        else:
            place = int(generator.integers(0, max(len(damaged), 1)))
            damaged[start:stop], damaged[place : place + stop - start] = (
                damaged[place : place + stop - start],
                damaged[start:stop],
            )
    return bytes(damaged)


def _hostile(generator: np.random.Generator) -> Any:
    deep: Any = 1
    for _ in range(int(generator.choice([5, 40, 400]))):
        deep = [deep]
    pool: list[Any] = [
        *(None, True, False, -1, 0, 1, 2, 31, 2**31, 2**63, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e-300, 1e308),
        *(float("nan"), float("inf"), -float("inf"), "", "x", "x" * 100_000, "../../etc", "\x1b[31m", "\ud800", "1"),
        *([], {}, [1, 2, 3], [[1]], [None], {"type": "SimulatedAnnealer"}, {"a": 1}, ["a"] * 1000, deep),
        *({"type": "BlockSampler"}, {"dtype": "O", "values": []}, {"dtype": "<U99999999", "values": ["a"]}, [1e400]),
        *([10**9] * 3, [2**40, 2**40, 1], [-1, 8, 1], [0, 0, 0], 1000000, [1000000], "object", "raw", "qubo"),
    ]
    return pool[int(generator.integers(0, len(pool)))]


def mutate_document(document: Any, generator: np.random.Generator) -> Any:
    """A JSON document with one or two values replaced, removed, renamed or added."""
    changed = copy.deepcopy(document)
    for _ in range(generator.integers(1, 3)):
        holder, key = _place(changed, generator)
        if holder is None:
            continue
        kind = generator.integers(0, 8)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        elif kind == 2 and isinstance(holder, dict):
            holder["new"] = _hostile(generator)
        elif kind == 3:
            holder[key] = _nearby(holder[key], generator)
        else:
            holder[key] = _hostile(generator)
    return changed


def _place(document: Any, generator: np.random.Generator) -> tuple[Any, Any]:
    """A place in the document: shallow ones as likely as deep ones."""
    holder, found = document, (None, None)
    while isinstance(holder, dict | list) and holder:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = keys[int(generator.integers(0, len(keys)))]
        found = holder, key
        if generator.random() < 0.35:
            break
        holder = holder[key]
    return found


def _nearby(value: Any, generator: np.random.Generator) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return generator.choice([-1, 2, 0.5, 1000]) * value
    if isinstance(value, str):
        return value[::-1] + "?"
    if isinstance(value, list):
        return [*value, *value] if generator.random() < 0.5 else value[:-1]
    return _hostile(generator)


def mutate_tensors(tensors: dict[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays of which one is gone, or of another type, shape or content."""
    changed = {name: tensor.copy() for name, tensor in tensors.items()}
    name = list(changed)[int(generator.integers(0, len(changed)))]
    tensor = changed[name]
    kind = int(generator.integers(0, 11))
    special = [np.nan, np.inf, -np.inf, 1e100, -1e100, 1e-300, -1.0, 0.0]
    if kind == 0:
        del changed[name]
    elif kind == 1:
        changed[name] = tensor.astype(np.float32)
    elif kind == 2:
        changed[name] = np.nan_to_num(tensor).clip(-1e6, 1e6).astype(np.int64)
    elif kind == 3:
        changed[name] = tensor.reshape(-1)
    elif kind == 4:
        changed[name] = tensor.T.copy()
    elif kind == 5:
        changed[name] = tensor[:-1] if tensor.ndim else tensor
    elif kind == 6:
        changed[name] = np.concatenate([tensor, tensor]) if tensor.ndim else tensor
    elif kind == 7:
        changed[name] = np.zeros((0, *tensor.shape[1:]), tensor.dtype)
    elif kind == 8:
        changed[name] = tensor.astype(bool)
    elif kind == 9:
        changed[f"{name}.more"] = tensor
    elif tensor.size and tensor.dtype.kind == "f":
        tensor.flat[int(generator.integers(0, tensor.size))] = special[int(generator.integers(0, len(special)))]
    elif tensor.size and tensor.dtype.kind in "iu":
        tensor.flat[int(generator.integers(0, tensor.size))] = [-1, 0, 10**12, -(2**62)][int(generator.integers(0, 4))]
    return changed
