"""Texts of each form of Python that legacy manifests embed, with numbers of our own.

A form is a sequence of tokens, so that names and their order are given. White space, comments and
numbers are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["POSTPROCESS", "PREPROCESS"]


def _indented(text: str) -> str:
    return "".join(f"   {line}\n" for line in text.strip().splitlines())


def _function(name: str, parameters: str, *lines: str) -> str:
    return f"def {name}({parameters}):\n" + _indented("\n".join(lines))


def _main(name: str, *lines: str) -> str:
    return _function(name, "ctx, data", *lines)


def _torchvision(*transforms: str) -> str:
    """Return a pipeline of torchvision's transforms."""
    steps = "\n".join(transforms)
    read = "img = Image.open(dataset[int(data)]).convert('RGB')"
    return (
        "from torchvision import transforms\nfrom PIL import Image\n"
        f"preprocessor = transforms.Compose([ # in this order\n{steps}\n])\n"
        + _main("preprocess", read, "return preprocessor(img).numpy()")
    )


_RESIZE = "transforms.Resize(40),"
_CROP = "transforms.CenterCrop(32),"
_TO_TENSOR = "transforms.ToTensor(),"
_NORMALIZE = "transforms.Normalize(mean=[.5, .25, .125], std=[.2, .1, .4])"
_SHARES = "transforms.Normalize(mean=[12/255, 11/255, 10/255],\n  std=[20/255, 30/255, 40/255])"

_IMPORTS = "import numpy as np\nimport cv2\n"
_READ = "img = cv2.imread(dataset[int(data)])"
_TO_RGB = "img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)"
_FLOATS = "img = np.asarray(img, dtype='float32')"
_BYTES = "img = np.asarray(img, dtype='uint8')"
_CHANNELS_FIRST = "img = img.transpose([2, 0, 1])"
_LAYOUT = ("if need_transpose:", "  img = img.transpose([2, 0, 1])", "return img")
_IMAGE = "img, dims=None, need_transpose=False"

_CENTER_CROP = _function(
    "center_crop",
    "img, out_height, out_width",
    "height, width, _ = img.shape",
    *(
        f"{side} = int(({length} {sign} out_{length}) / 2)"
        for side, length, sign in (
            ("left", "width", "-"),
            ("right", "width", "+"),
            ("top", "height", "-"),
            ("bottom", "height", "+"),
        )
    ),
    "img = img[top:bottom, left:right]",
    "return img",
)
_KEEP_ASPECT = _function(
    "resize_with_aspectratio",
    "img, out_height, out_width, scale=87.5, inter_pol=cv2.INTER_LINEAR",
    "height, width, _ = img.shape",
    "new_height = int(100. * out_height / scale)",
    "new_width = int(100. * out_width / scale)",
    "if height > width:",
    "  w = new_width",
    "  h = int(new_height * height / width)",
    "else:",
    "  h = new_height",
    "  w = int(new_width * width / height)",
    "img = cv2.resize(img, (w, h), interpolation=inter_pol)",
    "return img",
)
_OUTPUT_SIZE = "img, output_height, output_width"
_CUT = f"img = center_crop({_OUTPUT_SIZE})"
_SIZE = "output_height, output_width, _ = dims"
_SUBTRACT = ("means = np.array([30, 20, 10])", "img -= means")


def _mlperf(
    *changes: str, name: str = "preprocess_image", transpose: bool = False, rgb: bool = True
) -> str:
    """Return MLPerf's code for pictures of 28 x 28, with the way that it changes floats."""
    lines = (
        *([_TO_RGB] if rgb else []),
        _SIZE,
        "cv2_interpol = cv2.INTER_AREA",
        f"img = resize_with_aspectratio({_OUTPUT_SIZE}, inter_pol=cv2_interpol)",
        _CUT,
        _FLOATS,
        *changes,
        *_LAYOUT,
    )
    call = f"return {name}(img, [28, 28, 3], {transpose})"
    parts = (_IMPORTS, _CENTER_CROP, _KEEP_ASPECT, _function(name, _IMAGE, *lines))
    return "".join(parts) + _main("preprocess", _READ, call)


def _mobilenet() -> str:
    name = "pre_process_mobilenet"
    lines = (
        _TO_RGB,
        _SIZE,
        f"img = resize_with_aspectratio({_OUTPUT_SIZE}, inter_pol=cv2.INTER_LINEAR)",
        _CUT,
        _FLOATS,
        "img /= 255.0",
        "img -= 0.5",
        "img *= 2",
        *_LAYOUT,
    )
    parts = (_IMPORTS, _CENTER_CROP, _KEEP_ASPECT, _function(name, _IMAGE, *lines))
    return "".join(parts) + _main("preprocess", _READ, f"return {name}(img, [28, 28, 3], True)")


