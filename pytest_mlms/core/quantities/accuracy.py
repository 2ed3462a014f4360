"""Quantities of accuracy, of all tasks; docs/tasks.md says which task has which of them."""

from __future__ import annotations

from typing import Literal

from pytest_mlms.core.quantities.quantity import Column, Quantity, UpgradeRule


def accuracy_quantity(
    name: str,
    description: str,
    column: Column | None = None,
    *,
    unit: str = "fraction",
    better: Literal["lower", "higher"] = "higher",
    tolerance: float = 0.01,
) -> Quantity:
    """Return a quantity of accuracy, which a manifest limits under its name.

    ``tolerance`` is that of an upgrade, as ``UpgradeRule`` says. The other arguments are those of
    ``Quantity``.
    """
    return Quantity(
        name=name,
        unit=unit,
        better=better,
        kind="accuracy",
        description=description,
        limit_key=name,
        upgrade=UpgradeRule(tolerance=tolerance, samples="inputs"),
        column=column,
    )


def _column(table: str, title: str) -> Column:
    return Column(table, f"{title} (interval)", "interval")


_MASKS = "accuracy of pixels"
_PICTURES = "accuracy of pictures"
_NUMBERS = "accuracy of numbers"


def _objects(shapes: str, prefix: str) -> list[Quantity]:
    """Return COCO's quantities of objects that are found by their boxes or their masks."""
    table = f"accuracy of {shapes}"
    mean = f"COCO's mean average precision of {shapes}"
    return [
        accuracy_quantity(
            f"{prefix}ap", f"{mean}, over IoU thresholds of 0.5 to 0.95", _column(table, "AP")
        ),
        accuracy_quantity(f"{prefix}ap50", f"{mean} at an IoU of 0.5", Column(table, "AP50")),
        accuracy_quantity(f"{prefix}ap75", f"{mean} at an IoU of 0.75", Column(table, "AP75")),
        accuracy_quantity(
            f"{prefix}ar100",
            f"COCO's mean recall of {shapes}, with 100 detections of a category in an image",
            Column(table, "AR100"),
        ),
    ]


ACCURACY = [
    accuracy_quantity(
        "top1",
        "share of inputs whose label is the best class",
        _column("accuracy", "top-1"),
    ),
    accuracy_quantity(
        "top5",
        "share of inputs whose label is among the five best classes",
        _column("accuracy", "top-5"),
    ),
    accuracy_quantity(
        "f1_macro",
        "mean of the classes' F1 scores, over the classes that are a label or a best class",
    ),
    accuracy_quantity(
        "wer",
        "wrong words of all inputs, as a share of the labels' words",
        _column("accuracy of texts", "WER"),
        better="lower",
    ),
    accuracy_quantity(
        "cer",
        "wrong characters of all inputs, as a share of the labels' characters",
        _column("accuracy of texts", "CER"),
        better="lower",
    ),
    accuracy_quantity(
        "exact_match",
        "share of inputs that are as their labels, or as one of their answers",
        Column("accuracy of texts", "exact match"),
    ),
    accuracy_quantity(
        "answer_f1",
        "mean over the inputs of the F1 score of the words of an answer",
        _column("accuracy of texts", "answer F1"),
    ),
    accuracy_quantity(
        "bleu",
        "BLEU of all inputs, 0 to 100 %",
        _column("accuracy of texts", "BLEU"),
    ),
    accuracy_quantity(
        "chrf",
        "chrF of all inputs, 0 to 100 %",
        _column("accuracy of texts", "chrF"),
    ),
    accuracy_quantity(
        "rouge1",
        "mean over the inputs of ROUGE-1's F1 score",
        Column("accuracy of texts", "ROUGE-1"),
    ),
    accuracy_quantity(
        "rouge2",
        "mean over the inputs of ROUGE-2's F1 score",
        Column("accuracy of texts", "ROUGE-2"),
    ),
    accuracy_quantity(
        "rouge_l",
        "mean over the inputs of ROUGE-L's F1 score",
        _column("accuracy of texts", "ROUGE-L"),
    ),
    accuracy_quantity(
        "same_tokens",
        "tokens that are those of the labels, as a share of the labels' tokens",
        _column("accuracy of texts", "same tokens"),
    ),
    accuracy_quantity(
        "tokens_before_divergence",
        "tokens before the first that differs, as a share of the labels' tokens",
        Column("accuracy of texts", "before divergence"),
    ),
    *_objects("boxes", ""),
    *_objects("masks", "mask_"),
    accuracy_quantity(
        "miou",
        "mean of the classes' intersection over union, over the pixels of all inputs",
        _column(_MASKS, "mIoU"),
    ),
    accuracy_quantity(
        "pixel_accuracy",
        "share of the pixels whose class is right",
        Column(_MASKS, "pixels"),
    ),
    accuracy_quantity(
        "dice",
        "mean of the classes' Dice coefficients, over the pixels of all inputs",
        Column(_MASKS, "Dice"),
    ),
    accuracy_quantity(
        "psnr",
        "mean over the inputs of the peak signal-to-noise ratio",
        _column(_PICTURES, "PSNR"),
        unit="dB",
    ),
    accuracy_quantity(
        "ssim",
        "mean over the inputs of the structural similarity, by a Gaussian window",
        Column(_PICTURES, "SSIM"),
    ),
    accuracy_quantity(
        "ssim_uniform",
        "mean over the inputs of the structural similarity, by a uniform window of 7 pixels",
        Column(_PICTURES, "SSIM, uniform"),
    ),
    accuracy_quantity(
        "mae",
        "mean absolute error of the values, in the labels' unit",
        _column(_NUMBERS, "MAE"),
        unit="",
        better="lower",
    ),
    accuracy_quantity(
        "rmse",
        "root of the mean squared error of the values, in the labels' unit",
        Column(_NUMBERS, "RMSE"),
        unit="",
        better="lower",
    ),
    accuracy_quantity(
        "r2",
        "share of the labels' variance that is explained, pooled over an output's values",
        Column(_NUMBERS, "R²"),
    ),
    accuracy_quantity(
        "cosine",
        "mean over the inputs of the cosine between an output and its label",
        Column(_NUMBERS, "cosine"),
    ),
]
"""Quantities that tasks compute from outputs and labels, in the order of tables."""
