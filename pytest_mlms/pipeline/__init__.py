"""From a dataset's elements to a model's inputs, and from its outputs to scores."""

from pytest_mlms.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.pipeline.inputs import preprocess
from pytest_mlms.pipeline.outputs import postprocess, read_labels, top_k

__all__ = [
    "Dataset",
    "open_dataset",
    "postprocess",
    "preprocess",
    "read_labels",
    "top_k",
]