def _cifar(*unreachable: str) -> str:
    lines = (
        _TO_RGB,
        "img = cv2.resize(img, (32, 16))  # width, height",
        "img = np.asarray(img, dtype = 'float32') / 255",
        "means = np.array([.5, .25, .125])",
        "std = np.array([.2, .1, .4])",
        "img = (img - means) / std",
        _CHANNELS_FIRST,
        "return img",
    )
    result = "return np.ascontiguousarray(preprocess_cifar(img), dtype=np.float32)"
    function = _function("preprocess_cifar", "img", *lines)
    return _IMPORTS + function + _main("preprocess", _READ, result, *unreachable)


def _maybe_resize(*remember: str) -> str:
    return _function(
        "maybe_resize",
        "img, dims",
        "img = np.array(img, dtype=np.float32)",
        "if len(img.shape) < 3 or img.shape[2] != 3:",
        "  img = cv2.cvtColor(img, cv2.COLOR_GRAY2RGB)",
        _TO_RGB,
        *remember,
        "if dims != None:",
        "  im_height, im_width, _ = dims",
        "  img = cv2.resize(img, (im_width, im_height), interpolation=cv2.INTER_LINEAR)",
        "return img",
    )


def _coco(name: str, *changes: str, transpose: bool = False) -> str:
    """Return MLPerf's code for COCO."""
    lines = ("img = maybe_resize(img, dims)", *changes, *_LAYOUT)
    call = f"return {name}(img, [24, 36, 3], {transpose})"
    parts = (_IMPORTS, _maybe_resize(), _function(name, _IMAGE, *lines))
    return "".join(parts) + _main("preprocess", _READ, call)


def _plain(*changes: str) -> str:
    """Return code that doesn't resize."""
    function = _function("preprocess_image", _IMAGE, _TO_RGB, *changes, *_LAYOUT)
    return _IMPORTS + function + _main("preprocess", _READ, "return preprocess_image(img)")


_REMEMBER = ("wlist.append(img.shape[1])", "hlist.append(img.shape[0])")
_LISTS = "wlist, hlist = [], []\n"
_COCO_MEAN = "mean = np.array([30, 20, 10], dtype=np.float32)"


def _deeplab() -> str:
    lines = (_TO_RGB, "img = maybe_resize(img, dims)", _BYTES, *_LAYOUT)
    parts = (_IMPORTS, _LISTS, _maybe_resize(*_REMEMBER))
    function = _function("preprocess_image", _IMAGE, *lines)
    call = "return preprocess_image(img, dims = [24, 36, 3])"
    return "".join(parts) + function + _main("preprocess", _READ, call)


def _remembering() -> str:
    text = _plain(_BYTES, *_REMEMBER)
    return text.replace(_IMPORTS, _IMPORTS + _LISTS)


def _tokens() -> str:
    names = ("input_ids", "input_mask", "segment_ids")
    arrays = ", ".join(f"np.array(cur.{name}, dtype = np.int64)" for name in names)
    first = ("import numpy as np", "cur = eval_features[int(data)]")
    return _main("preprocess", *first, f"return {arrays}")


def _volume() -> str:
    return _main(
        "preprocess",
        "import numpy as np",
        "file_name = qsl.preprocess_files[int(data)]",
        'f = open(os.path.join(qsl.preprocessed_data_dir, "{:}.pkl".format(file_name)), "rb")',
        "res = pickle.load(f)[0]",
        "f.close()",
        "return res",
    )


def _bgr() -> str:
    means = ("means = np.array([10, 20, 30])", "img -= means")
    lines = (_READ, _FLOATS, *means, _CHANNELS_FIRST, "return img")
    return _IMPORTS + _main("preprocess", *lines)


