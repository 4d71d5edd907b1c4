"""Programs cannot get at the package that grades them, nor at hidden tests that lie among readable files."""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tipprobe

OWNER = """
import json, sys
import tipprobe
from tipprobe.sandbox import IsolationError, Job, Sandbox
source, level = sys.argv[1:]
with Sandbox(1, min_isolation=level, max_isolation=level) as pool:
    try:
        (runs,) = pool.run([Job(source, ("",))])
    except IsolationError as error:
        print(json.dumps({"skip": str(error)}))
    else:
        said = runs[0].stdout.decode() + runs[0].stderr_tail
        print(json.dumps({"package": tipprobe.__file__, "run": said}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with a copy of the package in its site-packages, as an install leaves it."""
    folder = tmp_path_factory.mktemp("installed") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    package = Path(tipprobe.__file__).parent
    shutil.copytree(package, site / "tipprobe", ignore=shutil.ignore_patterns("__pycache__", "weights"))
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "others.pth").write_text("\n".join(others))
    (site / "neighbour.py").write_text("NAME = 'neighbour'\n")
    (site / "cache").mkdir()
    (site / "cache" / "hidden_tests.jsonl").write_text("expected\n")
    return folder, site


@pytest.fixture(params=["process", "seccomp", "landlock", "namespaces"])
def attempt(request, environment):
    """Runs a program at one level, with the installed copy as its grader; returns (level, what it said)."""

    def run(source):
        command = [environment[0] / "bin" / "python", "-I", "-c", OWNER, source, request.param]
        variables = {"HF_HOME": str(environment[1] / "cache"), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command, env=variables, cwd=environment[0], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        if "skip" in said:
            pytest.skip(said["skip"])
        assert Path(said["package"]).parent == environment[1] / "tipprobe"
        return request.param, said["run"]

    return run


@pytest.mark.parametrize("name", ["tipprobe", "tipprobe.problems.minicode", "tipprobe.sandbox.worker.wire"])
def test_the_package_cannot_be_imported(attempt, name):
    _, said = attempt(f"try: import {name}\nexcept ImportError as error: print(error)")
    assert said == f"No module named {name.split('.')[0]!r}\n"


def test_its_files_cannot_be_read_from_landlock_on(attempt, environment):
    site = environment[1]
    source = (
        "import sys\n"
        f"sys.path.append({str(site)!r})\n"
        "sys.meta_path[:] = [finder for finder in sys.meta_path if finder.__name__ != 'RefusePackage']\n"
        "import neighbour\n"
        "for attempt in (\n"
        f"    lambda: open({str(site / 'tipprobe' / '__init__.py')!r}).read(),\n"
        f"    lambda: open({str(site / 'tipprobe' / 'problems' / 'schema.py')!r}).read(),\n"
        f"    lambda: open({str(site / 'cache' / 'hidden_tests.jsonl')!r}).read(),\n"
        "    lambda: __import__('tipprobe.problems.schema').problems.schema.Problem,\n"
        "):\n"
        "    try: attempt()\n"
        "    except (OSError, ImportError): print('refused')\n"
        "    else: print('done')\n"
        "print(neighbour.NAME)\n"
    )
    level, said = attempt(source)
    word = "refused" if level in ("landlock", "namespaces") else "done"
    assert said == f"{word}\n" * 4 + "neighbour\n"
