"""Models that are opened when they are needed, and closed."""

import pytest

from tipprobe.errors import DataError
from tipprobe.models.endpoint import EndpointSampler
from tipprobe.models.open import open_sampler, sampler_options
from tipprobe.models.types import Sampling
from tipprobe.probes.generate import prompt_fits
from tipprobe.prompts import user_prompt
from tipprobe.tips import opening
from tipprobe.tips.methods import prompt_counter
from tipprobe.tips.opening import LocalModel, Opener, close_models
from tipprobe.tips.teachers import RecordedTeacher, SamplerTeacher

OPENER = Opener("cpu", 4, 3, 90.0)
PROMPT = user_prompt("Print 1.")
GREEDY = Sampling.greedy(8)


@pytest.fixture
def loads(monkeypatch):
    """The names of models as they are loaded."""
    names = []

    def load(spec, device):
        names.append(spec)
        return load_model(spec, device)

    load_model = opening.load_model
    monkeypatch.setattr(opening, "load_model", load)
    return names


def test_a_model_is_loaded_when_it_is_needed_and_again_after_it_was_closed(tiny_model_folder, loads):
    spec = str(tiny_model_folder)
    model = OPENER.local(spec)
    plain = open_sampler(spec, device="cpu", batch_size=4)
    assert model.revision == plain.revision and sampler_options(model) == sampler_options(plain)
    assert loads == []
    assert model.sample([PROMPT], 2, GREEDY) == plain.sample([PROMPT], 2, GREEDY)
    assert prompt_counter(model)(PROMPT) == prompt_counter(plain)(PROMPT) and prompt_fits(model, PROMPT)
    assert loads == [spec]
    close_models(model, plain, None)
    model.close()  # closed already
    assert not {"model", "tokenizer"} & set(vars(model))
    assert model.sample([PROMPT], 1, GREEDY) == plain.sample([PROMPT], 1, GREEDY) and loads == [spec] * 2


def test_a_model_that_is_not_there_is_missed_at_once():
    with pytest.raises(DataError, match="no model at"):
        LocalModel("./nowhere")
    with pytest.raises(AttributeError):
        _ = LocalModel("minicode-1m").usage


def test_what_is_opened_has_the_notebooks_options(tmp_path):
    assert isinstance(OPENER.coder("minicode-1m", tmp_path), LocalModel)
    there = OPENER.coder("openai:m@http://127.0.0.1:1/v1", tmp_path)
    assert isinstance(there, EndpointSampler) and there.concurrency == 3
    assert (tmp_path / "coder.sqlite").is_file()
    options = {"max_tokens": 77, "temperature": 1.0, "price_in": 2.0, "price_out": 4.0}
    assert isinstance(OPENER.teacher("recorded", tmp_path, **options), RecordedTeacher)
    teacher = OPENER.teacher("openai:m@http://127.0.0.1:1/v1", tmp_path, **options)
    assert isinstance(teacher, SamplerTeacher) and teacher.sampling.max_tokens == 77
    assert (teacher.sampler.usage.price_in, teacher.sampler.usage.price_out) == (2.0, 4.0)
    assert (tmp_path / "teacher.sqlite").is_file()
