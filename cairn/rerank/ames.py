"""AMES: the transformer that scores an image pair from two sets of local descriptors, block by block.

Source: Suma, Kordopatis-Zilos, Iscen, Tolias, "AMES: Asymmetric and Memory-Efficient Similarity Estimation
for Instance-level Retrieval", ECCV 2024 (arXiv 2408.03282); official code `src/models/matcher.py`,
`transformer_dec.py` and `binarization_layer.py` of pavelsuma/ames. Parameter names are those of the published
checkpoints, which load unchanged.

The official network attends over the whole sequence (matching token, query, gallery) under a mask. In
self-attention a descriptor sees its own image and the matching token, in cross-attention the other image and
the matching token; the matching token sees everything. So the blocks are computed apart, nothing masked is
computed, and what does not reach the logit is left out. The sequence is ordered (query, matching token,
gallery) here, so that every block's keys are one slice: query and token, or token and gallery.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Bits of a binarised descriptor are smoothed in training by erf(x / sqrt(2 sigma)); `BinarizationLayer`.
SIGMA = 1e-6


@dataclass(frozen=True)
class AmesShape:
    """Sizes and variant of a network; the defaults are the published full-precision DINOv2 model's."""

    local_dim: int = 768
    model_dim: int = 128
    heads: int = 2
    layers: int = 5
    feedforward: int = 1024
    binarized: bool = False
    normalize_before: bool = False
    activation: str = "relu"  # or "gelu"


