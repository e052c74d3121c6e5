"""Attention over window rows and compressed rows, the indexer's selection, and the loss that teaches the indexer.

Tokens are flat, [T = B*S, ...]; rows are [B, n, D]. Row r is visible to the token at position p iff r < (p + 1) // rate.
"""
import torch
import torch.nn.functional as F

INDEX_CHUNK = 2048  # queries whose index scores are held at a time
INDEX_SAMPLE = 1024  # queries of a sequence that teach the indexer, those of the largest weight


def join_softmax(near, far, valid, sinks, positions, window):
    """Softmax over window scores [T, H, 2w], row scores [T, H, R] (or None) and the sink, which takes weight and gives nothing.

    Column j of `near` is the token at (start of the query's block of w) + j - w. valid [T, R] bool.
    """
    offset = positions % window
    back = offset[:, None] + window - torch.arange(2 * window, device=near.device)  # how far back the key lies
    seen = (back >= 0) & (back < window) & (back <= positions[:, None])
    near = near.float().masked_fill(~seen[:, None], float("-inf"))
    peak = torch.maximum(near.amax(-1), sinks)
    if far is not None:
        far = far.float().masked_fill(~valid[:, None], float("-inf"))
        peak = torch.maximum(peak, far.amax(-1))
    peak = peak.detach()
    near = torch.exp(near - peak.unsqueeze(-1))
    total = near.sum(-1) + torch.exp(sinks - peak)
    if far is None:
        return near / total.unsqueeze(-1), None
    far = torch.exp(far - peak.unsqueeze(-1))
    total = (total + far.sum(-1)).unsqueeze(-1)
    return near / total, far / total


def _join(*args):
    function = _compiled_join if args[0].is_cuda else join_softmax
    return function(*args)


_compiled_join = torch.compile(join_softmax, dynamic=True)


class GatherRows(torch.autograd.Function):
    """rows [N, D] at index [M]; the gradient of a row that many queries chose is summed in f32."""

    @staticmethod
    def forward(ctx, rows, index):
        ctx.save_for_backward(index)
        ctx.count = rows.shape[0]
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx, grad):
        index, = ctx.saved_tensors
        out = torch.zeros(ctx.count, grad.shape[1], dtype=torch.float32, device=grad.device)
        return out.index_add_(0, index, grad.float()).to(grad.dtype), None


def visible_rows(batch, rate):
    """[T, n] bool."""
    count = batch.length // rate
    return torch.arange(count, device=batch.positions.device) < ((batch.positions + 1) // rate)[:, None]


def attend(q, kv, rows, selected, sinks, batch, window, rate, sparse_from):
    """q [T, H, D], kv [T, D], rows [B, n, D] or None -> o [T, H, D] (spec 3.9).

    selected: (index [T, K], valid [T, K]) of the rows each token sees; None: all visible ones.
    """
    tokens, heads, width = q.shape
    b, scale = batch.sequences, width ** -0.5
    blocks = -(-batch.length // window)  # a faulty window may not divide the length
    pad = blocks * window - batch.length
    positions = batch.positions

    def blocked(x):
        x = x.unflatten(0, (b, -1))
        x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, pad)) if pad else x
        return x.unflatten(1, (blocks, window))

    own = blocked(kv)  # [B, nb, w, D]
    keys = torch.cat([F.pad(own, (0, 0, 0, 0, 1, 0))[:, :-1], own], 2).flatten(0, 1)
    queries = blocked(q).flatten(2, 3).flatten(0, 1)  # [B nb, w H, D]
    near = torch.bmm(queries, keys.transpose(1, 2)) * scale
    near = near.view(b, blocks * window, heads, 2 * window)[:, :batch.length].reshape(tokens, heads, 2 * window)
    far = valid = chosen = None
    if rows is not None:
        if selected is not None and batch.length >= sparse_from:
            index, valid = selected
            first = torch.arange(b, device=q.device).repeat_interleave(batch.length)[:, None] * rows.shape[1]
            chosen = GatherRows.apply(rows.flatten(0, 1), (index + first).flatten()).view(tokens, -1, width)
            far = torch.bmm(q, chosen.transpose(1, 2)) * scale
        else:
            valid = visible_rows(batch, rate)
            if selected is not None:
                valid = torch.zeros_like(valid).scatter(1, selected[0], selected[1]) & valid
            far = torch.bmm(q.view(b, -1, width), rows.transpose(1, 2)).view(tokens, heads, -1) * scale
    near, far = _join(near, far, valid, sinks, positions, window)
    near = near.to(q.dtype)
    near = F.pad(near.unflatten(0, (b, -1)), (0, 0, 0, 0, 0, pad)) if pad else near
    o = torch.bmm(near.reshape(b * blocks, window * heads, 2 * window), keys)
    o = o.view(b, blocks * window, heads, width)[:, :batch.length].reshape(tokens, heads, width)
    if rows is None:
        return o
    far = far.to(q.dtype)
    if chosen is not None:
        return o + torch.bmm(far, chosen)
    return o + torch.bmm(far.view(b, -1, rows.shape[1]), rows).view(tokens, heads, width)


