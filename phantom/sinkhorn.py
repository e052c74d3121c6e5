"""Sinkhorn normalisation of the mHC mixing matrices: plain PyTorch, and one Triton kernel each way for the GPU.

Twenty iterations are forty tiny reductions; as separate kernels, with their gradients, they cost more than the model's
matrix products. The fused pair keeps a token's 4x4 matrix in registers. Its backward pass needs no intermediate matrix:
every step divides by a vector that is stored, so the steps are undone on the way back.
"""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of PyTorch; the plain form serves there
    triton = None


def sinkhorn_reference(logits, iterations, eps):
    """logits [T, N, N] f32 -> [T, N, N]: softmax of rows, then columns and rows in turn, columns last (spec 3.3)."""
    comb = torch.softmax(logits, -1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


if triton is not None:
    @triton.jit
    def _forward(logits, comb, divisors, tokens, eps, STEPS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        j = tl.arange(0, N)
        at = t[:, None, None] * (N * N) + j[None, :, None] * N + j[None, None, :]
        alive = (t < tokens)[:, None, None]
        c = tl.load(logits + at, mask=alive, other=0.0)
        c = tl.exp(c - tl.max(c, 2)[:, :, None])
        c = c / tl.sum(c, 2)[:, :, None] + eps
        slot = t[:, None] * (STEPS * N) + j[None, :]
        for step in range(STEPS):
            if step % 2 == 0:
                d = tl.sum(c, 1) + eps
                c = c / d[:, None, :]
            else:
                d = tl.sum(c, 2) + eps
                c = c / d[:, :, None]
            tl.store(divisors + slot + step * N, d, mask=(t < tokens)[:, None])
        tl.store(comb + at, c, mask=alive)

    @triton.jit
    def _backward(grad_comb, comb, divisors, grad_logits, tokens, eps,
                  STEPS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        j = tl.arange(0, N)
        at = t[:, None, None] * (N * N) + j[None, :, None] * N + j[None, None, :]
        alive = (t < tokens)[:, None, None]
        c = tl.load(comb + at, mask=alive, other=0.0)
        g = tl.load(grad_comb + at, mask=alive, other=0.0)
        slot = t[:, None] * (STEPS * N) + j[None, :]
        for back in range(STEPS):
            step = STEPS - 1 - back
            d = tl.load(divisors + slot + step * N, mask=(t < tokens)[:, None], other=1.0)
            if step % 2 == 0:
                g = (g - tl.sum(g * c, 1)[:, None, :]) / d[:, None, :]
                c = c * d[:, None, :]
            else:
                g = (g - tl.sum(g * c, 2)[:, :, None]) / d[:, :, None]
                c = c * d[:, :, None]
        p = c - eps
        tl.store(grad_logits + at, p * (g - tl.sum(g * p, 2)[:, :, None]), mask=alive)


class _FusedSinkhorn(torch.autograd.Function):
    BLOCK = 64

    @staticmethod
    def forward(ctx, logits, iterations, eps):
        tokens, n, _ = logits.shape
        steps = 2 * iterations - 1
        logits = logits.contiguous()
        comb = torch.empty_like(logits)
        divisors = logits.new_empty(tokens, steps, n)
        grid = (triton.cdiv(tokens, _FusedSinkhorn.BLOCK),)
        _forward[grid](logits, comb, divisors, tokens, eps, STEPS=steps, N=n, BLOCK=_FusedSinkhorn.BLOCK)
        ctx.save_for_backward(comb, divisors)
        ctx.eps = eps
        return comb

    @staticmethod
    def backward(ctx, grad):
        comb, divisors = ctx.saved_tensors
        tokens, steps, n = divisors.shape
        out = torch.empty_like(comb)
        grid = (triton.cdiv(tokens, _FusedSinkhorn.BLOCK),)
        _backward[grid](grad.contiguous(), comb, divisors, out, tokens, ctx.eps, STEPS=steps, N=n, BLOCK=_FusedSinkhorn.BLOCK)
        return out, None, None


def sinkhorn(logits, iterations, eps):
    """As sinkhorn_reference; fused on a GPU."""
    if logits.is_cuda and triton is not None:
        return _FusedSinkhorn.apply(logits, iterations, eps)
    return sinkhorn_reference(logits, iterations, eps)
