"""The interface of predictors: the functions that the agent calls, and defaults for optional ones.

A predictor is a module with functions of agreed names. ``Predictor`` lists those that every module
has; ``tests/predictors/test_interface.py`` has mypy check each module against it. The optional
functions are the fields of ``Functions`` that ``REQUIRED`` does not name.

The agent asks one object, ``functions_of(module)``, instead of looking names up itself::

    predictor = functions_of(module)             # TypeError where a required function is missing
    call = predictor.bind(loaded, arrays)        # always there: predict with its arguments bound
    profiles = predictor.profiles(loaded, arrays, count)  # NotImplementedError without a profiler
    if predictor.has_layers: ...                 # to know that without calling
    if predictor.device_seconds is not None: ... # it, event_times, generate have no default
    predictor.close(loaded)                      # always there: does nothing by default

``bind`` returns the predictor's own callable, so that nothing is added to the timed loop.
"""

import functools
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .protocol import Load, Loaded, Profile, Structure

Versions = Dict[str, str]
"""Versions of what computes; the framework's own under the name of the predictor's file."""
Devices = List[str]
"""Devices that can be used here and now, such as ``cpu`` and ``cuda:0``."""
Arrays = Dict[str, Any]
"""Arrays by input name."""
Outputs = List[Any]
"""Arrays in the order of the model's outputs."""
Call = Callable[[], Outputs]
"""``predict`` without arguments: what the timed loop runs."""
CountedBytes = Dict[str, int]
"""Bytes by the name of the counter that tells them; empty where none does."""
EventTimes = Tuple[float, Optional[float]]
"""Seconds between the events of a call, and of one whose launches had a head start, or None."""
InnerOutputs = List[Tuple[str, Any]]
"""Output of each layer, by its name, in the order in which the layers ran."""
Shapes = Dict[str, Tuple[int, ...]]
"""Shapes by input name."""
Token = Tuple[int, Optional[float]]
"""The id of a token, and its log-probability; None where that isn't told."""

REQUIRED = ("versions", "devices", "load", "predict")

if TYPE_CHECKING:
    from typing import Protocol  # novm: Python 3.8, for type checkers only

    class Predictor(Protocol):
        """The functions that every predictor has."""

        def versions(self) -> Versions:
            """Return the versions of what computes."""

        def devices(self) -> Devices:
            """Return the devices that a model can be loaded on."""

        def load(self, request: Load) -> Loaded:
            """Load a model; return it with the device and threads that it really uses."""

        def predict(self, loaded: Loaded, arrays: Arrays) -> Outputs:
            """Run one batch; return when the outputs are in host memory."""

    class HasBind(Predictor, Protocol):
        """A predictor that prepares calls for the timed loop."""

        def bind(self, loaded: Loaded, arrays: Arrays) -> Call:
            """Return ``predict`` on these arrays as a call without arguments."""

    class HasLayers(Predictor, Protocol):
        """A predictor whose framework has a layer profiler."""

        def layers(self, loaded: Loaded, arrays: Arrays) -> Profile:
            """Run one batch under the framework's own profiler."""

    class HasProfiles(HasLayers, Protocol):
        """A predictor that profiles several calls in one session of the framework's."""

        def profiles(self, loaded: Loaded, arrays: Arrays, count: int) -> List[Profile]:
            """Run one batch ``count`` times under the framework's own profiler."""

    class HasTakesCupti(HasLayers, Protocol):
        """A predictor whose layer profiler may read CUPTI."""

        def takes_cupti(self, loaded: Loaded) -> bool:
            """Return whether it does for this model: no probe can read CUPTI meanwhile."""

    class HasInner(Predictor, Protocol):
        """A predictor that shows the outputs of layers."""

        def inner(self, loaded: Loaded, arrays: Arrays) -> InnerOutputs:
            """Run one batch; return what each layer gave."""

    class HasStructure(Predictor, Protocol):
        """A predictor that describes the model as a graph."""

        def structure(self, loaded: Loaded, shapes: Shapes) -> Structure:
            """Return the graph for inputs of these shapes; the loaded model stays as it is."""

    class HasDeviceSeconds(Predictor, Protocol):
        """A predictor that times calls by the device's own events."""

        def device_seconds(self, loaded: Loaded) -> float:
            """Return the seconds that the last call took on the device."""

    class HasEventTimes(HasDeviceSeconds, Protocol):
        """A predictor that can give the launches of a call a head start."""

        def event_times(self, loaded: Loaded, arrays: Arrays) -> EventTimes:
            """Return the seconds between events: of a call by itself, and with a head start."""

    class HasDeviceMemory(Predictor, Protocol):
        """A predictor whose framework counts the memory that it takes on a GPU."""

        def device_memory(self, loaded: Loaded) -> CountedBytes:
            """Return the largest number of bytes since the model began to load."""

    class HasGenerate(Predictor, Protocol):
        """A predictor of decoders, which give one token after the other."""

        def generate(self, loaded: Loaded, arrays: Arrays, limit: int) -> Iterator[Token]:
            """Yield the tokens after a prompt as they are known: ``limit`` of them at most."""

    class HasClose(Predictor, Protocol):
        """A predictor that frees what Python's garbage collection would not."""

        def close(self, loaded: Loaded) -> None:
            """Free the model; ``loaded`` is not used again."""


