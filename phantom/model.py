"""DeepSeek-V4's architecture in PyTorch, for training and measuring the phantom.

Parameters carry transformers' names, so a state dict is a checkpoint. Whole sequences only, from position 0; tokens of
all sequences of a batch are laid end to end ([T, ...], T = B*S), because then most of the work has one shape whatever the
length, and is compiled once (`Phantom.fuse`). `Phantom.precision` is the dtype of matrix products; residual streams,
mHC, router and softmax are f32 always. With f32 it equals transformers' `deepseek_v4` up to rounding
(tests/phantom/model_test.py). Section numbers are those of the model specification that the C++ engine follows, too.
"""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from attention import attend, select_rows, indexer_loss
from config import CSA, HCA, SLIDING, Config
from sinkhorn import sinkhorn


@dataclasses.dataclass(frozen=True)
class Faults:
    """What a forward pass does wrong on purpose; the defaults are right. faults.py names the cases that are measured."""

    scale_twice: str = ""  # "all" or "hash": routed_scaling_factor enters twice in these layers
    sinkhorn_iterations: int = 0  # 0: as configured
    index_topk: int = 0  # 0: as configured
    zero_every: int = 0  # every so many compressed rows of CSA layers one is zero; 0: none
    window: int = 0  # 0: as configured
    no_sink: bool = False
    no_hca: bool = False
    mhc_bf16: bool = False  # the mHC projection's operands are rounded to bf16
    unclamped: bool = False  # routed experts without their clamp
    comb_transposed: bool = False


RIGHT = Faults()


def rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def rotate(x, cos, sin):
    """x [T, ..., D] f32: rotates the last 2R channels, pairs interleaved, by angles with cos, sin [T, R] (2.2)."""
    width = 2 * cos.shape[-1]
    plain, rotary = x.split([x.shape[-1] - width, width], -1)
    even, odd = rotary.unflatten(-1, (-1, 2)).unbind(-1)
    shape = (cos.shape[0],) + (1,) * (x.dim() - 2) + (cos.shape[-1],)
    cos, sin = cos.view(shape), sin.view(shape)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
    return torch.cat([plain, turned], -1)


def linear(x, weight, precision):
    return F.linear(x.to(precision), weight.to(precision))


# --- What one token needs of itself alone: functions of [T, ...], compiled by fuse() -----------------------------------


def mhc_mix(streams, fn, base, scale, norm, n, eps, hc_eps, low_precision):
    """streams [T, n, d] -> normed input [T, d], post [T, n], comb logits [T, n, n], all f32 (3.3, steps 1-5)."""
    v = streams.flatten(1)
    factor = torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)
    if low_precision:
        m = F.linear(v.bfloat16().float(), fn.bfloat16().float()) * factor
    else:
        m = F.linear(v, fn) * factor
    pre = torch.sigmoid(m[:, :n] * scale[0] + base[:n]) + hc_eps
    post = 2 * torch.sigmoid(m[:, n:2 * n] * scale[1] + base[n:2 * n])
    logits = (m[:, 2 * n:] * scale[2] + base[2 * n:]).unflatten(-1, (n, n))
    u = (pre.unsqueeze(-1) * streams).sum(1)
    return rms(u, eps) * norm, post, logits


def mhc_update(streams, y, post, comb):
    """X'_k = post_k y + sum_j comb[j, k] X_j (3.3, step 7)."""
    mixed = (comb.unsqueeze(-1) * streams.unsqueeze(2)).sum(1)
    return mixed + post.unsqueeze(-1) * y.float().unsqueeze(1)


def attention_inputs(x, wq_a, q_norm, wq_b, wkv, kv_norm, cos, sin, heads, eps, precision):
    """x [T, d] -> qr [T, q_lora], q [T, H, D], kv [T, D] in `precision`, q and kv rotated (3.4)."""
    qr = rms(linear(x, wq_a, precision).float(), eps) * q_norm
    q = linear(qr, wq_b, precision).float().unflatten(-1, (heads, -1))
    q = rotate(rms(q, eps), cos, sin)
    kv = rotate(rms(linear(x, wkv, precision).float(), eps) * kv_norm, cos, sin)
    return qr, q.to(precision), kv.to(precision)


def index_queries(x, qr, wq_b, weights, cos, sin, heads, precision):
    """Index queries [T, Hi, Di] in `precision`, rotated, and head weights [T, Hi] f32 with both constant factors (3.8)."""
    q = linear(qr, wq_b, precision).float().unflatten(-1, (heads, -1))
    g = linear(x, weights, precision).float() * (q.shape[-1] ** -0.5 * heads ** -0.5)
    return rotate(q, cos, sin).to(precision), g


