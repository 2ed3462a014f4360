"""Keys of legacy manifests, by the section that has them."""

from __future__ import annotations

TOP = (
    "name",
    "version",
    "framework",
    "container",
    "description",
    "references",
    "license",
    "hidden",
    "modality",
    "inputs",
    "output",
    "outputs",
    "model",
    "preprocess",
    "postprocess",
    "before_preprocess",
    "before_postprocess",
    "attributes",
)
STUB = (
    "name",
    "version",
    "framework",
    "type",
    "input",
    "output",
    "dataset_name",
    "features_url",
    "trained_url",
)
"""Keys of the stubs of 2017."""

FRAMEWORK = ("name", "version")
TYPED = ("type", "description", "parameters")
"""Keys of an input and an output."""

INPUT_PARAMETERS = (
    "element_type",
    "input_layer",
    "layer_name",
    "layout",
    "color_mode",
    "dimensions",
    "mean",
    "scale",
    "max_dimension",
    "min_dimension",
    "crop_dimensions",
    "crop_method",
    "crop_ratio",
    "keep_aspect_ratio",
    "input_type",
    "url",
)
LAYERS = (
    "probabilities_layer",
    "boxes_layer",
    "classes_layer",
    "masks_layer",
    "layer_name",
    "output_layer",
)
CORNERS = ("ymin_index", "xmin_index", "ymax_index", "xmax_index")
OUTPUT_PARAMETERS = (
    *LAYERS,
    *CORNERS,
    "element_type",
    "probabilities_transform",
    "features_url",
    "features_checksum",
    "dimensions",
    "scale_width",
    "scale_height",
    "background_index",
)
MODEL = (
    "base_url",
    "graph_path",
    "weights_path",
    "is_archive",
    "graph_checksum",
    "weights_checksum",
    "features_path",
    "features_checksum",
    "onnx_url",
    "onnx_checksum",
    "model_type",
)
CLAIMED = ("top1", "top5", "Top1", "Top5", "mAP", "Box AP")
"""Keys of attributes that claim an accuracy."""
