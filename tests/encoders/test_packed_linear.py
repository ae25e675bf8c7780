"""Packed linear layers step aside where they cannot work, and are refused where they fail."""

import pytest
from numpy.testing import assert_allclose
from torch import nn

import skcalib.encoders.model.packed as packed
from skcalib import BertEncoder, clear_caches
from skcalib.encoders.model.packed import PackedLinear, can_pack


def test_vectors_are_the_same_without_operators(tiny_bert, texts, monkeypatch, loads):
    encoder = BertEncoder(tiny_bert, device="cpu").fit(texts)
    expected = encoder.transform(texts)

    def forward(self, x):
        raise AttributeError("'_OpNamespace' 'mkldnn' has no such attribute")

    monkeypatch.setattr(PackedLinear, "forward", forward)
    monkeypatch.setattr(packed, "can_pack", can_pack.__wrapped__)  # look again
    clear_caches()
    assert_allclose(encoder.transform(texts), expected, rtol=1e-5, atol=1e-5)


def test_a_model_that_multiplies_wrongly_is_refused(tiny_bert, monkeypatch, loads):
    def forget(module, dtype):
        for part in module.modules():
            if isinstance(part, nn.Linear):
                part.weight.zero_()
        return True

    monkeypatch.setattr("skcalib.encoders.model.forward.pack_linears", forget)
    with pytest.raises(
        ValueError, match=r"cannot be used in torch.float32 on cpu: .* differ from those of"
    ):
        BertEncoder(tiny_bert, device="cpu").fit(["dog"])
