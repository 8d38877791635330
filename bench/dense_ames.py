"""A faithful dense AMES: attention over the whole sequence under a mask, as the published formulation has it.

Written from the paper and the official definition for comparison only: results and speed of
`cairn.rerank.ames` are measured against it. It loads the same state.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cairn.rerank.ames import Ames


class DenseAmes(nn.Module):
    """`forward(query, query_padding, gallery, gallery_padding)` gives the logits [B]; every token attends to
    every other, what must not be seen is masked, and every pair is computed from its descriptors."""

    def __init__(self, network: Ames) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, query: Tensor, query_padding: Tensor, gallery: Tensor, gallery_padding: Tensor
    ) -> Tensor:
        return self.tokens(query, query_padding, gallery, gallery_padding)[0]

    def tokens(
        self, query: Tensor, query_padding: Tensor, gallery: Tensor, gallery_padding: Tensor
    ) -> tuple[Tensor, Tensor]:
        network, shape = self.network, self.network.shape
        left = network.remap_local(F.normalize(query, dim=-1))
        right = network.remap_local(F.normalize(gallery, dim=-1))
        if not network.training and not shape.binarized:
            right = right.half().float()
        pairs, q, t = left.shape[0], left.shape[1], right.shape[1]
        x = torch.cat([network.mtc_token.expand(pairs, 1, -1), left, right], 1)
        padding = torch.cat([query_padding.new_zeros(pairs, 1), query_padding, gallery_padding], 1).bool()
        side = torch.cat([torch.zeros(1), torch.ones(q), 2 * torch.ones(t)]).to(x.device)
        seen_by_all = (side[:, None] == 0) | (side[None, :] == 0)
        same = side[:, None] == side[None, :]
        not_self = ~(seen_by_all | same)
        not_cross = ~(seen_by_all | ~same)

        for layer in network.decoder.layers:
            if shape.normalize_before:
                x = x + self._attend(layer.self_attn, layer.norm1(x), not_self, padding)
                x = x + self._attend(layer.cross_attn, layer.norm2(x), not_cross, padding)
                x = x + self._feedforward(layer, layer.norm3(x))
            else:
                x = layer.norm1(x + self._attend(layer.self_attn, x, not_self, padding))
                x = layer.norm2(x + self._attend(layer.cross_attn, x, not_cross, padding))
                x = layer.norm3(x + self._feedforward(layer, x))
        if network.decoder.norm is not None:
            x = network.decoder.norm(x)
        return network.classifier(x[:, 0]).squeeze(-1), x

    def _attend(self, attention: nn.MultiheadAttention, x: Tensor, hidden: Tensor, padding: Tensor) -> Tensor:
        # Called as the official layers call it: with PyTorch's defaults, attention weights included.
        return attention(x, x, x, attn_mask=hidden, key_padding_mask=padding)[0]

    def _feedforward(self, layer: nn.Module, x: Tensor) -> Tensor:
        activation = F.gelu if self.network.shape.activation == "gelu" else F.relu
        return layer.linear2(activation(layer.linear1(x)))
