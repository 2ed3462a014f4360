"""From a dataset's elements to a model's inputs, and from its outputs to scores."""

from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.measure.pipeline.geometry import Geometry
from pytest_mlms.measure.pipeline.inputs import preprocess, start_state
from pytest_mlms.measure.pipeline.labels import LabelForm, Labels
from pytest_mlms.measure.pipeline.outputs import (
    best_classes,
    class_numbers,
    is_table,
    postprocess,
    read_labels,
    table_of,
    top_k,
)
from pytest_mlms.measure.pipeline.selection import without_corrupt

__all__ = [
    "Dataset",
    "Geometry",
    "LabelForm",
    "Labels",
    "best_classes",
    "class_numbers",
    "is_table",
    "open_dataset",
    "postprocess",
    "preprocess",
    "read_labels",
    "start_state",
    "table_of",
    "top_k",
    "without_corrupt",
]
