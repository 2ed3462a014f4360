# Sourced by the scripts in this folder: `venv EXTRAS` makes .venv with this project and its extras, if need be.

unset PYTHONDONTWRITEBYTECODE # images of containers set it; each of the tests' processes would compile the project again

venv() {
    local python=${PYTHON:-python3} stamp=.venv/installed-$1
    if [ ! -x .venv/bin/python ]; then
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
            echo "pytest-mlms needs Python 3.10 or later; name one: PYTHON=python3.11 bash $0" >&2
            exit 2
        }
        "$python" -m venv .venv || {
            rm -rf .venv
            echo "could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2
            exit 2
        }
    fi
    if [ ! "$stamp" -nt pyproject.toml ]; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$1]"
        .venv/bin/python -m compileall -q predictors # agents read bytecode, and write none
        touch "$stamp"
    fi
}
