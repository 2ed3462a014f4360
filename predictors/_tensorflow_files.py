"""The check of a Keras file before Keras reads it: no code, and no weights in other files.

Keras' own checks differ between versions, and each had holes, so the configuration is read here.
"""

import builtins
import contextlib
import json
import re
import zipfile

import h5py

_ADVICE = "allow it with --mlms-allow-code"
_LAYERS_WITH_CODE = (
    "Lambda",
    "__lambda__",
    "TFSMLayer",
    "TorchModuleWrapper",
    "JaxLayer",
    "FlaxLayer",
)
_OBJECTS = re.compile(
    r"""keras (\.src)? (\. (engine|layers|models|ops|activations|initializers|regularizers
        | constraints|optimizers|losses|metrics|dtype_policies|mixed_precision|quantizers|random
        | legacy) (\.\w+)* )?""",
    re.VERBOSE,
)
"""Modules of Keras with classes of models; others have functions that load, download and write."""
_FUNCTIONS = re.compile(
    r"""keras\.(src\.)? (ops|activations|initializers|regularizers|constraints|losses|metrics)
        (\.\w+)*""",
    re.VERBOSE,
)
_CLASS = re.compile(r"[A-Z_]\w*")
"""Names of Keras' classes; its functions, which a node can call, have small letters."""
_VOCABULARIES = ("vocabulary", "idf_weights")
"""Keys of layers whose values are lists, or files to read."""


def refuse_code(path: str) -> None:
    """Raise RuntimeError where a .keras or .h5 file names code, or classes of others than Keras."""
    try:
        values = [_configuration(path)]
    except (ValueError, RecursionError, KeyError, zipfile.BadZipFile) as error:
        raise RuntimeError("its configuration can't be read: %.80s" % error) from error
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            values += value.values()
            _check_object(value)


def _configuration(path):
    """Return the JSON of a model; how it was trained is left out, as it isn't read."""
    if path.endswith(".keras"):
        with zipfile.ZipFile(path) as archive:
            found = json.loads(archive.read("config.json").decode())
        return {**found, "compile_config": None}
    with h5py.File(path, "r") as file:
        text = file.attrs["model_config"]
    return json.loads(text if isinstance(text, str) else text.decode())


def _check_object(value):
    """Raise RuntimeError where an object of a configuration isn't one of Keras' own."""
    name = value.get("class_name")
    if name in _LAYERS_WITH_CODE:
        raise RuntimeError("a layer is code: %s; %s" % (name, _ADVICE))
    module = value.get("module") or "keras"
    named = value.get("config") if name == "function" else name
    if name is not None and not _is_of_keras(name, module, named):
        raise RuntimeError(
            "%.80s of %.80s is none of Keras' classes; %s" % (named, module, _ADVICE)
        )
    for key in _VOCABULARIES:
        if isinstance(value.get(key), str):
            raise RuntimeError("a layer reads the file %.80s; %s" % (value[key], _ADVICE))


def _is_of_keras(name, module, named):
    if not (isinstance(module, str) and isinstance(named, str)):
        return False
    if name == "function":
        # Keras writes "builtins" for functions of its own, and old ones look there after all.
        is_own = module == "builtins" and not hasattr(builtins, named)
        return is_own or _FUNCTIONS.fullmatch(module) is not None
    return _OBJECTS.fullmatch(module) is not None and _CLASS.fullmatch(name) is not None


def refuse_links(path: str) -> None:
    """Raise RuntimeError where the weights of a .keras or .h5 file are in another file, or linked.

    Soft links are refused, too: they may lead to external ones.
    """
    with contextlib.ExitStack() as stack:
        for part in _parts(path, stack):
            file = stack.enter_context(h5py.File(part, "r"))
            _check_group(file)
            file.visititems(_check)


def _parts(path, stack):
    """Return the HDF5 files in a model: those in the zip file, or the model itself."""
    if not path.endswith(".keras"):  # Keras looks at the name, and an .h5 may begin as a zip
        return [path]
    archive = stack.enter_context(zipfile.ZipFile(path))
    names = [name for name in archive.namelist() if name.endswith(".h5")]
    return [stack.enter_context(archive.open(name)) for name in names]


def _check(name, item):
    if isinstance(item, h5py.Group):
        _check_group(item)
    elif item.external or item.is_virtual:
        raise RuntimeError("weights %r are in another file; save the model whole" % name)


def _check_group(group):
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise RuntimeError("weights %r are a link; save the model whole" % name)
