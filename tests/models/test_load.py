"""Names, devices and revisions; a GGUF file of our own making."""

import shutil

import pytest
import torch

from tipprobe.errors import DataError, ParameterError
from tipprobe.models import load


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("minicode-1m", "minicode-1m"),
        ("Qwen/Qwen3-4B", "Qwen3-4B"),
        ("Qwen/Qwen3-4B@1cfa9a7", "Qwen3-4B"),
        ("/runs/06_erpo_adaptation/erpo-seed0/checkpoint", "erpo-seed0"),
        ("models/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"),
        ("a folder/with blanks (1)", "with-blanks-1"),
        ("checkpoint", "checkpoint"),
        ("/", "model"),
    ],
)
def test_labels_are_short_and_safe_in_file_names(name, label):
    assert load.model_label(name) == label


def test_devices():
    assert load.pick_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert load.pick_device("cpu") == "cpu"
    with pytest.raises(ParameterError, match="GPUs"):
        load.pick_device("cuda:99")
    with pytest.raises(ParameterError, match="tpu"):
        load.pick_device("tpu")


def test_a_checkpoint_folder_loads(tiny_model, tiny_model_folder):
    model, tokenizer = load.load_model(str(tiny_model_folder), device="cpu")
    assert not model.training
    assert model.dtype == torch.float32
    assert tokenizer.padding_side == "left"
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, tiny_model[0](ids).logits)
    with pytest.raises(ParameterError, match="int3"):
        load.load_model(str(tiny_model_folder), device="cpu", dtype="int3")


def test_missing_models_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="no model at"):
        load.load_model(str(tmp_path / "nothing"), device="cpu")
    with pytest.raises(DataError, match="no model at"):
        load.resolve_model("nowhere.gguf")
    with pytest.raises(DataError, match="no model at"):
        load.resolve_model("outputs/run/checkpoint")
    with pytest.raises(DataError, match="did you mean minicode-1m"):
        load.resolve_model("minicode-1M")
    with pytest.raises(DataError, match="not a checkpoint"):
        load.load_model(str(tmp_path), device="cpu")
    with pytest.raises(DataError, match="hub"):
        load.load_model("no-such-owner/no-such-model", device="cpu")
    with pytest.raises(DataError, match="hub"):
        load.model_revision("no-such-owner/no-such-model")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", None, "not a checkpoint"),
        ("model.safetensors", "torn", "not a checkpoint"),
        ("config.json", "{", "not a checkpoint"),
        ("tokenizer.json", None, "no tokenizer"),
    ],
)
def test_damaged_checkpoints_say_so_in_one_line(tiny_model_folder, tmp_path, name, content, message):
    folder = tmp_path / "damaged"
    shutil.copytree(tiny_model_folder, folder)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        load.load_model(str(folder), device="cpu")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_embedded_names_resolve_to_their_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(load.EMBEDDED, "minicode-1m", tmp_path)
    with pytest.raises(DataError, match="install"):
        load.resolve_model("minicode-1m")
    (tmp_path / "config.json").write_text("{}")
    assert load.resolve_model("minicode-1m") == str(tmp_path)
    assert load.resolve_model("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"


def test_revision_follows_the_weights_only(tiny_model_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny_model_folder, copy)
    revision = load.model_revision(str(copy))
    assert revision.startswith("sha256:")
    assert revision == load.model_revision(str(tiny_model_folder))
    (copy / "README.md").write_text("a card")
    assert load.model_revision(str(copy)) == revision
    (copy / "generation_config.json").write_text("{}")
    assert load.model_revision(str(copy)) != revision
    with pytest.raises(DataError, match="no checkpoint files"):
        empty = tmp_path / "empty"
        empty.mkdir()
        load.model_revision(str(empty))


def test_gguf_weights_end_in_a_plain_model(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = write_gguf(gguf, tmp_path / "tiny.gguf")
    model, tokenizer = load.load_model(str(path), device="cpu")
    assert tokenizer.eos_token == "</s>"
    model.save_pretrained(
        tmp_path / "saved"
    )  # transformers refuses this for a model that counts as quantised
    tokenizer.save_pretrained(tmp_path / "saved")
    again, _ = load.load_model(str(tmp_path / "saved"), device="cpu")
    ids = torch.tensor([[3, 4]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, again(ids).logits)
    assert torch.equal(model.model.norm.weight, torch.full((32,), 1.5))
    assert load.model_revision(str(path)).startswith("sha256:")
    with pytest.raises(DataError, match="GGUF"):
        broken = tmp_path / "broken.gguf"
        broken.write_bytes(b"GGUF nothing of the kind")
        load.load_model(str(broken), device="cpu")


def write_gguf(gguf, path):
    """Write a one-layer Llama with random weights and a vocabulary of eight tokens."""
    generator = torch.Generator().manual_seed(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(8)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<unk>", "<s>", "</s>", "a", "b", "c", "ab", "abc"])
    writer.add_token_types([3, 3, 3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b", "ab c"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def tensor(name, *shape):
        writer.add_tensor(name, torch.randn(*shape, generator=generator).numpy())

    tensor("token_embd.weight", 8, 32)
    writer.add_tensor("output_norm.weight", torch.full((32,), 1.5).numpy())
    writer.add_tensor("blk.0.attn_norm.weight", torch.ones(32).numpy())
    writer.add_tensor("blk.0.ffn_norm.weight", torch.ones(32).numpy())
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensor(f"blk.0.{part}.weight", 32, 32)
    tensor("blk.0.ffn_gate.weight", 64, 32)
    tensor("blk.0.ffn_up.weight", 64, 32)
    tensor("blk.0.ffn_down.weight", 32, 64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
