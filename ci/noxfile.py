"""Sessions that run the tests on every supported Python and pytest.

nox -f ci/noxfile.py [-s "tests-3.13(pytest='9')"]
"""

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
PYTESTS = ["8", "9"]
QUICK_TESTS = ("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "-q", "-m", "not slow")

nox.options.default_venv_backend = "venv"


@nox.session(python=PYTHONS)
@nox.parametrize("pytest", PYTESTS)
def tests(session: nox.Session, pytest: str) -> None:
    """Run all but the slow tests; arguments after -- go to pytest, such as -m slow."""
    session.chdir("..")
    session.install("--quiet", "--editable", ".[test]", f"pytest=={pytest}.*")
    session.run(*QUICK_TESTS, *session.posargs)


@nox.session(python=PYTHONS[:2])
def floors(session: nox.Session) -> None:
    """Run quick tests on the oldest versions that pyproject.toml permits, which uv can choose."""
    session.chdir("..")
    session.install("--quiet", "uv")
    oldest = ("--quiet", "--resolution", "lowest-direct", f"--python={session.bin}/python")
    session.run_install("uv", "pip", "install", *oldest, "--editable", ".[test]")
    session.run(*QUICK_TESTS, *session.posargs)