class Functions(NamedTuple):
    """All functions of one predictor; those that it does not have are defaults.

    The default of ``bind`` is a partial ``predict``, that of ``profiles`` is one call of ``layers``
    after another, that of ``takes_cupti`` says no, and that of ``close`` does nothing.
    ``profiles``, ``inner`` and ``structure`` raise NotImplementedError where the framework cannot
    tell. ``has_layers`` says whether ``profiles`` works. ``device_seconds`` and ``event_times`` are
    None where there are no such events, ``generate`` where nothing is generated, and
    ``device_memory`` returns nothing where there is no counter.
    """

    versions: Callable[[], Versions]
    devices: Callable[[], Devices]
    load: Callable[[Load], Loaded]
    predict: Callable[[Loaded, Arrays], Outputs]
    bind: Callable[[Loaded, Arrays], Call]
    profiles: Callable[[Loaded, Arrays, int], List[Profile]]
    inner: Callable[[Loaded, Arrays], InnerOutputs]
    structure: Callable[[Loaded, Shapes], Structure]
    takes_cupti: Callable[[Loaded], bool]
    close: Callable[[Loaded], None]
    device_seconds: Optional[Callable[[Loaded], float]]
    event_times: Optional[Callable[[Loaded, Arrays], EventTimes]]
    device_memory: Callable[[Loaded], CountedBytes]
    has_layers: bool
    generate: Optional[Callable[[Loaded, Arrays, int], Iterator[Token]]] = None


def functions_of(module: Any) -> Functions:
    """Return the functions of a predictor's module, with the defaults for those that it lacks.

    Raises TypeError where a required function is missing.
    """
    name = module.__name__.rpartition(".")[2]
    _check_required(module, name)
    layers = getattr(module, "layers", None)
    profiles = getattr(module, "profiles", None)
    return Functions(
        versions=module.versions,
        devices=module.devices,
        load=module.load,
        predict=module.predict,
        bind=getattr(module, "bind", functools.partial(_partial, module.predict)),
        profiles=profiles or _repeated(layers, name),
        inner=getattr(module, "inner", missing_function(name, "inner")),
        structure=getattr(module, "structure", missing_function(name, "structure")),
        takes_cupti=getattr(module, "takes_cupti", _takes_nothing),
        close=getattr(module, "close", _close_nothing),
        device_seconds=getattr(module, "device_seconds", None),
        event_times=getattr(module, "event_times", None),
        device_memory=getattr(module, "device_memory", _count_nothing),
        has_layers=bool(layers or profiles),
        generate=getattr(module, "generate", None),
    )


def _check_required(module, name):
    missing = [required for required in REQUIRED if not callable(getattr(module, required, None))]
    if missing:
        text = "%s.py is no predictor: it has no function %s; a predictor has at least %s"
        raise TypeError(text % (name, ", ".join(missing), ", ".join(REQUIRED)))


def _partial(predict, loaded, arrays):
    return functools.partial(predict, loaded, arrays)


def _repeated(layers, name):
    """Return ``profiles`` made of single calls of ``layers``."""
    if layers is None:
        return missing_function(name, "layers")
    return functools.partial(_one_by_one, layers)


def _one_by_one(layers, loaded, arrays, count):
    return [layers(loaded, arrays) for _ in range(count)]


def missing_function(name, function):
    def raise_error(*_: Any) -> None:
        raise NotImplementedError("%s.py has no %r" % (name, function))

    return raise_error


def _takes_nothing(loaded):
    """Leave CUPTI to the probes."""
    return False


def _count_nothing(loaded):
    return {}


def _close_nothing(loaded):
    """Leave the model to Python's garbage collection."""
