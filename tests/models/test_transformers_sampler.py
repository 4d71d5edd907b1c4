"""The decode loop against `transformers` itself: same truncation, same greedy text, same bookkeeping."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.transformers_sampler import (
    PreallocatedLayer,
    TransformersSampler,
    draw,
    encode_prompt,
    generate_ids,
    new_cache,
    truncated_distribution,
)
from tipprobe.models.types import Sampling

EOS, PAD = 1, 0
SIZES = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
IDS = {"eos_token_id": EOS, "pad_token_id": PAD, "bos_token_id": 2}


def model_of(kind: str):
    torch.manual_seed(3)
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZES, **HEADS, **IDS)).eval()
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**SIZES, **HEADS, **IDS, head_dim=16)).eval()
    return MistralForCausalLM(MistralConfig(**SIZES, **HEADS, **IDS, sliding_window=6)).eval()


def generate(model, prompts, n, sampling, seed=0, **kwargs):
    return generate_ids(
        model,
        prompts,
        n,
        sampling,
        eos_token_ids=[EOS],
        pad_token_id=PAD,
        generator=torch.Generator().manual_seed(seed),
        **kwargs,
    )


def reference_greedy(model, prompt, max_tokens):
    config = GenerationConfig(max_new_tokens=max_tokens, do_sample=False, eos_token_id=EOS, pad_token_id=PAD)
    with torch.no_grad():
        ids = torch.tensor([prompt])
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return out[0, len(prompt) :].tolist()


def prompts_of(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 40, (length,), generator=generator).tolist() for length in lengths]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 20, 64]),
    top_p=st.sampled_from([0.1, 0.5, 0.8, 1.0]),
    half=st.booleans(),
)
def test_truncation_equals_the_warpers_of_transformers(seed, temperature, top_k, top_p, half):
    logits = 3 * torch.randn(4, 50, generator=torch.Generator().manual_seed(seed))
    if half:  # half precision makes ties, at the k-th place too
        logits = logits.round()
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1 and not half:  # among ties at the nucleus' edge the two sorts may pick different tokens
        warpers.append(TopPLogitsWarper(top_p))
    expected = warpers(None, logits.clone()).softmax(-1)

    probabilities, ids = truncated_distribution(
        logits, Sampling(temperature, 1.0 if half else top_p, top_k, 1, 0)
    )
    dense = probabilities if ids is None else torch.zeros_like(expected).scatter(1, ids, probabilities)
    torch.testing.assert_close(dense, expected, atol=1e-6, rtol=1e-5)


def test_draws_follow_the_truncated_distribution():
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
    sampling = Sampling(temperature=1.0, top_p=0.9, top_k=4)
    probabilities, ids = truncated_distribution(logits[None], sampling)
    n = 20_000
    tokens = draw(logits.expand(n, -1), sampling, torch.Generator().manual_seed(0))
    shares = np.bincount(tokens.numpy(), minlength=6) / n
    expected = np.zeros(6)
    expected[ids[0].numpy()] = probabilities[0].numpy()
    assert np.all(shares[expected == 0] == 0)
    assert np.all(np.abs(shares - expected) < 5 * np.sqrt(0.25 / n))


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
def test_greedy_equals_generate_whatever_the_batch(kind):
    model = model_of(kind)
    prompts = prompts_of([3, 11, 7, 11, 20])
    greedy = Sampling(temperature=0, max_tokens=80)
    expected = [reference_greedy(model, prompt, 80) for prompt in prompts]
    assert generate(model, prompts, 1, greedy) == expected
    twice = generate(model, prompts, 2, greedy, batch_size=3)
    assert twice == [ids for ids in expected for _ in range(2)]


def test_rows_that_end_early_do_not_disturb_the_others():
    model = model_of("llama")
    prompts = prompts_of([5, 9, 6, 8, 7, 5, 4, 10], seed=1)
    # Ends after very different numbers of tokens: every token below 12 counts as an end token.
    ends = list(range(1, 12))
    kwargs = {"eos_token_ids": ends, "pad_token_id": PAD}
    greedy = Sampling(temperature=0, max_tokens=40)
    alone = [
        generate_ids(model, [prompt], 1, greedy, generator=torch.Generator(), **kwargs)[0]
        for prompt in prompts
    ]
    together = generate_ids(model, prompts, 1, greedy, generator=torch.Generator(), **kwargs)
    assert together == alone
    assert len({len(ids) for ids in alone}) > 2
    assert all(token not in ends for ids in together for token in ids[:-1])


def test_same_seed_same_completions_and_the_seed_matters():
    model = model_of("llama")
    prompts = prompts_of([4, 6])
    sampling = Sampling(max_tokens=12)
    first = generate(model, prompts, 3, sampling, seed=5)
    assert first == generate(model, prompts, 3, sampling, seed=5)
    assert first != generate(model, prompts, 3, sampling, seed=6)
    assert len(first) == 6


def test_repeated_prompts_are_the_same_as_n():
    model = model_of("llama")
    prompts = prompts_of([4, 6])
    repeated = [prompt for prompt in prompts for _ in range(3)]
    sampling = Sampling(max_tokens=8)
    assert generate(model, repeated, 1, sampling) == generate(model, prompts, 3, sampling)


def test_training_mode_is_restored_and_no_gradient_is_recorded():
    model = model_of("llama").train()
    generate(model, prompts_of([4]), 1, Sampling(max_tokens=3))
    assert model.training
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_training_mode_is_restored_after_an_error():
    model = model_of("llama").train()
    with pytest.raises(RuntimeError):
        generate(model, prompts_of([4]), 1, Sampling(max_tokens=3), progress=_fail)
    assert model.training


def _fail(done: int, total: int) -> None:
    raise RuntimeError("stop")


def test_progress_reaches_the_total():
    seen = []
    generate(
        model_of("llama"),
        prompts_of([4, 5, 6]),
        2,
        Sampling(max_tokens=6),
        batch_size=4,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (6, 6)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_completions_stop_at_the_context():
    model = model_of("llama")
    (ids,) = generate(model, prompts_of([250]), 1, Sampling(temperature=0, max_tokens=50))
    assert len(ids) <= 6
    with pytest.raises(DataError, match="256"):
        generate(model, prompts_of([256]), 1, Sampling(max_tokens=5))
    with pytest.raises(DataError, match="no tokens"):
        generate(model, [[]], 1, Sampling(max_tokens=5))
    with pytest.raises(ParameterError, match="at least 1"):
        generate(model, prompts_of([4]), 0, Sampling(max_tokens=5))


def test_sliding_windows_keep_their_own_cache():
    assert all(isinstance(layer, PreallocatedLayer) for layer in new_cache(model_of("llama")).layers)
    assert not any(isinstance(layer, PreallocatedLayer) for layer in new_cache(model_of("mistral")).layers)


def test_sampler_reports_how_replies_ended(tiny_model):
    model, tokenizer = tiny_model
    sampler = TransformersSampler(model, tokenizer, revision="test", batch_size=5)
    prompts = [[{"role": "user", "content": text}] for text in ("print(1)", "a longer request")]
    sampling = Sampling(max_tokens=30, seed=1)
    groups = sampler.sample(prompts, 8, sampling)
    assert [len(group) for group in groups] == [8, 8]
    assert groups == sampler.sample(prompts, 8, sampling)
    assert sampler.sample([], 8, sampling) == []
    with pytest.raises(DataError, match="begins 'far too long"):
        sampler.sample([*prompts, [{"role": "user", "content": "far too long " * 2000}]], 8, sampling)
    for completion in (c for group in groups for c in group):
        assert 1 <= completion.n_tokens <= 30
        assert completion.finish_reason == "stop" or completion.n_tokens == 30
        assert "<|" not in completion.text


def test_prompt_goes_through_the_chat_template_or_stays_text(tiny_model):
    _, tokenizer = tiny_model
    prompt = [{"role": "user", "content": "hello"}]
    text = tokenizer.decode(encode_prompt(tokenizer, prompt))
    assert text == "<|user|>hello<|end|><|assistant|>"
    plain = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, eos_token="<|end|>")
    assert plain.decode(encode_prompt(plain, prompt)) == "hello\n"


def test_models_that_can_reason_first_are_asked_not_to(tiny_model):
    tokenizer = copy.deepcopy(tiny_model[1])
    tokenizer.chat_template = "{{ 'on' if enable_thinking is not defined or enable_thinking else 'off' }}"
    prompt = [{"role": "user", "content": "hello"}]
    assert tokenizer.decode(encode_prompt(tokenizer, prompt)) == "off"
    assert tokenizer.decode(encode_prompt(tokenizer, prompt, {"enable_thinking": True})) == "on"
