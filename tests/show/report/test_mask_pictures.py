"""Pictures of masks."""

from __future__ import annotations

import numpy as np

from pytest_mlms.measure.evaluate.tasks.task import MaskPair
from pytest_mlms.show.report.mask_pictures import draw_masks

YELLOW = (255, 214, 10)


def test_each_instance_has_a_colour_and_each_label_an_outline() -> None:
    found = np.zeros((12, 24), np.int32)
    found[3:9, 2:8] = 1
    found[3:9, 14:20] = 2
    label = np.zeros((12, 24), np.int32)
    label[2:10, 1:9] = 1
    picture = draw_masks(None, MaskPair(label, found, are_instances=True))
    first, second, ground, edge = (
        picture.getpixel(at) for at in ((5, 5), (17, 5), (11, 5), (1, 5))
    )
    assert len({first, second, ground, edge}) == 4
    assert ground == (128, 128, 128)
    assert edge == YELLOW


def test_objects_that_touch_are_told_apart() -> None:
    label = np.ones((8, 8), np.int32)
    label[:, 4:] = 2
    picture = draw_masks(None, MaskPair(label, np.zeros_like(label), are_instances=True))
    assert [picture.getpixel((x, 4)) == YELLOW for x in (2, 3, 4, 5)] == [False, True, True, False]
