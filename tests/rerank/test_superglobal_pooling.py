"""SuperGlobal's pooling against its definition, position by position."""

import numpy as np
import torch

from cairn.rerank.superglobal_pooling import gem_plus, regional_gem, relup, scale_gem


def test_regional_gem_is_half_the_position_and_half_its_region():
    features = torch.rand(2, 3, 6, 5, generator=torch.Generator().manual_seed(0)) + 0.01
    pooled = regional_gem(features).numpy()
    padded = np.pad(features.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect").astype(float)
    for y in range(6):
        for x in range(5):
            region = padded[:, :, y : y + 5, x : x + 5]
            expected = 0.5 * (region**2.5).mean((2, 3)) ** 0.4 + 0.5 * features[:, :, y, x].numpy()
            np.testing.assert_allclose(pooled[:, :, y, x], expected, rtol=1e-5)


def test_regional_gem_equals_the_published_use_of_lp_pooling():
    features = torch.rand(1, 4, 7, 9, generator=torch.Generator().manual_seed(1))
    scaled = torch.nn.functional.pad(features / 25 ** (1 / 2.5), (2, 2, 2, 2), mode="reflect")
    published = 0.5 * torch.nn.functional.lp_pool2d(scaled, 2.5, 5, stride=1) + 0.5 * features
    np.testing.assert_allclose(regional_gem(features), published, rtol=2e-5, atol=1e-7)


def test_gem_plus():
    features = torch.tensor([[[[1.0, 2.0], [3.0, -4.0]]]])
    expected = ((1 + 2**4.6 + 3**4.6 + 1e-8**4.6) / 4) ** (1 / 4.6)
    np.testing.assert_allclose(gem_plus(features), [[expected]], rtol=1e-6)
    # A large power approaches the maximum, power 1 is the mean.
    np.testing.assert_allclose(gem_plus(features.abs(), 1.0), [[2.5]], rtol=1e-6)


def test_scale_gem_is_the_maximum_of_unit_vectors():
    scales = [torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 10.0]])]
    np.testing.assert_allclose(scale_gem(scales), [[0.6, 1.0]], rtol=1e-6)


def test_relup():
    np.testing.assert_allclose(relup(torch.tensor([-1.0, 0.01, 0.5])), [0.014, 0.014, 0.5], rtol=1e-6)
