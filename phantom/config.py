"""The phantom's configuration: the fields of transformers' `deepseek_v4` config that shape this model."""
import dataclasses
import json
import math
import pathlib

SLIDING, CSA, HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and constants, under transformers' names. One value for every length; nothing is read from elsewhere."""

    vocab_size: int = 1536
    hidden_size: int = 256
    moe_intermediate_size: int = 64
    layer_types: tuple = (SLIDING, SLIDING, CSA, HCA, CSA, HCA, CSA)
    num_hash_layers: int = 2
    num_attention_heads: int = 4
    head_dim: int = 192  # 128 plain + 64 rotary: whole groups of 64, as the fp8 KV layout has them
    qk_rope_head_dim: int = 64
    q_lora_rank: int = 128
    o_groups: int = 2
    o_lora_rank: int = 112  # keeps the file below 16 MB
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    routed_scaling_factor: float = 2.5  # Pro's; the larger the factor, the more a second one harms
    swiglu_limit: float = 4.0  # low enough that more than one activation in a thousand meets it
    sliding_window: int = 64
    csa_rate: int = 4
    hca_rate: int = 128
    index_n_heads: int = 4
    index_head_dim: int = 128
    index_topk: int = 8  # of up to 8192 rows: a lost or badly ranked row is felt
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    yarn_factor: float = 16.0
    yarn_original_length: int = 4096  # inside the range of lengths that is trained and probed
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    max_position_embeddings: int = 65536
    bos_token_id: int = 0
    eos_token_id: int = 1

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layer_types)

    def rate(self, layer: int) -> int:
        """Tokens a compressed row of the layer; 0 where there are none."""
        return {SLIDING: 0, CSA: self.csa_rate, HCA: self.hca_rate}[self.layer_types[layer]]

    def inverse_frequencies(self, compressed: bool) -> list[float]:
        """Rotary angle a token of each pair; YaRN's ramp applies to layers with compressed rows only (spec 2.2)."""
        width = self.qk_rope_head_dim
        base = self.compress_rope_theta if compressed else self.rope_theta
        plain = [base ** (-2 * i / width) for i in range(width // 2)]
        if not compressed:
            return plain

        def pair_of(rotations):
            return width * math.log(self.yarn_original_length / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(pair_of(self.yarn_beta_fast)), 0)
        high = min(math.ceil(pair_of(self.yarn_beta_slow)), width - 1)
        high = high + 0.001 if high == low else high
        ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(width // 2)]
        return [f * (1 - r) + f / self.yarn_factor * r for f, r in zip(plain, ramp)]

    def to_transformers(self) -> dict:
        """config.json in the nested form of transformers."""
        partial = self.qk_rope_head_dim / self.head_dim
        same = ("vocab_size hidden_size moe_intermediate_size num_attention_heads head_dim q_lora_rank num_experts_per_tok "
                "n_routed_experts routed_scaling_factor max_position_embeddings rope_theta compress_rope_theta hc_mult "
                "hc_sinkhorn_iters hc_eps swiglu_limit sliding_window o_groups o_lora_rank index_n_heads index_head_dim "
                "index_topk rms_norm_eps bos_token_id eos_token_id qk_rope_head_dim").split()
        return {
            "name": "phantom", "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "dtype": "bfloat16",
            **{name: getattr(self, name) for name in same},
            "num_hidden_layers": self.num_hidden_layers, "num_key_value_heads": 1, "n_shared_experts": 1,
            "num_nextn_predict_layers": 0, "tie_word_embeddings": False,
            "layer_types": list(self.layer_types),
            "compress_rates": {CSA: self.csa_rate, HCA: self.hca_rate},
            "mlp_layer_types": ["hash_moe" if i < self.num_hash_layers else "moe" for i in range(self.num_hidden_layers)],
            "partial_rotary_factor": partial,
            "rope_parameters": {
                "main": {"rope_type": "default", "rope_theta": self.rope_theta, "partial_rotary_factor": partial},
                "compress": {"rope_type": "yarn", "factor": self.yarn_factor,
                             "original_max_position_embeddings": self.yarn_original_length,
                             "beta_fast": self.yarn_beta_fast, "beta_slow": self.yarn_beta_slow,
                             "rope_theta": self.compress_rope_theta, "partial_rotary_factor": partial,
                             "attention_factor": 1.0}},
        }

    @staticmethod
    def from_transformers(fields: dict) -> "Config":
        """The inverse of to_transformers; fields it does not know keep their defaults."""
        known = {f.name for f in dataclasses.fields(Config)}
        yarn = fields["rope_parameters"]["compress"]
        return Config(**{k: v for k, v in fields.items() if k in known and k != "layer_types"},
                      layer_types=tuple(fields["layer_types"]),
                      num_hash_layers=sum(kind == "hash_moe" for kind in fields["mlp_layer_types"]),
                      csa_rate=fields["compress_rates"][CSA], hca_rate=fields["compress_rates"][HCA],
                      yarn_factor=yarn["factor"], yarn_original_length=yarn["original_max_position_embeddings"],
                      yarn_beta_fast=yarn["beta_fast"], yarn_beta_slow=yarn["beta_slow"])

    @staticmethod
    def load(folder) -> "Config":
        return Config.from_transformers(json.loads((pathlib.Path(folder) / "config.json").read_text()))
