"""Tensors as PyTorch makes them, where it is installed."""

import pytest

from scaler.serialize import outofband, payload

torch = pytest.importorskip("torch")


def by_dumps(value):
    return payload.loads(payload.dumps(value))


def by_value(value):
    return payload.loads(payload.dumps_by_value(value))


def by_parts(value):
    packed = outofband.pack(value)
    return outofband.unpack(packed.inband, [bytearray(buffer) for buffer in packed.buffers])


@pytest.mark.parametrize("sent", [by_dumps, by_value, by_parts])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.bfloat16, torch.complex64, torch.uint16])
@pytest.mark.parametrize("size", [0, 3, 50_000])
def test_tensors_arrive(sent, dtype, size):
    value = torch.arange(size).to(dtype)
    assert torch.equal(sent(value), value)


def test_views_and_parameters_arrive():
    layer = torch.nn.Linear(200, 200)
    weight = layer.weight.detach()
    layer, transposed = by_parts((layer, weight.t()))
    assert type(layer.weight) is torch.nn.Parameter
    assert layer.weight.requires_grad
    transposed[0, 1] = 7
    assert layer.weight[1, 0].item() == 7


def test_a_small_tensor_can_grow_afterwards():
    value = torch.ones(3)
    arrived = by_parts(value)
    assert value.resize_(5_000).numel() == arrived.resize_(5_000).numel() == 5_000
