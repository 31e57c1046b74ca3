"""The shape of a transformer, and how many parameters and operations it has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of equal layers. `experts` 0: dense. Widths are numbers of elements."""

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    ffn_width: int  # of one expert
    vocabulary: int
    gated: bool = True  # SwiGLU: two matrices up, one down; else GELU: one up, one down
    experts: int = 0
    experts_of_token: int = 0
    shared_experts: int = 0
    tied_embeddings: bool = False
    latent_width: int = (
        0  # of the compressed keys and values that are cached instead (DeepSeek-V2, 2405.04434); 0: none
    )

    @property
    def attention_width(self) -> int:
        """Elements of all query heads of a token."""
        return self.heads * self.head_width

    @property
    def cache_width(self) -> int:
        """Elements of one token's keys and values in one layer, as a service caches them."""
        return self.latent_width or 2 * self.kv_heads * self.head_width

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer's attention: query, key, value and output matrices."""
        return self.width * self.head_width * (2 * self.heads + 2 * self.kv_heads)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one feed-forward part (of one expert of a mixture)."""
        return self.width * self.ffn_width * (3 if self.gated else 2)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer, with all experts, router and norms."""
        copies = (self.experts + self.shared_experts) if self.experts else 1
        return self.attention_parameters + copies * self.expert_parameters + self.width * (self.experts + 2)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding and, unless tied, of the output matrix."""
        return self.vocabulary * self.width * (1 if self.tied_embeddings else 2)

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.layers * self.layer_parameters + self.embedding_parameters + self.width

    @property
    def active_layer_parameters(self) -> int:
        """Parameters of one layer that one token passes through."""
        copies = (self.experts_of_token + self.shared_experts) if self.experts else 1
        return self.attention_parameters + copies * self.expert_parameters + self.width * self.experts

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes through, without the input embedding, which is a look-up."""
        return self.layers * self.active_layer_parameters + self.vocabulary * self.width

    def flops_per_token(self, sequence: int) -> float:
        """Returns model FLOP per trained token: 6 per active parameter and 12 L d s for attention, as PaLM (2204.02311,
        appendix B) counts them for the MFU; causal masking is not subtracted."""
        return 6 * self.active_parameters + 12 * self.layers * self.attention_width * sequence