def compress(x, wkv, wgate, bias, norm, first, cos, sin, rate, overlap, eps, precision):
    """x [T, d] -> one row of width w for every `rate` tokens, [T / rate, w] in `precision` (3.6).

    first [T / rate] bool: the row is the first of its sequence. cos, sin [T / rate, R]: of each row's first token.
    With overlap a row pools the first half of the window before it and the second half of its own.
    """
    k = linear(x, wkv, precision).float().unflatten(0, (-1, rate))
    s = linear(x, wgate, precision).float().unflatten(0, (-1, rate)) + bias
    if overlap:
        (ka, kb), (sa, sb) = k.chunk(2, -1), s.chunk(2, -1)
        ka, sa = ka.roll(1, 0), sa.roll(1, 0).masked_fill(first[:, None, None], float("-inf"))
        k, s = torch.cat([ka, kb], 1), torch.cat([sa, sb], 1)
    row = (torch.softmax(s, 1) * k).sum(1)
    return rotate(rms(row, eps) * norm, cos, sin).to(precision)


def attention_output(o, wo_a, wo_b, cos, sin, groups, precision):
    """o [T, H, D] -> y [T, d] f32: un-rotated, then the grouped low-rank projection (3.9, 3.10)."""
    o = rotate(o.float(), cos, -sin).to(precision).flatten(1).unflatten(-1, (groups, -1))
    low = torch.einsum("tgi,gri->tgr", o, wo_a.unflatten(0, (groups, -1)).to(precision)).flatten(1)
    return linear(low, wo_b, precision).float()


def route(x, gate, bias, ids, top_k, factor):
    """Routing weights [T, E] f32, zero for experts that were not chosen. ids [T, k]: given (hash), or None (3.11)."""
    scores = torch.sqrt(F.softplus(F.linear(x, gate)))
    if ids is None:
        ids = torch.topk(scores + bias, top_k, -1, sorted=False).indices
    chosen = scores.gather(1, ids)
    weights = chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * factor
    return torch.zeros_like(scores).scatter(1, ids, weights)


def experts(x, weights, gate_up, down, s_gate, s_up, s_down, limit, routed_limit, precision):
    """All experts for all tokens (they are small), weighted; the shared one beside them. Also how often a clamp bit."""
    count, two_i, _ = gate_up.shape
    h = linear(x, gate_up.flatten(0, 1), precision).float().unflatten(-1, (count, two_i))
    a, b = h.chunk(2, -1)
    used = (weights > 0).unsqueeze(-1)
    hit = ((used & (a > limit)).sum() + (used & (b.abs() > limit)).sum()) / (2 * used.sum() * (two_i // 2))
    routed = F.silu(a.clamp(max=routed_limit)) * b.clamp(-routed_limit, routed_limit) * weights.unsqueeze(-1)
    y = linear(routed.flatten(1), down.permute(1, 0, 2).flatten(1), precision)
    a, b = linear(x, s_gate, precision).float(), linear(x, s_up, precision).float()
    shared = F.silu(a.clamp(max=limit)) * b.clamp(-limit, limit)
    return y.float() + linear(shared, s_down, precision).float(), hit


def head(streams, fn, base, scale, norm, weight, eps, hc_eps, precision):
    """Logits [T, V] f32 (3.12)."""
    v = streams.flatten(1)
    m = F.linear(v, fn) * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)
    z = ((torch.sigmoid(m * scale + base) + hc_eps).unsqueeze(-1) * streams).sum(1)
    return linear(rms(z, eps) * norm, weight, precision).float()


def answer_loss(streams, fn, base, scale, norm, weight, targets, token_weights, eps, hc_eps, precision):
    """Weighted mean cross-entropy, and for each token the log-probability and whether the most likely token was right."""
    logits = head(streams, fn, base, scale, norm, weight, eps, hc_eps, precision)
    logp = -F.cross_entropy(logits, targets, reduction="none")
    return -(logp * token_weights).sum() / token_weights.sum(), logp.detach(), logits.argmax(-1) == targets


_FUSED = (mhc_mix, mhc_update, attention_inputs, index_queries, compress, attention_output, route, experts, head, answer_loss)


# --- Modules: transformers' names --------------------------------------------------------------------------------------


class Weight(nn.Module):
    """A single tensor `weight`: linear layers and norms."""

    def __init__(self, *shape, fill=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape) if fill is None else torch.full(shape, fill))


