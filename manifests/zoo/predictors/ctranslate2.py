"""CTranslate2's Whisper models: ``graph`` is a folder with model.bin, its vocabulary and config.

Versions: tested with 4.8.

Devices: cpu.

Synchronises: ``generate`` returns when all tokens are in host memory.

Options: none. The models are those for English alone.
"""

import ctranslate2
import numpy
from mlms_predictors import Arrays, Devices, Load, Loaded, Outputs, Tensor, Versions
from mlms_predictors._run.checks import file_of, refuse_gpu, refuse_unknown

_START = 50257
_NO_TIMESTAMPS = 50362
_BANDS = 80
_FRAMES = 3000
_LENGTH = 224  # tokens
_PADDING = -1


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"ctranslate2": ctranslate2.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Load a model; raises RuntimeError where CTranslate2 can't."""
    refuse_gpu(request.device, "CTranslate2")
    refuse_unknown(request.options, ())
    threads = request.threads or 1
    folder = file_of(request.files, "graph", "a folder with model.bin")
    model = ctranslate2.models.Whisper(folder, intra_threads=threads, compute_type="float32")
    inputs = [Tensor("features", "float32", (None, _BANDS, _FRAMES))]
    outputs = [Tensor("tokens", "int32", (None, _LENGTH))]
    return Loaded(model, "cpu", threads, inputs, outputs)


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Decode greedily; rows of tokens are filled up with -1."""
    prompt = [_START, _NO_TIMESTAMPS]
    features = numpy.ascontiguousarray(arrays["features"])
    view = ctranslate2.StorageView.from_array(features)
    results = loaded.model.generate(view, [prompt] * len(features), beam_size=1, max_length=_LENGTH)
    tokens = numpy.full((len(features), _LENGTH), _PADDING, numpy.int32)
    for number, result in enumerate(results):
        ids = result.sequences_ids[0]
        tokens[number, : len(ids)] = ids
    return [tokens]
