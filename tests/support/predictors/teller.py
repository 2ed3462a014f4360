"""Tells, by refusing to load, whether it may run a model's code."""


def versions():
    return {"teller": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    raise PermissionError("code is %s" % ("allowed" if request.allow_code else "forbidden"))


def predict(loaded, arrays):
    return []