class HyperConnection(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fn = nn.Parameter(torch.empty((2 + c.hc_mult) * c.hc_mult, c.hc_mult * c.hidden_size))
        self.base = nn.Parameter(torch.empty((2 + c.hc_mult) * c.hc_mult))
        self.scale = nn.Parameter(torch.empty(3))


class HyperHead(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.hc_fn = nn.Parameter(torch.empty(c.hc_mult, c.hc_mult * c.hidden_size))
        self.hc_base = nn.Parameter(torch.empty(c.hc_mult))
        self.hc_scale = nn.Parameter(torch.empty(1))


class Compressor(nn.Module):
    def __init__(self, c, rate, width):
        super().__init__()
        series = 2 if rate == c.csa_rate else 1
        self.kv_proj = Weight(series * width, c.hidden_size)
        self.gate_proj = Weight(series * width, c.hidden_size)
        self.position_bias = nn.Parameter(torch.empty(rate, series * width))
        self.kv_norm = Weight(width, fill=1.0)


class Indexer(Compressor):
    def __init__(self, c):
        super().__init__(c, c.csa_rate, c.index_head_dim)
        self.q_b_proj = Weight(c.index_n_heads * c.index_head_dim, c.q_lora_rank)
        self.scorer = nn.Module()
        self.scorer.weights_proj = Weight(c.index_n_heads, c.hidden_size)


class Attention(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        width = c.num_attention_heads * c.head_dim
        self.q_a_proj = Weight(c.q_lora_rank, c.hidden_size)
        self.q_a_norm = Weight(c.q_lora_rank, fill=1.0)
        self.q_b_proj = Weight(width, c.q_lora_rank)
        self.kv_proj = Weight(c.head_dim, c.hidden_size)
        self.kv_norm = Weight(c.head_dim, fill=1.0)
        self.o_a_proj = Weight(c.o_groups * c.o_lora_rank, width // c.o_groups)
        self.o_b_proj = Weight(c.hidden_size, c.o_groups * c.o_lora_rank)
        self.sinks = nn.Parameter(torch.empty(c.num_attention_heads))
        if c.layer_types[layer] != SLIDING:
            self.compressor = Compressor(c, c.rate(layer), c.head_dim)
        if c.layer_types[layer] == CSA:
            self.compressor.indexer = Indexer(c)


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(c.n_routed_experts, 2 * c.moe_intermediate_size, c.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(c.n_routed_experts, c.hidden_size, c.moe_intermediate_size))


class MoE(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.gate = Weight(c.n_routed_experts, c.hidden_size)
        if layer < c.num_hash_layers:
            self.gate.register_buffer("tid2eid", torch.zeros(c.vocab_size, c.num_experts_per_tok, dtype=torch.long))
        else:
            self.gate.register_buffer("e_score_correction_bias", torch.zeros(c.n_routed_experts))
        self.experts = Experts(c)
        self.shared_experts = nn.Module()
        self.shared_experts.gate_proj = Weight(c.moe_intermediate_size, c.hidden_size)
        self.shared_experts.up_proj = Weight(c.moe_intermediate_size, c.hidden_size)
        self.shared_experts.down_proj = Weight(c.hidden_size, c.moe_intermediate_size)


class Layer(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.attn_hc, self.ffn_hc = HyperConnection(c), HyperConnection(c)
        self.input_layernorm, self.post_attention_layernorm = Weight(c.hidden_size, fill=1.0), Weight(c.hidden_size, fill=1.0)
        self.self_attn, self.mlp = Attention(c, layer), MoE(c, layer)


@dataclasses.dataclass
class Batch:
    """Where the tokens of a batch stand: everything that depends on its shape alone."""

    sequences: int
    length: int
    positions: torch.Tensor  # [T] i64
    angles: dict  # (layer has compressed rows, tokens a row) -> (cos, sin), [T / tokens, R] f32
    first_rows: dict  # tokens a row -> [T / tokens] bool


@dataclasses.dataclass
class Trace:
    """What a forward pass leaves behind for training: numbers and loads, no text."""

    index_loss: torch.Tensor
    loads: list  # of each scored layer: [E] tokens sent to each expert
    clamp_hits: list  # of each layer: share of routed activations that met the limit


class Phantom(nn.Module):
    """The model. `precision`: dtype of matrix products. Lengths must be whole HCA windows."""

    def __init__(self, config: Config, precision=torch.float32):
        super().__init__()
        self.config, self.precision = config, precision
        self.model = nn.Module()
        self.model.embed_tokens = Weight(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.model.hc_head = HyperHead(config)
        self.model.norm = Weight(config.hidden_size, fill=1.0)
        self.lm_head = Weight(config.vocab_size, config.hidden_size)
        self.run = {f.__name__: f for f in _FUSED}
        self.sparse_from = 2048  # lengths from here gather the selected rows; shorter ones mask all rows (the same result)

    def fuse(self):
        """Compiles what works on single tokens. Call it once, after the model is on its device."""
        self.run = {f.__name__: torch.compile(f, dynamic=False) for f in _FUSED}

    def batch(self, sequences, length) -> Batch:
        c, device = self.config, self.lm_head.weight.device
        if length % c.hca_rate:
            raise ValueError(f"length {length} is not a multiple of {c.hca_rate}: pad the sequence")
        positions = torch.arange(length, device=device).repeat(sequences)
        angles = {}
        for compressed, rate in ((False, 1), (True, 1), (True, c.csa_rate), (True, c.hca_rate)):
            frequencies = torch.tensor(c.inverse_frequencies(compressed), dtype=torch.float64, device=device)
            angle = positions[::rate, None].double() * frequencies
            angles[compressed, rate] = angle.cos().float(), angle.sin().float()
        return Batch(sequences, length, positions, angles, {r: positions[::r] == 0 for r in (c.csa_rate, c.hca_rate)})

    def attention(self, x, layer, batch, faults, top_k, index_weights):
        """x [T, d] f32, normed -> y [T, d] f32 and the indexer's loss (None where there is none to teach)."""
        c, a, p, run = self.config, self.model.layers[layer].self_attn, self.precision, self.run
        kind, rate, eps = c.layer_types[layer], c.rate(layer), c.rms_norm_eps
        cos, sin = batch.angles[rate > 0, 1]
        qr, q, kv = run["attention_inputs"](x, a.q_a_proj.weight, a.q_a_norm.weight, a.q_b_proj.weight, a.kv_proj.weight,
                                            a.kv_norm.weight, cos, sin, c.num_attention_heads, eps, p)
        rows = selected = loss = None
        if rate and not (kind == HCA and faults.no_hca):
            def pooled(module, source):
                return run["compress"](source, module.kv_proj.weight, module.gate_proj.weight, module.position_bias,
                                       module.kv_norm.weight, batch.first_rows[rate], *batch.angles[True, rate], rate,
                                       kind == CSA, eps, p).unflatten(0, (batch.sequences, -1))
            rows = pooled(a.compressor, x)
            if kind == CSA and faults.zero_every:
                keep = torch.arange(rows.shape[1], device=x.device) % faults.zero_every != faults.zero_every - 1
                rows = rows * keep[None, :, None].to(rows.dtype)
        if kind == CSA and (top_k or index_weights is not None):
            indexer, source = a.compressor.indexer, x.detach()
            index_rows = pooled(indexer, source)
            index_q, index_g = run["index_queries"](source, qr.detach(), indexer.q_b_proj.weight,
                                                    indexer.scorer.weights_proj.weight, cos, sin, c.index_n_heads, p)
            if top_k:
                selected = select_rows(index_q, index_g, index_rows, batch, rate, top_k)
            if index_weights is not None:
                loss = indexer_loss(q, rows, index_q, index_g, index_rows, batch, rate, index_weights)
        sinks = torch.full_like(a.sinks, -torch.inf) if faults.no_sink else a.sinks
        o = attend(q, kv, rows, selected, sinks, batch, faults.window or c.sliding_window, rate, self.sparse_from)
        return run["attention_output"](o, a.o_a_proj.weight, a.o_b_proj.weight, cos, sin, c.o_groups, p), loss

    def moe(self, x, layer, ids, faults):
        """x [T, d] f32, normed -> y [T, d], load of each expert (None in hash layers), share of clamped activations."""
        c, m = self.config, self.model.layers[layer].mlp
        hashed = layer < c.num_hash_layers
        factor = c.routed_scaling_factor
        if faults.scale_twice == "all" or (faults.scale_twice == "hash" and hashed):
            factor *= factor
        weights = self.run["route"](x, m.gate.weight, None if hashed else m.gate.e_score_correction_bias,
                                    m.gate.tid2eid[ids] if hashed else None, c.num_experts_per_tok, factor)
        shared = m.shared_experts
        y, hits = self.run["experts"](x, weights, m.experts.gate_up_proj, m.experts.down_proj, shared.gate_proj.weight,
                                      shared.up_proj.weight, shared.down_proj.weight, c.swiglu_limit,
                                      1e30 if faults.unclamped else c.swiglu_limit, self.precision)
        return y, None if hashed else (weights.detach() > 0).sum(0), hits.detach()

    def streams(self, ids, faults=RIGHT, dense=False, index_weights=None):
        """ids [B, S] i64 -> residual streams [T, N, d] f32 before the head, and the trace.

        dense: attend to all visible rows, whatever the indexer says. index_weights [T] f32: teach the indexer, with
        these weights of the tokens.
        """
        c, run = self.config, self.run
        batch, flat = self.batch(*ids.shape), ids.flatten()
        top_k = 0 if dense else faults.index_topk or c.index_topk
        iterations = faults.sinkhorn_iterations or c.hc_sinkhorn_iters
        x = F.embedding(flat, self.model.embed_tokens.weight).float().unsqueeze(1).expand(-1, c.hc_mult, -1).contiguous()
        losses, loads, hits = [], [], []
        for i, layer in enumerate(self.model.layers):
            for hc, norm, attends in ((layer.attn_hc, layer.input_layernorm, True),
                                      (layer.ffn_hc, layer.post_attention_layernorm, False)):
                u, post, logits = run["mhc_mix"](x, hc.fn, hc.base, hc.scale, norm.weight, c.hc_mult, c.rms_norm_eps,
                                                 c.hc_eps, faults.mhc_bf16)
                comb = sinkhorn(logits, iterations, c.hc_eps)
                comb = comb.transpose(1, 2).contiguous() if faults.comb_transposed else comb
                if attends:
                    y, loss = self.attention(u, i, batch, faults, top_k, index_weights)
                    losses += [] if loss is None else [loss]
                else:
                    y, load, hit = self.moe(u, i, flat, faults)
                    loads += [] if load is None else [load]
                    hits.append(hit)
                x = run["mhc_update"](x, y, post, comb)
        return x, Trace(torch.stack(losses).mean() if losses else x.new_zeros(()), loads, hits)

    def head_weights(self):
        h = self.model.hc_head
        return h.hc_fn, h.hc_base, h.hc_scale, self.model.norm.weight, self.lm_head.weight

    def forward(self, ids, faults=RIGHT):
        """ids [B, S] i64 -> logits [B, S, V] f32. Any length: it is padded to whole windows, which changes nothing before."""
        length = ids.shape[1]
        padded = F.pad(ids, (0, -length % self.config.hca_rate))
        x, _ = self.streams(padded, faults)
        logits = self.run["head"](x, *self.head_weights(), self.config.rms_norm_eps, self.config.hc_eps, self.precision)
        return logits.unflatten(0, padded.shape)[:, :length]

    def loss(self, ids, targets, token_weights, faults=RIGHT, dense=False, index_weights=None):
        """Loss, log-probabilities and rightness of targets [B, S] with weights [B, S], and the trace."""
        x, trace = self.streams(ids, faults, dense, index_weights)
        value, logp, right = self.run["answer_loss"](x, *self.head_weights(), targets.flatten(), token_weights.flatten(),
                                                     self.config.rms_norm_eps, self.config.hc_eps, self.precision)
        return value, logp.view(ids.shape), right.view(ids.shape), trace


@torch.no_grad()
def initialise(model: Phantom, seed: int):
    """Initial values. What matters: an mHC that starts near the identity, and position biases that tell slots apart."""
    c, g = model.config, torch.Generator().manual_seed(seed)

    def normal(tensor, deviation):
        tensor.copy_(torch.randn(tensor.shape, generator=g) * deviation)

    depth = (2 * c.num_hidden_layers) ** -0.5
    for name, p in model.named_parameters():
        if name.endswith("embed_tokens.weight"):
            normal(p, 0.5)
        elif name.endswith(("_hc.base", "hc_base")):
            normal(p, 0.2)
            if p.numel() > c.hc_mult:
                p[2 * c.hc_mult:] += 3 * torch.eye(c.hc_mult).flatten()
        elif name.endswith(("_hc.scale", "hc_scale")):
            p.fill_(0.3)
        elif name.endswith("sinks"):
            normal(p, 0.5)
            p += 3  # a sink that heads learn to lean on while nothing matches, so that a lost one is felt
        elif name.endswith("position_bias"):
            normal(p, 1.0 if len(p) == c.csa_rate else 0.5)
        elif p.dim() >= 2:
            normal(p, p.shape[-1] ** -0.5 * (depth if name.endswith(("o_b_proj.weight", "down_proj.weight", "down_proj")) else 1))
    for name, table in model.named_buffers():
        if name.endswith("tid2eid"):
            rows = torch.rand(table.shape[0], c.n_routed_experts, generator=g).argsort(1)
            table.copy_(rows[:, :c.num_experts_per_tok])
