"""The tests on every Python and pytest that are supported.

Nox -f ci/noxfile.py [-s "tests-3.13(pytest='9')"].
"""

import nox

nox.options.default_venv_backend = "venv"


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
@nox.parametrize("pytest", ["8", "9"])
def tests(session: nox.Session, pytest: str) -> None:
    """Run the tests but the slow ones; arguments after -- go to pytest, such as -m slow."""
    session.chdir("..")
    session.install("--quiet", "--editable", ".[test]", f"pytest=={pytest}.*")
    session.run("python", "-m", "pytest", "-n", "2", "-q", "-m", "not slow", *session.posargs)
