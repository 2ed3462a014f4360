"""The check that a model of Keras has no weights in other files, which HDF5 would read."""

import contextlib
import zipfile

import h5py
from mlms_predictors._run.zip_files import begins_as_zip


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
    if not begins_as_zip(path):
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
