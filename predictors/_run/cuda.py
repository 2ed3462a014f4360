"""The few calls of CUDA's driver that a predictor without a framework's own memory needs, by
ctypes.

The driver's library is on every machine that has a GPU to use, whatever toolkit is installed.
Handles of its primary context can be given to libraries that use the CUDA runtime.
"""

import ctypes

_P = ctypes.c_void_p


class Device:
    """One GPU: memory, a stream, and copies on that; raises RuntimeError with CUDA's words."""

    def __init__(self, ordinal):
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise RuntimeError("there is no CUDA driver here (libcuda.so.1)") from error
        self._call("cuInit", ctypes.c_uint(0))
        device, context, stream = ctypes.c_int(), _P(), _P()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call(
            "cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1)
        )  # waits for no other stream
        self.stream, self._device = stream.value, device

    def allocate(self, size):
        """Return the address of ``size`` bytes on the GPU; no bytes are one."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        """Give the memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address, array):
        """Copy a contiguous array to the GPU, in the stream's turn."""
        size = ctypes.c_size_t(array.nbytes)
        self._call(
            "cuMemcpyHtoDAsync_v2",
            ctypes.c_uint64(address),
            _P(array.ctypes.data),
            size,
            _P(self.stream),
        )

    def download(self, array, address):
        """Copy from the GPU into a contiguous array, in the stream's turn."""
        size = ctypes.c_size_t(array.nbytes)
        self._call(
            "cuMemcpyDtoHAsync_v2",
            _P(array.ctypes.data),
            ctypes.c_uint64(address),
            size,
            _P(self.stream),
        )

    def synchronize(self):
        """Wait until the stream has done everything."""
        self._call("cuStreamSynchronize", _P(self.stream))

    def close(self):
        """Give stream and context back."""
        self._call("cuStreamDestroy_v2", _P(self.stream))
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _call(self, name, *arguments):
        status = getattr(self._driver, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError("%s: %s" % (name, (text.value or b"error %d" % status).decode()))
