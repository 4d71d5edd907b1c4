"""Fixtures shared by all tests."""

from pathlib import Path

import pytest

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model():
    """A random two-layer Llama with a byte-level tokenizer and a chat template: (model, tokenizer)."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
    symbols = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(symbols)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(symbols),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    return model.eval(), tokenizer


@pytest.fixture(scope="session")
def tiny_model_folder(tiny_model, tmp_path_factory) -> Path:
    """The folder that `tiny_model` was saved to."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    for part in tiny_model:
        part.save_pretrained(folder)
    return folder
