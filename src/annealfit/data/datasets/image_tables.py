"""Images that are read, and resized, when they are asked for: folders of more of them than memory holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from annealfit._support.errors import InvalidInputError
from annealfit.data.datasets.images import ImagePreparation
from annealfit.data.datasets.parts import Part
from annealfit.data.rows import SlicedTable


class ImageTable(SlicedTable):
    """The chosen images of a part, (N, H, W) or (N, H, W, 3), prepared as a model sees them; read at every look."""

    def __init__(self, part: Part, chosen: NDArray[np.intp], preparation: ImagePreparation) -> None:
        self._part, self._chosen, self._preparation = part, chosen, preparation
        first = prepared_images(part, chosen[:1], preparation)
        self.source, self.shape, self.dtype = part, (len(chosen), *first.shape[1:]), first.dtype

    def __getitem__(self, rows: Any) -> NDArray[np.float64]:
        return prepared_images(self._part, self._chosen[rows], self._preparation)


def prepared_images(part: Part, chosen: NDArray[np.intp], preparation: ImagePreparation) -> NDArray[np.float64]:
    """The chosen images, and only they, as a model sees them."""
    stacks = [preparation(stack) for stack in part.pick(chosen)]
    if len({stack.shape[1:] for stack in stacks}) > 1:
        sizes = sorted({f"{stack.shape[1]}×{stack.shape[2]}" for stack in stacks})
        raise InvalidInputError(
            f"the images have different sizes ({', '.join(sizes[:4])}); give a size to resize them to"
        )
    return np.concatenate(stacks)
