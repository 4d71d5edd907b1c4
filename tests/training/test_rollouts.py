import numpy as np
import pytest

from tipprobe.errors import DataError, SandboxError
from tipprobe.models.types import Completion
from tipprobe.probes.types import Probe, ProbeSet
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Limits, Run
from tipprobe.training.rollouts import REASONS, rollout_metrics, sample_records, score_groups

PROBLEM = Problem("p", "Add.", examples=(Test("1 2\n", "3\n"),), tests=(Test("5 5\n", "10\n"),))
PROBES = ProbeSet("p", (Probe("1 2\n", "example"), Probe("0 0\n", "model"), Probe("9 9\n", "model")))


def ok(*outputs):
    return [Run("ok", stdout=str(o).encode()) for o in outputs]


def reply(code, finish="stop"):
    return Completion(f"```python\n{code}\n```", 9, finish)


# Four programs on the three probes (then on the hidden test): right, wrong on one, crashes on two, wrong
# everywhere.
TABLE = {
    "right()": ok(3, 0, 18, 10),
    "partly()": ok("3.0", 0, 17, 10),
    "crash()": [*ok(3), Run("runtime_error"), Run("cpu_limit"), *ok(10)],
    "wrong()": ok(1, 1, 1, 1),
}
GROUP = [reply(code) for code in TABLE]


def score(sandbox, group=GROUP, reward="pcr", problem=PROBLEM, step=1, seed=0):
    return score_groups(
        [problem], [PROBES], [group], sandbox, reward=reward, limits=Limits(), seed=seed, step=step
    )[0]


def test_a_group_by_hand(sandbox):
    sandbox.table = TABLE
    group = score(sandbox)
    # probe 1: "3" three times; probe 2: "0" twice; probe 3: 18, 17 and 1 once each, so all are majority
    assert [sorted(m) for m in group.consensus.majority] == [["3"], ["0"], ["1", "17", "18"]]
    assert group.hits.tolist() == [3, 3, 1, 1] and group.n == 3
    assert group.rewards.tolist() == [1.0, 1.0, 1 / 3, 1 / 3]
    assert [o.status for o in group.candidates[2].outcomes] == ["ok", "runtime_error", "cpu_limit"]
    assert len(sandbox.calls) == 1
    assert all(job.inputs == PROBES.inputs for job in sandbox.calls[0])


def test_replies_without_a_program_fail_on_every_probe_by_reason(sandbox):
    sandbox.table = TABLE
    group = score(sandbox, [reply("right()"), reply("right()", "length"), Completion("", 1, "stop")])
    assert group.hits.tolist() == [3, 0, 0]
    assert [c.outcomes[0].status for c in group.candidates] == ["ok", "truncated", "no_code"]
    assert len(sandbox.calls[0]) == 1


def test_equal_programs_run_once(sandbox):
    sandbox.table = TABLE
    group = score(sandbox, [reply("right()")] * 5)
    assert len(sandbox.calls[0]) == 1
    assert group.hits.tolist() == [3] * 5


def test_nondeterminism_fails_the_candidate(sandbox):
    class Flaky(type(sandbox)):
        def _one(self, job, i):
            return Run("ok", stdout=b"%d" % job.seed) if "random" in job.source else Run("ok", stdout=b"0")

    group = score(Flaky(), [reply("print(random())"), reply("print(0)"), reply("print(1)")])
    assert [c.outcomes[0].status for c in group.candidates] == ["nondeterministic", "ok", "ok"]
    assert group.hits.tolist() == [0, 3, 3]


def test_only_programs_that_can_vary_run_twice(sandbox):
    score(sandbox, [reply("print(int(input()) + 1)"), reply("import random\nprint(1)")])
    assert [(job.seed, len(job.inputs)) for job in sandbox.calls[0]] == [(0, 3), (0, 3), (1, 1)]


def test_rewards_and_the_labels_they_read(sandbox):
    sandbox.table = TABLE
    public = score(sandbox, reward="public")
    assert (public.hits.tolist(), public.n) == ([1, 1, 1, 0], 1)
    assert public.parts == {"pcr": public.consensus.pcr.tolist(), "public": [1, 1, 1, 0]}
    oracle = score(sandbox, reward="oracle")
    assert oracle.hits.tolist() == [1, 1, 1, 0]
    assert [len(job.inputs) for job in sandbox.calls[-1]] == [4] * 4
    assert "public" not in score(sandbox).parts
    draws = [tuple(score(sandbox, reward="random", step=s).hits) for s in range(20)]
    assert len(set(draws)) > 5 and draws[3] == tuple(score(sandbox, reward="random", step=3).hits)


def test_unittest_problems_vote_with_returned_values(sandbox):
    problem = Problem("p", "Add.", kind="unittest", entry_point="f", test_code="assert True")
    sandbox.table = {
        "one()": [Run("ok", value="[1, 2]")],
        "two()": [Run("ok", value="(1, 2)", stdout=b"noise")],
    }
    group = score(sandbox, [reply("one()"), reply("two()"), reply("one()")], problem=problem)
    assert group.consensus.majority[0] == frozenset({"[1, 2]"})
    assert group.hits.tolist() == [3, 3, 3] and sandbox.calls[0][0].entry_point == "f"


def test_a_reward_without_its_tests_is_refused(sandbox):
    with pytest.raises(DataError, match="public examples"):
        score(sandbox, reward="public", problem=Problem("p", "Add."))


def test_infrastructure_faults_are_not_rewards():
    class Broken:
        def run(self, jobs):
            raise SandboxError("worker would not start")

    with pytest.raises(SandboxError):
        score(Broken())


def test_records_and_metrics(sandbox):
    sandbox.table = TABLE
    group = score(sandbox, [*GROUP, reply("right()", "length")])
    advantages, keep = np.array([1.0, 1.0, -0.5, -0.5, -1.0]), np.array([False, True, True, True, True])
    records = sample_records(group, advantages, keep, step=7, prompt_hash="abc")
    assert records[2]["probes"][1:] == [["runtime_error", None], ["cpu_limit", None]]
    assert records[0]["probes"][0] == records[1]["probes"][0]  # 3 and 3.0 vote together
    assert records[4]["finish_reason"] == "length" and records[4]["hits"] == 0
    metrics = rollout_metrics(records)
    assert metrics["probe_pass_share"] == 10 / 15
    assert metrics["failed_runtime_error"] == metrics["failed_cpu_limit"] == 1 / 15
    assert metrics["failed_truncated"] == 3 / 15
    shares = metrics["probe_pass_share"] + sum(metrics[f"failed_{r}"] for r in REASONS)
    assert shares == pytest.approx(1)
    assert metrics["kept_share"] == 4 / 5 and metrics["kept_positive_share"] == 1 / 4
    assert metrics["truncated_share"] == 1 / 5 and metrics["zero_advantage_groups"] == 0
