"""Reward models of both kinds: tiny random checkpoints, saved, loaded, compared with a plain forward pass."""

import copy
import json
import logging

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForSequenceClassification, LlamaModel

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.reward import (
    TOLERANCE,
    TransformersRewardModel,
    encode_conversations,
    full_precision,
    load_reward_model,
    read_position,
    resolve_reward_model,
)
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt, user_prompt

PAIRS = [
    (user_prompt("Add."), "print(1)"),
    (
        user_prompt("Add two numbers that stand on one line."),
        "a, b = map(int, input().split())\nprint(a + b)",
    ),
    (code_prompt(Problem("p", "Double it.", "call", entry_point="f")), "def f(x):\n    return 2 * x"),
]


def conversation(tokenizer, prompt, reply):
    """One finished conversation, spelled out by the test's own template."""
    text = f"<|user|>{prompt[0]['content']}<|end|><|assistant|>{reply}<|end|>"
    return torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])


@pytest.fixture(scope="module")
def classifier(tiny_model):
    torch.manual_seed(1)
    config = tiny_model[0].config.__class__(**tiny_model[0].config.to_dict() | {"num_labels": 1})
    model = LlamaForSequenceClassification(config).eval()
    with torch.no_grad():
        model.score.weight.normal_()
    return model


