"""Muon for the matrices inside the layers, AdamW for everything else.

Muon: momentum, then the nearest semi-orthogonal matrix by five Newton-Schulz steps, scaled so that an update's root mean
square is AdamW's (0.2 a learning rate). Matrices of one shape are stacked, so that a step is a few dozen products.
"""
import collections

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(stack, steps=5):
    """stack [k, m, n] -> its matrices with all singular values near 1, in bf16."""
    x = stack.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """Parameters of two or three dimensions; three are a stack of matrices (experts)."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = collections.defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[p.shape].append(p)
            for shape, params in shapes.items():
                for p in params:
                    if "momentum" not in self.state[p]:
                        self.state[p]["momentum"] = torch.zeros_like(p)
                grads = [p.grad for p in params]
                momenta = [self.state[p]["momentum"] for p in params]
                torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
                ahead = torch._foreach_lerp(grads, momenta, group["momentum"])  # Nesterov
                update = orthogonalise(torch.stack(ahead).view(-1, *shape[-2:])).view(-1, *shape).float()
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(params, list(update.unbind(0)), alpha=-0.2 * group["lr"] * max(shape[-2:]) ** 0.5)


def is_inner_matrix(name, p):
    """Matrices that map activations to activations: not embeddings, head, mHC, router or position biases."""
    return p.dim() >= 2 and not any(part in name for part in ("embed_tokens", "lm_head", "hc", "position_bias", "mlp.gate."))


class Optimizer:
    """Both of them under one learning-rate factor, with gradients clipped: the indexer's apart from the rest."""

    CLIP = 1.0

    def __init__(self, model, kind, muon_lr, adam_lr, weight_decay=0.02):
        named = list(model.named_parameters())
        inner = [p for n, p in named if is_inner_matrix(n, p)]
        outer = [p for n, p in named if not is_inner_matrix(n, p)]
        self.indexer = [p for n, p in named if "indexer" in n]
        self.rest = [p for n, p in named if "indexer" not in n]
        fused = outer[0].is_cuda
        adam = dict(betas=(0.9, 0.98), eps=1e-10, fused=fused)
        if kind == "muon":
            self.parts = [Muon(inner, muon_lr, weight_decay=weight_decay), torch.optim.AdamW(outer, adam_lr, weight_decay=0, **adam)]
        else:
            self.parts = [torch.optim.AdamW([dict(params=inner, weight_decay=weight_decay), dict(params=outer, weight_decay=0)],
                                            adam_lr, **adam)]
        self.rates = [[g["lr"] for g in part.param_groups] for part in self.parts]

    def step(self, factor):
        """One step at `factor` times the learning rates. Returns the gradient norm of everything but the indexer."""
        norm = torch.nn.utils.clip_grad_norm_(self.rest, self.CLIP)
        torch.nn.utils.clip_grad_norm_(self.indexer, self.CLIP)
        for part, rates in zip(self.parts, self.rates):
            for group, rate in zip(part.param_groups, rates):
                group["lr"] = rate * factor
            part.step()
            part.zero_grad(set_to_none=True)
        return norm

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states):
            part.load_state_dict(state)
