"""Packed linear layers give what plain ones do, and step aside where they cannot."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import skcalib.encoders.model.packed as packed
from skcalib import BertEncoder, clear_caches
from skcalib.encoders.model.packed import PackedLinear, can_pack, pack_linears

needs_packing = pytest.mark.skipif(
    not can_pack(torch.float32), reason="this build of torch packs no weights"
)


@pytest.fixture
def module():
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(7, 33), nn.GELU(), nn.Linear(33, 5, bias=False))
    for parameter in module.parameters():
        nn.init.normal_(parameter, generator=generator)
    return module.eval().requires_grad_(False)


@needs_packing
@pytest.mark.parametrize("shape", [(7,), (3, 2000, 7), (0, 7)])
def test_packed_module_equals_the_plain_one(module, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = module(x)
        assert pack_linears(module, torch.float32)
        assert [type(m) for m in module] == [PackedLinear, nn.GELU, PackedLinear]
        torch.testing.assert_close(module(x), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(not can_pack(torch.bfloat16), reason="no packing in bfloat16 here")
def test_bfloat16_products_come_out_as_float32(module):
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = module(x)
        assert pack_linears(module, torch.bfloat16)
        y = module(x)
    assert y.dtype == torch.float32
    error = (y - expected).norm() / expected.norm()
    assert 1e-5 < error < 2e-2


def test_float16_is_not_packed(module):
    assert not pack_linears(module, torch.float16)
    assert [type(m) for m in module] == [nn.Linear, nn.GELU, nn.Linear]


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
