"""AMES: the transformer that scores an image pair from two sets of local descriptors, computed block by block.

Source: Suma, Kordopatis-Zilos, Iscen, Tolias, "AMES: Asymmetric and Memory-Efficient Similarity Estimation for
Instance-level Retrieval", ECCV 2024 (arXiv 2408.03282); official code `src/models/matcher.py`,
`transformer_dec.py` and `binarization_layer.py` of pavelsuma/ames. Parameter names are those of the published
checkpoints, which load unchanged.

The official network attends over the whole sequence (matching token, query, gallery) under a mask. In
self-attention a descriptor sees its own image and the matching token, in cross-attention the other image and the
matching token; the matching token sees everything. So the blocks are computed apart, nothing masked is computed,
and what does not reach the logit is left out. The sequence is ordered (query, matching token, gallery) here, so
that every block's keys are one slice: query and token, or token and gallery.
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
        x = F.normalize(x, dim=-1) @ self.W
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
        return self.remap_local(F.normalize(local, dim=-1))

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
        """Logits [B] of B pairs: descriptors [B, Q, local_dim] and [B, T, local_dim]; padding [B, Q], [B, T] bool
        (true = padding) or None. A query batch of 1 is shared by all candidates."""
        return self.match(self.project(query), query_padding, self.project_gallery(gallery), gallery_padding)

    def match(
        self, query: Tensor, query_padding: Tensor | None, gallery: Tensor, gallery_padding: Tensor | None
    ) -> Tensor:
        """Logits [B] from projected tokens: query [B or 1, Q, model_dim], gallery [B, T, model_dim]."""
        state = self._begin(query, query_padding, gallery, gallery_padding)
        layers = list(self.decoder.layers)
        for number, layer in enumerate(layers[:-1]):
            state.x = self._layer(layer, state, shared=number == 0)  # type: ignore[arg-type]
        token = self._last_layer(layers[-1], state, shared=len(layers) == 1)  # type: ignore[arg-type]
        return self.classifier(token).squeeze(-1)

    def tokens(
        self, query: Tensor, query_padding: Tensor | None, gallery: Tensor, gallery_padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Logits [B] and all output tokens [B, 1 + Q + T, model_dim] (token, query, gallery) from projected
        tokens, as distillation compares them."""
        state = self._begin(query, query_padding, gallery, gallery_padding)
        for number, layer in enumerate(self.decoder.layers):
            state.x = self._layer(layer, state, shared=number == 0)  # type: ignore[arg-type]
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
        return _State(x, middle, query.shape[0] == 1, *_keep_masks(query, query_padding, gallery, gallery_padding))

    def _layer(self, layer: AmesLayer, state: "_State", shared: bool) -> Tensor:
        """One whole layer on the sequence [B, Q + 1 + T, model_dim]."""
        x = self._self_attention(layer, state, shared)
        before = self.shape.normalize_before
        y = layer.norm2(x) if before else x
        # In the first layer the query's rows are still the same for every candidate.
        same = shared and state.one_query
        update = self._attend(layer.cross_attn, y, state, cross=True, shared=same)
        x = x + update if before else layer.norm2(x + update)
        update = self._feedforward(layer, layer.norm3(x) if before else x)
        return x + update if before else layer.norm3(x + update)

    def _last_layer(self, layer: AmesLayer, state: "_State", shared: bool) -> Tensor:
        """The last layer's matching token [B, model_dim]: all the classifier reads."""
        x = self._self_attention(layer, state, shared)
        before = self.shape.normalize_before
        y = layer.norm2(x) if before else x
        token, update = x[:, state.middle], self._attend_token(layer.cross_attn, y, state)
        token = token + update if before else layer.norm2(token + update)
        update = self._feedforward(layer, layer.norm3(token) if before else token)
        token = token + update if before else layer.norm3(token + update)
        return token if self.decoder.norm is None else self.decoder.norm(token)

    def _self_attention(self, layer: AmesLayer, state: "_State", shared: bool) -> Tensor:
        before = self.shape.normalize_before
        y = layer.norm1(state.x) if before else state.x
        update = self._attend(layer.self_attn, y, state, cross=False, shared=shared and state.one_query)
        return state.x + update if before else layer.norm1(state.x + update)

    def _feedforward(self, layer: AmesLayer, x: Tensor) -> Tensor:
        hidden = layer.linear1(x)
        if self.shape.activation == "gelu":
            hidden = F.gelu(hidden)
        else:
            hidden = F.relu(hidden, inplace=not torch.is_grad_enabled())
        return layer.linear2(hidden)

    def _attend(
        self, attention: nn.MultiheadAttention, x: Tensor, state: "_State", cross: bool, shared: bool
    ) -> Tensor:
        """Block-wise attention over [B, Q + 1 + T, model_dim].

        `shared`: the query's rows of `x` are equal for every candidate, so they are projected (and, in
        self-attention, attended) once.
        """
        m, pairs = state.middle, x.shape[0]
        if shared and pairs > 1:
            one = _linear(attention, x[:1, :m])
            q, k, v = self._heads(torch.cat([one.expand(pairs, -1, -1), _linear(attention, x[:, m:])], 1))
        else:
            q, k, v = self._heads(_linear(attention, x))
        left, right = slice(0, m + 1), slice(m, None)
        query_keys, gallery_keys = (right, left) if cross else (left, right)
        n = 1 if shared and not cross else pairs
        query = F.scaled_dot_product_attention(
            q[:n, :, :m], k[:n, :, query_keys], v[:n, :, query_keys], attn_mask=state.mask(query_keys)
        )
        token = F.scaled_dot_product_attention(q[:, :, m : m + 1], k, v, attn_mask=state.mask(slice(None)))
        gallery = F.scaled_dot_product_attention(
            q[:, :, m + 1 :], k[:, :, gallery_keys], v[:, :, gallery_keys], attn_mask=state.mask(gallery_keys)
        )
        joined = torch.cat([query.expand(pairs, -1, -1, -1), token, gallery], 2)
        return attention.out_proj(joined.transpose(1, 2).flatten(2))

    def _attend_token(self, attention: nn.MultiheadAttention, x: Tensor, state: "_State") -> Tensor:
        """Attention of the matching token over the whole sequence, [B, model_dim], without projecting the keys.

        A key's bias adds the same to all of a head's scores and cancels in the softmax; the query is multiplied
        by the key weights, and the weighted mean of `x` by the value weights, instead of every row of `x`.
        """
        heads, width = self.shape.heads, self.shape.model_dim
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        query = F.linear(x[:, state.middle], weight[:width], bias[:width])
        query = query.unflatten(-1, (heads, -1)) * (width // heads) ** -0.5
        keys = weight[width : 2 * width].unflatten(0, (heads, -1))
        scores = torch.einsum("bhd,hdc->bhc", query, keys) @ x.transpose(1, 2)
        mask = state.mask(slice(None))
        if mask is not None:
            scores = scores.masked_fill(~mask[:, 0], float("-inf"))
        mean = torch.softmax(scores, -1) @ x
        values = weight[2 * width :].unflatten(0, (heads, -1))
        out = torch.einsum("bhc,hdc->bhd", mean, values).flatten(1) + bias[2 * width :]
        return attention.out_proj(out)

    def _heads(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split [B, L, 3 * model_dim] into queries, keys, values, each [B, heads, L, model_dim / heads]."""
        q, k, v = projected.unflatten(-1, (3, self.shape.heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v


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


def _linear(attention: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