PREPROCESS: Mapping[str, str] = {
    "torchvision": _torchvision(_RESIZE, _CROP, _TO_TENSOR, _NORMALIZE),
    "torchvision_shares": _torchvision(_RESIZE, _CROP, _TO_TENSOR, _SHARES),
    "torchvision_stretch": _torchvision("transforms.Resize((24, 36)),", _TO_TENSOR, _NORMALIZE),
    "torchvision_as_is": _torchvision(_TO_TENSOR, _NORMALIZE),
    "torchvision_to_tensor": _torchvision(_TO_TENSOR),
    "mlperf_scale": _mlperf(*_SUBTRACT, "scale = 50", "img /= scale"),
    "mlperf": _mlperf(*_SUBTRACT),
    "mlperf_vgg": _mlperf(*_SUBTRACT, name="pre_process_vgg"),
    "mlperf_vgg_channels_first": _mlperf(*_SUBTRACT, name="pre_process_vgg", transpose=True),
    "mlperf_without_means": _mlperf(transpose=True),
    "mlperf_bgr": _mlperf("means = np.array([10, 20, 30])", "img -= means", rgb=False),
    "mlperf_mobilenet": _mobilenet(),
    "cifar": _cifar(),
    "cifar_unreachable": _cifar("return preprocessor(img).numpy()"),
    "coco_mobilenet": _coco("pre_process_coco_mobilenet", "img = np.asarray(img, dtype=np.uint8)"),
    "coco_resnet": _coco(
        "pre_process_coco_resnet34",
        "mean = np.array([.5, .25, .125], dtype=np.float32)",
        "std = np.array([.2, .1, .4], dtype=np.float32)",
        "img = img / 255. - mean",
        "img = img / std",
        transpose=True,
    ),
    "coco_resnet_means": _coco("pre_process_coco_resnet34", _COCO_MEAN, "img = img - mean"),
    "deeplab": _deeplab(),
    "as_is": _plain(_BYTES),
    "as_is_remembering": _remembering(),
    "shares": _plain("img = np.asarray(img, dtype='float32') / 255"),
    "bgr": _bgr(),
    "tokens": _tokens(),
    "volume": _volume(),
}
"""A text of each form of ``preprocess``."""


def _post(*lines: str, imports: str = "") -> str:
    return imports + _main("postprocess", *lines)


_NUMPY = "import numpy as np\n"
_JSON = "import json\nimport numpy as np\n"
_BEST = "return [json.dumps([x.item()]) for x in np.argmax(data[{}], axis = 1)]"


def _rows(kinds: Sequence[str], taken: str, *changes: str) -> str:
    """Return code that collects boxes and what belongs to them row by row."""
    names = [f"{kind}s" if kind != "prob" else "probs" for kind in kinds]
    names = [name.replace("boxs", "boxes") for name in names]
    lines = [_empty(names), "for i in range(len(data[0])):"]
    lines.append("  " + _empty([f"cur_{name}" for name in names]))
    lines.append("  for j in range(len(data[0][i])):")
    lines.append(f"    {', '.join(kinds)} = {taken}")
    lines += [f"    {change}" for change in changes]
    lines += [f"    cur_{name}.append({kind})" for kind, name in zip(kinds, names, strict=True)]
    lines += [f"  {name}.append(cur_{name})" for name in names]
    return _post(*lines, f"return {', '.join(names)}")


def _empty(names: Sequence[str]) -> str:
    return f"{', '.join(names)} = {', '.join('[]' for _ in names)}"


def _lists(*lines: str, imports: str = "") -> str:
    """Return code that begins with empty lists for each picture."""
    names = ("probabilities", "classes", "boxes")
    return _post(
        "n = len(data[0])",
        *(f"{name} = []" for name in names),
        "for i in range(n):",
        *(f"  {name}.append([])" for name in names),
        *(f"  {line}" for line in lines),
        "return probabilities, classes, boxes",
        imports=imports,
    )


def _detections(places: Sequence[int], order: Sequence[int], *before: str) -> str:
    """Return code for outputs of boxes, classes and scores at these places."""
    numbers = ", ".join(f"box[{number}]" for number in order)
    depth = "    " if before and before[0].endswith("= .5:") else "  "
    first = list(before)
    kept = (
        "probabilities[-1].append(scores[detection])",
        "classes[-1].append(float(detection_classes[detection]))",
        "box = detection_boxes[detection]",
        f"boxes[-1].append([{numbers}])",
    )
    return _lists(
        f"detection_boxes = data[{places[0]}][i]",
        f"detection_classes = data[{places[1]}][i]",
        f"scores = data[{places[2]}][i]",
        "for detection in range(len(scores)):",
        *(f"  {line}" for line in first),
        *(f"{depth}{line}" for line in kept),
    )