def _weigh(products, weights):
    """sum over heads of weights * relu(products): [B, C, Hi, n], [B, C, Hi] -> [B, C, n] f32 (spec 3.8)."""
    return (products.float().relu() * weights.unsqueeze(-1)).sum(2)


_compiled_weigh = torch.compile(_weigh, dynamic=True)


def index_scores(q, g, rows):
    """q [B, C, Hi, Di], g [B, C, Hi], rows [B, n, Di] -> scores [B, C, n] f32."""
    products = torch.bmm(q.flatten(1, 2), rows.transpose(1, 2)).view(*q.shape[:3], -1)
    return (_compiled_weigh if q.is_cuda else _weigh)(products, g)


@torch.no_grad()
def select_rows(q, g, rows, batch, rate, top_k):
    """The top_k visible rows of each token by index score: index [T, K] i64 and valid [T, K]."""
    b, count = batch.sequences, rows.shape[1]
    q, g = q.unflatten(0, (b, -1)), g.unflatten(0, (b, -1))
    top_k = min(top_k, count)
    limit = (batch.positions[:batch.length] + 1) // rate
    parts = []
    for begin in range(0, batch.length, INDEX_CHUNK):
        end = min(begin + INDEX_CHUNK, batch.length)
        seen = max(end // rate, top_k)
        scores = index_scores(q[:, begin:end], g[:, begin:end], rows[:, :seen])
        future = torch.arange(seen, device=q.device) >= limit[begin:end, None]
        parts.append(scores.masked_fill_(future, -torch.inf).topk(top_k, -1, sorted=False).indices)
    index = torch.cat(parts, 1).flatten(0, 1)
    return index, index < ((batch.positions + 1) // rate)[:, None]


def indexer_loss(q, rows, index_q, index_g, index_rows, batch, rate, weights):
    """KL from the attention over all visible rows (mean of the heads, no gradient) to the softmax of the index scores.

    Long sequences are sampled: their INDEX_SAMPLE tokens of the largest `weights` [T].
    """
    b = batch.sequences
    weights = weights.view(b, -1)
    sample = min(batch.length, INDEX_SAMPLE)
    if sample < batch.length:
        weights, at = weights.topk(sample, -1, sorted=False)
    else:
        at = torch.arange(batch.length, device=q.device).expand(b, -1)

    def picked(x):
        x = x.unflatten(0, (b, -1))
        return x if sample == batch.length else x.gather(1, at.view(b, sample, *(1,) * (x.dim() - 2)).expand(-1, -1, *x.shape[2:]))

    hidden = torch.arange(rows.shape[1], device=q.device) >= ((at + 1) // rate).unsqueeze(-1)  # [B, M, n]
    with torch.no_grad():
        query = picked(q)
        scores = torch.bmm(query.flatten(1, 2), rows.transpose(1, 2)).view(*query.shape[:3], -1).float()
        scores = scores * q.shape[-1] ** -0.5
        target = scores.masked_fill_(hidden.unsqueeze(2), -1e30).softmax(-1).mean(2)
    guess = index_scores(picked(index_q), picked(index_g), index_rows)
    guess = guess.masked_fill(hidden, -1e30).log_softmax(-1)
    loss = (torch.xlogy(target, target) - target * guess).masked_fill(hidden, 0).sum(-1)
    weights = weights * (~hidden).any(-1)
    return (loss * weights).sum() / weights.sum().clamp(min=1e-6)
