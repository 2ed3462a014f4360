"""A predictor that refuses to load, and tells whether it may run a model's code."""


def versions():
    return {"teller": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    permission = "allowed" if request.allow_code else "forbidden"
    raise PermissionError("code is %s" % permission)


def predict(loaded, arrays):
    return []