def _scored() -> str:
    return _lists(
        "detection_boxes = data[1][i]",
        "detection_classes = np.argmax(data[0][i], axis = 1)",
        "scores = np.max(data[0][i], axis = 1)",
        "for detection in range(len(scores)):",
        "  if detection_classes[detection] == 3:",
        "    continue",
        "  probabilities[-1].append(scores[detection])",
        "  classes[-1].append(detection_classes[detection])",
        "  box = detection_boxes[detection]",
        "  boxes[-1].append([box[1], box[0], box[3], box[2]])",
        imports=_NUMPY,
    )


def _painted() -> str:
    """Return code that paints objects into one picture."""
    return _post(
        "masks, labels = [], [0]",
        "n = len(data[0])",
        "for i in range(n):",
        "  h, w = hlist[-(n - i)], wlist[-(n - i)]",
        "  cur_masks = np.zeros((h, w))",
        "  for j in range(len(data[0][i])):",
        "    prob, label, box, mask = data[1][i][j], data[0][i][j], "
        "data[2][i][j].tolist(), data[3][i][j]",
        "    if prob > .6:",
        "      labels.append(label)",
        "      ymin, xmin, ymax, xmax = "
        "int(box[0] * h), int(box[1] * w), int(box[2] * h), int(box[3] * w)",
        "      ymin = max(ymin, 0)",
        "      xmin = max(xmin, 0)",
        "      ymax = min(ymax, h)",
        "      xmax = min(xmax, w)",
        "      mask = cv2.resize(mask, (xmax - xmin, ymax - ymin)).tolist()",
        "      for y in range(ymax - ymin):",
        "        for x in range(xmax - xmin):",
        "          if mask[y][x] > .4 and cur_masks[y + ymin][x + xmin] == 0:",
        "            cur_masks[y + ymin][x + xmin] = len(labels) - 1",
        "  masks.append(cur_masks.tolist())",
        "return masks, labels",
        imports=_IMPORTS,
    )


_OBJECT = ("prob", "label", "box")
_TAKEN = "data[1][i][j], data[0][i][j], data[2][i][j].tolist()"

POSTPROCESS: Mapping[str, str] = {
    "softmax": _post(
        "return softmax(data[1], axis = 1).tolist()", imports="from scipy.special import softmax\n"
    ),
    "as_is": _post("return data[1].tolist()"),
    "best": _post(_BEST.format("1"), imports=_JSON),
    "without_background": _post("return data[1][:, 1:].tolist()"),
    "best_without_background": _post(_BEST.format("1][:, 1:"), imports=_JSON),
    "objects": _rows(_OBJECT, _TAKEN),
    "objects_x_first": _rows(
        _OBJECT,
        "data[2][i][j], data[1][i][j], data[0][i][j].tolist()",
        "box = [box[1], box[0], box[3], box[2]]",
    ),
    "pixels": _rows(
        _OBJECT,
        "data[1][i][j][0], data[0][i][j][0], data[2][i][j].tolist()",
        "if label == -1:",
        "  continue",
        "box = [box[1] / 24, box[0] / 36, box[3] / 24, box[2] / 36]",
    ),
    "detections_until": _detections(
        (0, 1, 2), (1, 0, 3, 2), "if scores[detection] < .5:", "  break"
    ),
    "detections": _detections((1, 3, 2), (0, 1, 2, 3)),
    "detections_from": _detections((1, 3, 2), (0, 1, 2, 3), "if scores[detection] >= .5:"),
    "scored": _scored(),
    "classes_of_pixels": _post("return np.argmax(data[1], axis = 1).tolist()", imports=_NUMPY),
    "resized_classes": _post(
        "n = len(data[0])",
        "res = []",
        "for i in range(n):",
        "  cur = data[0][i]",
        "  cur = cv2.resize(cur, (wlist[-(n - i)], hlist[-(n - i)]), "
        "interpolation = cv2.INTER_NEAREST)",
        "  res.append(cur.tolist())",
        "return res",
    ),
    "painted": _painted(),
    "masks": _rows((*_OBJECT, "mask"), f"{_TAKEN}, data[3][i][j].tolist()"),
    "printed": _post("print(data)"),
    "picture": _post(
        "return (255 * np.transpose(data[1], axes=[0, 2, 3, 1])).tolist()", imports=_NUMPY
    ),
    "spans": _post(
        "import numpy as np",
        "import json",
        "res = np.stack([data[0], data[1]], axis = -1).squeeze(0).tolist()",
        "return [json.dumps(res)]",
    ),
    "volume": _post(
        "import numpy as np",
        "import json",
        "return [json.dumps(data[1].squeeze(0).astype(np.float16).tolist())]",
    ),
}
"""A text of each form of ``postprocess``."""
