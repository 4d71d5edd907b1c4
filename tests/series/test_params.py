import pytest

from tipprobe.errors import ParameterError
from tipprobe.series.params import (
    KEYS,
    Params,
    check_values,
    load_params,
    parse_overrides,
    profile_path,
    profiles,
    range_text,
    read_profile,
)


@pytest.mark.parametrize("profile", profiles())
def test_every_profile_is_valid_complete_and_named_after_its_file(profile):
    values = read_profile(profile_path(profile))
    assert sorted(values) == sorted(KEYS)
    params = load_params(profile)
    assert params.profile == profile
    assert params.out == f"outputs/{profile}"


def test_the_expected_profiles_exist():
    expected = {"smoke", "minicode", "minicode-gpu", "smollm2", "erpo-qwen3-4b", "erpo-qwen3-8b", "tipcoder"}
    assert expected <= set(profiles())


def test_the_papers_profiles_hold_the_papers_numbers():
    for size in ("4b", "8b"):
        p = load_params(f"erpo-qwen3-{size}")
        assert p.model == f"Qwen/Qwen3-{size.upper()}"
        assert (p.prompts_per_step, p.group_size, p.minibatches_per_step, p.steps) == (16, 16, 4, 150)
        assert (p.learning_rate, p.warmup_steps, p.clip_ratio, p.kl_coef) == (5e-7, 20, 0.2, 1e-3)
        assert (p.entropy_coef, p.entropy_ceiling, p.mask_ratio, p.n_probes) == (0.5, 0.5, 0.5, 10)
        assert (p.top_p, p.top_k, p.max_tokens, p.eval_samples) == (0.8, 20, 8192, 16)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stepz=3", "unknown parameter 'stepz'; did you mean steps?"),
        ("learning_rate=1e-6", 'learning_rate is the text "1e-6".*write 1.0e-6$'),
        ("learning_rate=1e6", r"write 1.0e\+6$"),
        ("learning_rate='0.5'", "write 0.5 without quotes$"),
        ("learning_rate=fast", 'learning_rate is the text "fast", but a number belongs there$'),
        ("learning_rate=.inf", "finite"),
        ("learning_rate=0.0", "must be above 0"),
        ("steps=-3", "steps is -3, but must be at least 1"),
        ("steps=true", "steps is true, but a whole number belongs there"),
        ("steps=2.5", "steps is 2.5, but a whole number belongs there"),
        ("steps='3'", "write 3$"),
        ("steps=null", "steps is null, but a whole number belongs there"),
        ("negative_only=1", "negative_only is 1, but true or false belongs there"),
        ("methods=[base, erpoo]", r"methods\[1\].*did you mean erpo\?"),
        ("methods=erpo", r"a list belongs there, like \[erpo\]"),
        ("methods=[erpo, erpo]", "twice"),
        ("time_limit_s=1.0e+300", "must be at most 86400"),
        ("memory_mb=100000000000000", "must be at most 16777216"),
        ("seeds=[]", "seeds is empty"),
        ("tip_selectors=[]", "tip_selectors is empty"),
        ("tip_selectors=[pcr, pcr]", "tip_selectors holds a name twice"),
        ("out=3", "text belongs there"),
        ("learning_rate='inf'", "a number belongs there$"),
        ("steps='nan'", "a whole number belongs there$"),
        ("device=gpu", "must be auto"),
        ("mask_ratio=1.0", "must be below 1"),
        ("ks=[1, 64]", "pass@64 of only eval_samples = 16"),
        ("prompts_per_step=7", "no multiple of minibatches_per_step"),
        ("n_problems=3", "n_problems = 3 is fewer than prompts_per_step = 8"),
        ("model=hf_abcdefghijklmnopqrstuvwx", "looks like an access token"),
    ],
)
def test_a_bad_value_is_refused_with_one_line_that_says_what_to_do(override, message):
    with pytest.raises(ParameterError, match=message) as caught:
        load_params("minicode", parse_overrides([override]))
    assert "\n" not in str(caught.value)


def test_a_whole_number_may_stand_where_a_float_belongs():
    assert load_params("minicode", {"temperature": 1}).temperature == 1.0
    assert isinstance(check_values({"temperature": 1}, "here")["temperature"], float)


def test_a_users_file_takes_what_it_leaves_out_from_the_default_profile(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("profile: mine\nsteps: 3\n")
    params = load_params(path, {"seed": 5})
    assert (params.profile, params.steps, params.seed, params.group_size) == ("mine", 3, 5, 8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("steps: 3\nsteps: 4\n", "steps is set twice"),
        ("- steps\n", "key: value"),
        ("steps: [3\n", "not valid YAML"),
        ("training:\n  steps: 3\n", "unknown parameter 'training'"),
        ("learning_rate: 1e-6\n", "mine.yaml: learning_rate is the text.*write 1.0e-6"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(ParameterError, match=message):
        load_params(path)


@pytest.mark.parametrize("profile", profiles())
def test_every_profile_trains_its_proposer_on_whole_batches(profile):
    p = load_params(profile)
    rows = p.rl_prompts_per_step // p.rl_minibatches_per_step * p.tip_group_size
    # Where a step is as large as the paper's, so is an update.
    assert p.rl_prompts_per_step != 192 or rows == 96


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(ParameterError, match="did you mean minicode"):
        load_params("minicod")
    with pytest.raises(ParameterError, match="no such params file"):
        load_params("nowhere/x.yaml")


def test_every_parameter_is_described_and_its_range_can_be_shown():
    for key in KEYS:
        assert Params.model_fields[key].description
        assert range_text(key)
    assert range_text("steps") == "int >= 1"
    assert range_text("top_p") == "float > 0 <= 1"


def test_the_method_names_are_those_of_the_library():
    methods = pytest.importorskip("tipprobe.training.methods").METHODS
    options = Params.model_json_schema()["properties"]["methods"]["items"]["enum"]
    assert options == list(methods)


def test_there_must_be_something_to_compare():
    with pytest.raises(ParameterError, match=r"methods holds only base.*add a method"):
        load_params("minicode", {"methods": ["base"], "tip_methods": []})
    assert load_params("minicode", {"methods": ["base"]}).tip_methods
    with pytest.raises(ParameterError, match=r"tip_methods holds only base.*leave the list empty"):
        load_params("minicode", {"tip_methods": ["base"]})
    with pytest.raises(ParameterError, match="best_of"):
        load_params("minicode", {"best_of": []})


def test_the_second_papers_profile_holds_its_numbers():
    p = load_params("tipcoder")
    assert (p.model, p.environment) == ("Qwen/Qwen2.5-Coder-7B-Instruct",) * 2
    assert p.proposer == "Qwen/Qwen3-4B-Instruct-2507"
    assert (p.base_threshold, p.repair_turns, p.tip_refinements) == (0.5, 3, 2)
    assert (p.sft_learning_rate, p.sft_epochs, p.sft_max_tokens) == (3e-5, 1, 4096)
    assert (p.rl_learning_rate, p.rl_kl_coef, p.tip_group_size, p.tip_temperature) == (1e-6, 1e-3, 8, 1.0)
    assert (p.tip_length_threshold, p.tip_length_penalty, p.tip_max_tokens) == (2000, 1e-5, 4096)
    assert p.rl_prompts_per_step == 192
    assert p.rl_prompts_per_step * p.tip_group_size // p.rl_minibatches_per_step == 96
    assert (p.tip_runs, p.best_of, p.reward_model) == (3, [1, 2, 4, 8, 16], "TIGER-Lab/AceCodeRM-32B")
