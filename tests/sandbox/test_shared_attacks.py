"""Hostile programs of ``../shared/cases/attacks``, where that folder lies beside the checkout.

They run only at levels that keep them in; a program that runs after each of them finds everything as it was.
"""

from pathlib import Path

import pytest

from tipprobe.sandbox import IsolationError, Job, Limits, Sandbox

ATTACKS = Path(__file__).resolve().parents[3] / "shared" / "cases" / "attacks"
FILES = sorted(ATTACKS.glob("*.py"))
pytestmark = [pytest.mark.skipif(not FILES, reason=f"no {ATTACKS}"), pytest.mark.slow]

LIMITS = Limits(cpu_s=1.0, wall_s=4.0, memory_mb=256, output_bytes=4 << 20)
# number in the file's name: what must come out, by its own first comment lines
STATUS = {
    "02": {"memory_limit", "cpu_limit"},
    "03": {"memory_limit", "cpu_limit"},
    "04": {"output_limit"},
    "06": {"cpu_limit", "wall_limit"},
    "22": {"signal"},
    "25": {"runtime_error"},
    "26": {"wall_limit"},
    "27": {"runtime_error"},
    "49": {"signal"},
    "51": {"wall_limit"},
}
PRINTED = {
    "08": b"-1\n",
    "10": b"",  # left at once: no answer, whatever the exit code says
    "11": b"main done\n",
    "14": b"done\n",
    "18": b"blocked PermissionError\n",
    "19": b"blocked PermissionError\n" * 2,
    "20": b"refused\n",
    "21": b"limit\nok\n",
    "23": b"0\neof\n",
    "28": b"main\nbye\n",
    "29": b"5\n",
    "30": b"clean\n",
    "32": b"3\n",
    "33": b"1 2\n3 4\nb''\n",
    "37": b"10\n",
    "40": b"-1 -1 -1 -1\n",
    "42": b"fresh\n",
    "43": b"7\n",
    "44": b"",
    "45": b"no\n",
    "47": b"1\n",
    "48": b"7" * 2_999_999 + b"\n",
    "50": b"refused\n",
    "55": b"main\ndel\n",
    "58": b"55\n",
}
# Processes are refused without namespaces; a process may write over its own program's output.
NEEDS_PROCESSES = {"12": {b"42\n"}, "34": {b"[1, 4, 9]\n"}, "56": {b"1\n", b"FORGED\n"}}
INPUTS = {"43": "7\n", "32": "1 2\n", "33": "1 2\n3 4\n", "47": "x" * 2_000_000}


@pytest.fixture(scope="module", params=["landlock", "namespaces"])
def confined(request):
    with Sandbox(1, min_isolation=request.param, max_isolation=request.param) as pool:
        try:
            pool.isolation  # noqa: B018 - proves the level
        except IsolationError as error:
            pytest.skip(str(error))
        yield pool


def test_every_attack_has_an_expected_result():
    assert {path.name[:2] for path in FILES} == {*STATUS, *PRINTED, *NEEDS_PROCESSES, "07", "54"}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_attack(path, confined):
    number = path.name[:2]
    job = Job(path.read_text(encoding="utf-8"), (INPUTS.get(number, ""), "again"), limits=LIMITS)
    run, again = confined.run([job], stop_when=lambda job, place, run: number in STATUS)[0]
    if number in STATUS:
        assert run.status in STATUS[number], run
    if number in PRINTED:
        assert (run.status, run.stdout) == ("ok", PRINTED[number]), run
    if number == "07":  # process 1 of a pid namespace ignores signals from inside
        assert run.stdout in (b"sent\n", b"refused PermissionError\n"), run
    if number == "54":  # exactly as deep as elsewhere: see test_pool
        assert 990 < int(run.stdout) < 1000, run
    if number == "43":
        assert again.stdout == b"again\n", again
    if number in NEEDS_PROCESSES:
        if confined.isolation.level == "namespaces":
            assert run.status == "ok" and run.stdout in NEEDS_PROCESSES[number], run
        else:
            assert run.status == "runtime_error" and "PermissionError" in run.stderr_tail, run
    witness = "import os\nprint(sorted(os.listdir('.')), input())"
    assert confined.run([Job(witness, ("fine",))])[0][0].stdout == b"[] fine\n"