class Binarization(nn.Module):
    """Sign of a learned linear map of the L2-normalised descriptor; parameter `W` [local_dim, bits]."""

    def __init__(self, local_dim: int, bits: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.randn(local_dim, bits) / local_dim**0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = _unit(x).to(self.W.dtype) @ self.W
        return torch.erf(x / (2 * SIGMA) ** 0.5) if self.training else torch.sign(x)


class AmesLayer(nn.Module):
    """Parameters of one decoder layer under the official names (the attention modules hold weights only)."""

    def __init__(self, shape: AmesShape) -> None:
        super().__init__()
        width = shape.model_dim
        self.self_attn = nn.MultiheadAttention(width, shape.heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(width, shape.heads, batch_first=True)
        self.linear1 = nn.Linear(width, shape.feedforward)
        self.linear2 = nn.Linear(shape.feedforward, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width)


class AmesDecoder(nn.Module):
    """The layers and, in the pre-norm variant, the last normalisation."""

    def __init__(self, shape: AmesShape) -> None:
        super().__init__()
        self.layers = nn.ModuleList([AmesLayer(shape) for _ in range(shape.layers)])
        self.norm = nn.LayerNorm(shape.model_dim) if shape.normalize_before else None


class Ames(nn.Module):
    """The network. `forward` scores pairs; `project` and `match` let the two sides be prepared apart."""

    def __init__(self, shape: AmesShape | None = None) -> None:
        super().__init__()
        self.shape = shape = shape or AmesShape()
        width = shape.model_dim
        self.mtc_token = nn.Parameter(torch.empty(width))
        if shape.binarized:
            self.remap_local = nn.Sequential(
                Binarization(shape.local_dim, width), nn.Linear(width, width), nn.LayerNorm(width)
            )
        else:
            self.remap_local = nn.Sequential(nn.Linear(shape.local_dim, width), nn.LayerNorm(width))
        self.decoder = AmesDecoder(shape)
        self.classifier = nn.Linear(width, 1)
        self._initialise()

    def _initialise(self) -> None:
        # Initialisation of the official code: truncated normal weights (0.02), zero biases, unit norms. The
        # packed attention projections keep PyTorch's Xavier initialisation, since they are no `nn.Linear`.
        nn.init.trunc_normal_(self.mtc_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def project(self, local: Tensor) -> Tensor:
        """Tokens [..., model_dim] of local descriptors [..., local_dim] (any norm)."""
        return self.remap_local(_unit(local).to(self.mtc_token.dtype))

    def project_gallery(self, local: Tensor) -> Tensor:
        """Tokens of the gallery side; in evaluation of a full-precision network rounded to float16 and back.

        The official evaluation rounds them so, since that is how they would be stored.
        """
        tokens = self.project(local)
        if self.training or self.shape.binarized:
            return tokens
        return tokens.half().to(tokens.dtype)

    def forward(
        self, query: Tensor, query_padding: Tensor | None, gallery: Tensor, gallery_padding: Tensor | None
    ) -> Tensor:
        """Logits [B] of B pairs from descriptors [B, Q, local_dim] and [B, T, local_dim].

        Padding: [B, Q] and [B, T] bool, true where no descriptor stands, or None. A query batch of 1 is
        shared by all candidates.
        """
        return self.match(self.project(query), query_padding, self.project_gallery(gallery), gallery_padding)

    def match(
        self, query: Tensor, query_padding: Tensor | None, gallery: Tensor, gallery_padding: Tensor | None
    ) -> Tensor:
        """Logits [B] from projected tokens: query [B or 1, Q, model_dim], gallery [B, T, model_dim]."""
        state = self._begin(query, query_padding, gallery, gallery_padding)
        layers = list(self.decoder.layers)
        for number, layer in enumerate(layers[:-1]):
            state.x = self._layer(layer, state, first=number == 0)  # type: ignore[arg-type]
        token = self._last_layer(layers[-1], state, first=len(layers) == 1)  # type: ignore[arg-type]
        return self.classifier(token).squeeze(-1)

    def tokens(
        self, query: Tensor, query_padding: Tensor | None, gallery: Tensor, gallery_padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Logits [B] and all output tokens [B, 1 + Q + T, model_dim] (token, query, gallery) from projected
        tokens, as distillation compares them."""
        state = self._begin(query, query_padding, gallery, gallery_padding)
        for number, layer in enumerate(self.decoder.layers):
            state.x = self._layer(layer, state, first=number == 0)  # type: ignore[arg-type]
        x = state.x if self.decoder.norm is None else self.decoder.norm(state.x)
        m = state.middle
        ordered = torch.cat([x[:, m : m + 1], x[:, :m], x[:, m + 1 :]], 1)
        return self.classifier(ordered[:, 0]).squeeze(-1), ordered

    def _begin(
        self, query: Tensor, query_padding: Tensor | None, gallery: Tensor, gallery_padding: Tensor | None
    ) -> "_State":
        pairs, middle = gallery.shape[0], query.shape[1]
        token = self.mtc_token.to(gallery.dtype).expand(pairs, 1, -1)
        x = torch.cat([query.expand(pairs, -1, -1), token, gallery], 1)
        return _State(
            x, middle, query.shape[0] == 1, *_keep_masks(query, query_padding, gallery, gallery_padding)
        )

    def _layer(self, layer: AmesLayer, state: "_State", first: bool) -> Tensor:
        """One whole layer on the sequence [B, Q + 1 + T, model_dim]."""
        x = self._self_attention(layer, state, first)
        before = self.shape.normalize_before
        update = self._cross_attention(layer.cross_attn, layer.norm2(x) if before else x, state)
        x = x + update if before else layer.norm2(x + update)
        update = self._feedforward(layer, layer.norm3(x) if before else x)
        return x + update if before else layer.norm3(x + update)

    def _last_layer(self, layer: AmesLayer, state: "_State", first: bool) -> Tensor:
        """The last layer's matching token [B, model_dim]: all the classifier reads."""
        x = self._self_attention(layer, state, first)
        before, m = self.shape.normalize_before, slice(state.middle, state.middle + 1)
        y = layer.norm2(x) if before else x
        token, update = x[:, m], self._few_rows(layer.cross_attn, y[:, m], y, state.mask(slice(None)))
        token = token + update if before else layer.norm2(token + update)
        update = self._feedforward(layer, layer.norm3(token) if before else token)
        token = (token + update if before else layer.norm3(token + update))[:, 0]
        return token if self.decoder.norm is None else self.decoder.norm(token)

    def _feedforward(self, layer: AmesLayer, x: Tensor) -> Tensor:
        hidden = layer.linear1(x)
        if self.shape.activation == "gelu":
            hidden = F.gelu(hidden)
        else:
            hidden = F.relu(hidden, inplace=not torch.is_grad_enabled())
        return layer.linear2(hidden)

    def _self_attention(self, layer: AmesLayer, state: "_State", first: bool) -> Tensor:
        """The sequence after the first sublayer: each side attends to itself and the matching token.

        In the first layer a query shared by all candidates still has the same rows for each of them: they are
        projected and attended once.
        """
        before = self.shape.normalize_before
        x, m, pairs = layer.norm1(state.x) if before else state.x, state.middle, state.x.shape[0]
        attention = layer.self_attn
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        shared = first and state.one_query and pairs > 1
        if shared:
            one = F.linear(x[:1, :m], weight, bias).expand(pairs, -1, -1)
            projected = torch.cat([one, F.linear(x[:, m:], weight, bias)], 1)
        else:
            projected = F.linear(x, weight, bias)
        q, k, v = projected.unflatten(-1, (3, self.shape.heads, -1)).permute(2, 0, 3, 1, 4)
        n = 1 if shared else pairs
        left, right = slice(0, m + 1), slice(m, None)
        mask = state.mask(left)
        query = F.scaled_dot_product_attention(
            q[:n, :, :m], k[:n, :, left], v[:n, :, left], attn_mask=None if mask is None else mask[:n]
        )
        token = F.scaled_dot_product_attention(q[:, :, m : m + 1], k, v, attn_mask=state.mask(slice(None)))
        gallery = F.scaled_dot_product_attention(
            q[:, :, m + 1 :], k[:, :, right], v[:, :, right], attn_mask=state.mask(right)
        )
        joined = torch.cat([query.expand(pairs, -1, -1, -1), token, gallery], 2)
        update = attention.out_proj(joined.transpose(1, 2).flatten(2))
        return state.x + update if before else layer.norm1(state.x + update)

    def _cross_attention(self, attention: nn.MultiheadAttention, x: Tensor, state: "_State") -> Tensor:
        """Attention of each side to the other and the token, of the token to all: [B, Q + 1 + T, width].

        The gallery side is short, so projections of the long query side are folded into it (the products are
        associative): no row of the query is projected, neither as query nor as key nor as value.
        """
        m = state.middle
        left, right = x[:, : m + 1], x[:, m:]
        query = self._few_keys(attention, x[:, :m], right, state.mask(slice(m, None)))
        token = self._few_rows(attention, x[:, m : m + 1], x, state.mask(slice(None)))
        gallery = self._few_rows(attention, x[:, m + 1 :], left, state.mask(slice(0, m + 1)))
        return torch.cat([query, token, gallery], 1)

    def _few_keys(
        self, attention: nn.MultiheadAttention, rows: Tensor, keys: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attention of many `rows` [B, R, width] to few `keys` [B, K, width]: [B, R, width]."""
        heads, width = self.shape.heads, self.shape.model_dim
        scale = (width // heads) ** -0.5
        query_weight = attention.in_proj_weight[:width].unflatten(0, (heads, -1))
        query_bias = attention.in_proj_bias[:width].unflatten(0, (heads, -1))
        projected = F.linear(keys, attention.in_proj_weight[width:], attention.in_proj_bias[width:])
        k, v = projected.unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        folded = (k @ (query_weight * scale)).flatten(1, 2)  # [B, heads * K, width]
        offset = (k @ (query_bias * scale)[:, :, None]).flatten(1)[:, None]  # [B, 1, heads * K]
        scores = torch.baddbmm(offset, rows, folded.transpose(1, 2)).unflatten(-1, (heads, -1))
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        # out_proj's columns of a head, applied to the values instead of the result.
        out_weight = attention.out_proj.weight.unflatten(1, (heads, -1)).permute(1, 2, 0)
        values = (v @ out_weight).flatten(1, 2)
        return torch.baddbmm(attention.out_proj.bias, torch.softmax(scores, -1).flatten(2), values)

    def _few_rows(
        self, attention: nn.MultiheadAttention, rows: Tensor, keys: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attention of few `rows` [B, R, width] to many `keys` [B, K, width]: [B, R, width].

        A key's bias adds the same to all scores of a head's row and cancels in the softmax.
        """
        heads, width = self.shape.heads, self.shape.model_dim
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        query = F.linear(rows, weight[:width], bias[:width]) * (width // heads) ** -0.5
        query = query.unflatten(-1, (heads, -1)).transpose(1, 2)  # [B, heads, R, width / heads]
        folded = (query @ weight[width : 2 * width].unflatten(0, (heads, -1))).flatten(1, 2)
        scores = folded @ keys.transpose(1, 2)  # [B, heads * R, K]
        if mask is not None:
            scores = scores.masked_fill(~mask[:, 0], float("-inf"))
        mean = (torch.softmax(scores, -1) @ keys).unflatten(1, (heads, -1))
        values = weight[2 * width :].unflatten(0, (heads, -1)).transpose(1, 2)
        out = (mean @ values).transpose(1, 2).flatten(2) + bias[2 * width :]
        return attention.out_proj(out)


@dataclass
class _State:
    """The sequence in work and what stays the same through the layers."""

    x: Tensor  # [B, Q + 1 + T, model_dim]
    middle: int  # position of the matching token, = Q
    one_query: bool
    query_keep: Tensor | None  # [B or 1, Q + 1] bool, None where nothing is padding
    gallery_keep: Tensor | None  # [B, T]

    def mask(self, keys: slice) -> Tensor | None:
        """Keys to keep, [B, 1, 1, keys], for a slice of the sequence; None where none is padding."""
        covers_query = keys.start in (None, 0)
        covers_gallery = keys.stop is None
        query = self.query_keep if covers_query else None
        gallery = self.gallery_keep if covers_gallery else None
        if query is None and gallery is None:
            return None
        pairs, m = self.x.shape[0], self.middle
        left = m + 1 if covers_query else 1
        right = self.x.shape[1] - m - 1 if covers_gallery else 0
        keep = torch.ones(pairs, left + right, dtype=torch.bool, device=self.x.device)
        if query is not None:
            keep[:, :left] = query
        if gallery is not None:
            keep[:, left:] = gallery
        return keep[:, None, None, :]


def _keep_masks(
    query: Tensor, query_padding: Tensor | None, gallery: Tensor, gallery_padding: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    query_keep = gallery_keep = None
    if query_padding is not None and bool(query_padding.any()):
        token = torch.ones(query_padding.shape[0], 1, dtype=torch.bool, device=query.device)
        query_keep = torch.cat([~query_padding.bool(), token], 1)
    if gallery_padding is not None and bool(gallery_padding.any()):
        gallery_keep = ~gallery_padding.bool()
    return query_keep, gallery_keep


def _unit(x: Tensor) -> Tensor:
    """L2-normalised in float32 at least: in float16 the guard against zero vectors (padding) would vanish."""
    return F.normalize(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x, dim=-1)