@pytest.fixture(scope="module")
def classifier_folder(classifier, tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reward") / "classifier"
    classifier.save_pretrained(folder)
    tiny_model[1].save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def value_folder(tiny_model, tmp_path_factory):
    """A causal language model with a value head beside its own weights, as AceCodeRM is stored."""
    folder = tmp_path_factory.mktemp("reward") / "value"
    model, tokenizer = tiny_model
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    torch.manual_seed(2)
    head = {"v_head.summary.weight": torch.randn(1, 32), "v_head.summary.bias": torch.tensor([5.0])}
    save_file(tensors | head, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_classifier_scores_are_those_of_its_own_forward_pass(classifier, classifier_folder, tiny_model):
    model = load_reward_model(str(classifier_folder), "cpu", batch_size=2)
    assert (model.kind, model.reply) == ("classification", "fenced")
    assert model.revision.startswith("sha256:")
    with torch.no_grad():
        expected = [
            classifier(conversation(tiny_model[1], p, f"```python\n{c}\n```")).logits.item() for p, c in PAIRS
        ]
    scores = model.score(PAIRS)
    assert scores.dtype == np.float32 and scores.shape == (3,)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert np.ptp(expected) > 0.01


def test_value_head_scores_are_hidden_state_times_head_plus_bias(value_folder, tiny_model):
    model = load_reward_model(str(value_folder), "cpu")
    assert (model.kind, model.reply) == ("value_head", "bare")
    tensors = load_file(value_folder / "model.safetensors")
    expected = []
    for prompt, code in PAIRS:
        with torch.no_grad():
            out = tiny_model[0](conversation(tiny_model[1], prompt, code), output_hidden_states=True)
        last = out.hidden_states[-1][0, -1]
        expected.append(float(last @ tensors["v_head.summary.weight"][0]) + 5.0)
    np.testing.assert_allclose(model.score(PAIRS), expected, atol=1e-5)
    assert np.ptp(expected) > 0.01


def test_value_head_is_found_in_shards(value_folder, tiny_model, tmp_path):
    whole = load_reward_model(str(value_folder), "cpu").score(PAIRS)
    tensors = load_file(value_folder / "model.safetensors")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((value_folder / name).read_bytes())
    files = {"a.safetensors": {}, "b.safetensors": {}}
    for name, tensor in tensors.items():
        files["b.safetensors" if name.startswith("v_head") else "a.safetensors"][name] = tensor
    for file, part in files.items():
        save_file(part, tmp_path / file, {"format": "pt"})
    index = {name: file for file, part in files.items() for name in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    np.testing.assert_array_equal(load_reward_model(str(tmp_path), "cpu").score(PAIRS), whole)


def test_a_pad_token_is_not_needed(classifier, tiny_model):
    """Without one, a classifier of transformers refuses batches; the scores are those of single rows."""
    model = as_model(classifier, tiny_model[1], pad=None)
    with torch.no_grad():
        singles = [classifier(torch.tensor([ids])).logits.item() for ids in model.encode(PAIRS)]
    np.testing.assert_allclose(model.score(PAIRS), singles, atol=1e-5)


def as_model(classifier, tokenizer, pad, **options):

    backbone = copy.deepcopy(classifier.model)
    backbone.config.pad_token_id = pad
    head = copy.deepcopy(classifier.score)
    return TransformersRewardModel(
        backbone, head, tokenizer, kind="classification", revision="test", **options
    )


def test_pad_token_that_ends_the_text_is_skipped_as_in_training(classifier, tiny_model):
    end = tiny_model[1].eos_token_id
    model = as_model(classifier, tiny_model[1], pad=end)
    classifier.config.pad_token_id, before = end, classifier.config.pad_token_id
    try:
        with torch.no_grad():
            expected = [classifier(torch.tensor([ids])).logits.item() for ids in model.encode(PAIRS)]
    finally:
        classifier.config.pad_token_id = before
    np.testing.assert_allclose(model.score(PAIRS), expected, atol=1e-5)


def test_read_position_by_hand():
    assert read_position([5, 6, 2]) == 2
    assert read_position([5, 2, 6], skipped=2) == 2
    assert read_position([5, 6, 2, 2], skipped=2) == 1
    assert read_position([2, 2], skipped=2) == 0


def test_one_start_token_whether_the_template_writes_it_or_not(tiny_model, tmp_path):

    from tokenizers.processors import TemplateProcessing

    tokenizer = copy.deepcopy(tiny_model[1])
    tokenizer.bos_token = "<|user|>"
    start = tokenizer.bos_token_id
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single="<|user|> $A", special_tokens=[("<|user|>", start)]
    )
    assert tokenizer("x")["input_ids"][0] == start  # this tokenizer adds one by itself
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
    (ids,) = encode_conversations(tokenizer, [PAIRS[0]])
    assert ids.count(start) == 1 and ids[-1] == tokenizer.eos_token_id
    tokenizer.chat_template = None
    (ids,) = encode_conversations(tokenizer, [PAIRS[0]])
    assert ids.count(start) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Add.\nprint(1)"
    assert encode_conversations(tokenizer, []) == []


def test_too_long_is_nan_counted_and_logged(classifier, tiny_model, caplog):
    model = as_model(classifier, tiny_model[1], pad=0, max_tokens=60)
    lengths = [len(ids) for ids in model.encode(PAIRS)]
    assert lengths[0] <= 60 < min(lengths[1:])
    with caplog.at_level(logging.WARNING):
        scores = model.score(PAIRS)
    assert np.isnan(scores).tolist() == [False, True, True]
    assert model.too_long == 2
    assert "2 of 3 pairs are longer than 60 tokens" in caplog.text
    assert model.token_counts(PAIRS).tolist() == [lengths[0], 0, 0]
    assert as_model(classifier, tiny_model[1], pad=0, max_tokens=9999).max_tokens == 512  # the context


def test_scores_do_not_depend_on_order_or_batches(classifier, tiny_model):
    pairs = [(p, c * k) for k in (1, 2, 3) for p, c in PAIRS]
    done = []
    one = as_model(classifier, tiny_model[1], pad=0, batch_size=1).score(pairs)
    many = as_model(classifier, tiny_model[1], pad=0, batch_size=4).score(
        pairs[::-1], progress=lambda n, total: done.append((n, total))
    )
    np.testing.assert_allclose(many[::-1], one, atol=1e-5)
    assert done == [(4, 9), (8, 9), (9, 9)]
    empty = as_model(classifier, tiny_model[1], pad=0).score([])
    assert empty.shape == (0,) and empty.dtype == np.float32


@pytest.mark.parametrize("kind", ["classifier", "value"])
def test_head_works_in_float32_under_autocast_and_with_half_weights(kind, request):
    folder = str(request.getfixturevalue(f"{kind}_folder"))
    exact = load_reward_model(folder, "cpu")
    half = load_reward_model(folder, "cpu", dtype="bfloat16")
    assert exact.backbone.dtype == torch.float32  # unless told otherwise
    assert half.backbone.dtype == torch.bfloat16 and half.head.weight.dtype == torch.float32
    scores = half.score(PAIRS)
    np.testing.assert_allclose(scores, exact.score(PAIRS), atol=TOLERANCE["bfloat16"])
    assert half.self_test(TOLERANCE["bfloat16"]) <= TOLERANCE["bfloat16"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = exact.score(PAIRS)
    for found in map(torch.tensor, (scores, cast)):
        # A head in bfloat16 would give values that survive rounding to bfloat16.
        assert (found.bfloat16().float() != found).any()


def test_self_test_finds_a_score_that_depends_on_its_batch(classifier, tiny_model):
    model = as_model(classifier, tiny_model[1], pad=0)
    assert model.self_test(TOLERANCE["float32"]) < 1e-4

    class Leaky(torch.nn.Module):
        """Adds the width of the batch to what is read."""

        def __init__(self, inner):
            super().__init__()
            self.inner, self.config, self.device = inner, inner.config, inner.device

        def forward(self, input_ids, **kwargs):
            out = self.inner(input_ids=input_ids, **kwargs)
            out.last_hidden_state = out.last_hidden_state + 0.01 * input_ids.shape[1]
            return out

    model.backbone = Leaky(model.backbone)
    with pytest.raises(DataError, match=r"a score changes by [\d.]+ with the rest of its batch"):
        model.self_test(TOLERANCE["float32"])


def test_weights_that_give_no_number_are_refused(classifier, tiny_model):
    model = as_model(classifier, tiny_model[1], pad=0)
    model.head.weight.data.fill_(float("nan"))
    with pytest.raises(DataError, match="not finite"):
        model.self_test(1.0)


def test_scoring_leaves_no_tf32_setting_behind():
    matmul = torch.backends.cuda.matmul
    before = torch.backends.fp32_precision
    try:
        torch.backends.fp32_precision = "tf32"
        with full_precision():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
        torch.backends.fp32_precision = "ieee"
        assert matmul.fp32_precision == "ieee"  # still inherited
    finally:
        torch.backends.fp32_precision = before


def test_what_is_no_reward_model_is_refused(tiny_model_folder, tiny_model, tmp_path):
    with pytest.raises(DataError, match=r"no reward model.*v_head\.summary\.weight"):
        load_reward_model(str(tiny_model_folder), "cpu")
    with pytest.raises(DataError, match="no model at"):
        load_reward_model("./nowhere", "cpu")
    with pytest.raises(ParameterError, match="dtype"):
        load_reward_model(str(tiny_model_folder), "cpu", dtype="int8")
    with pytest.raises(DataError, match="did you mean minicode-rm-1m"):
        resolve_reward_model("minicode-rm1m")


def test_classifier_with_two_labels_is_refused(classifier, tiny_model, tmp_path):
    config = classifier.config.__class__(**classifier.config.to_dict() | {"num_labels": 2})
    LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    tiny_model[1].save_pretrained(tmp_path)
    with pytest.raises(DataError, match="2 labels"):
        load_reward_model(str(tmp_path), "cpu")


def test_classifier_without_its_head_is_refused(classifier_folder, tmp_path):
    for path in classifier_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["score.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=r"lacks weights, score\.weight"):
        load_reward_model(str(tmp_path), "cpu")


def test_torn_weights_are_refused(classifier_folder, tmp_path):
    for path in classifier_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a reward model that transformers can load"):
        load_reward_model(str(tmp_path), "cpu")


def test_backbone_of_either_kind_has_no_output_layer(classifier_folder, value_folder):
    for folder in (classifier_folder, value_folder):
        assert isinstance(load_reward_model(str(folder), "cpu").backbone, LlamaModel)
