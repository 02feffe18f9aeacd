"""Networks of the benchmark: BERT's mask is made without a question to the host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_bert_gives_its_model_the_term_that_is_added_to_scores(monkeypatch, dtype):
    from vklab.apps.compare.models import real

    given = {}

    class Model(torch.nn.Module):
        def __init__(self, config, add_pooling_layer):
            super().__init__()
            self.embeddings = torch.nn.Module()
            self.embeddings.word_embeddings = torch.nn.Embedding(7, 2, dtype=dtype)
            assert config == {"attn_implementation": "eager"} and not add_pooling_layer

        def forward(self, tokens, **more):
            given.update(more)
            return SimpleNamespace(last_hidden_state=self.embeddings.word_embeddings(tokens))

    fake = SimpleNamespace(BertConfig=lambda **words: words, BertModel=Model)
    monkeypatch.setattr(real, "load_transformers", lambda: fake)
    tokens, mask = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 1, 0]])
    made = real.Bert()(tokens, torch.zeros_like(tokens), torch.arange(3)[None], mask)
    added = given["attention_mask"]
    assert made.shape == (1, 3, 2) and added.shape == (1, 1, 1, 3) and added.dtype == dtype
    assert added.flatten().tolist() == [0.0, 0.0, torch.finfo(dtype).min]
