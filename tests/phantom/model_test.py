#!/usr/bin/env python3
"""The phantom's PyTorch modules on the CPU: held against transformers, against themselves, and against hand-made cases.

Run by ./test --peers, with the Python that has torch and transformers. Usage: model_test.py PROJECT
"""
import dataclasses
import pathlib
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else __file__).resolve()
PROJECT = PROJECT if PROJECT.is_dir() else PROJECT.parents[2]
sys.path.insert(0, str(PROJECT / "phantom"))

import torch

import evaluate
import export
import faults
import train
from config import CSA, HCA, SLIDING, Config
from model import Faults, Phantom, initialise
from optimizer import Optimizer, orthogonalise
from sinkhorn import sinkhorn_reference

torch.set_num_threads(1)

TINY = Config(vocab_size=64, hidden_size=64, moe_intermediate_size=16, layer_types=(SLIDING, CSA, HCA, CSA), num_hash_layers=1,
              num_attention_heads=2, head_dim=96, qk_rope_head_dim=32, q_lora_rank=32, o_groups=2, o_lora_rank=16,
              n_routed_experts=4, index_n_heads=8, index_head_dim=64, index_topk=8, yarn_original_length=128)


def tiny(seed=1, **changes):
    model = Phantom(dataclasses.replace(TINY, **changes))
    initialise(model, seed)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.mul_(1 + 0.1 * torch.randn(p.shape, generator=g))
        for name, b in model.named_buffers():
            if name.endswith("correction_bias"):
                b.copy_(0.1 * torch.randn(b.shape, generator=g))
    return model


def some_ids(length, batch=1, seed=0):
    return torch.randint(0, TINY.vocab_size, (batch, length), generator=torch.Generator().manual_seed(seed))


def some_batch(length=256, batch=2):
    """ids and answer numbers: two answers of five ids a row."""
    answer = torch.zeros(batch, length, dtype=torch.int16)
    answer[:, 100:105], answer[:, 200:205] = 1, 2
    return some_ids(length, batch).int(), answer


def relative(a, b):
    return float((a - b).norm() / b.norm())


class AgainstTransformers(unittest.TestCase):
    def peer_logits(self, model, ids):
        import transformers

        config = transformers.DeepseekV4Config(**model.config.to_transformers())
        peer = transformers.DeepseekV4ForCausalLM._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
        missing = peer.load_state_dict(model.state_dict(), strict=False)
        self.assertEqual(missing.unexpected_keys, [])
        self.assertEqual(missing.missing_keys, [])
        with torch.no_grad():
            return peer(ids).logits

    def test_untrained_logits_are_equal(self):
        # All rows selected: random index scores are full of exact ties, which the two may break differently.
        model, ids = tiny(index_topk=128), some_ids(300, 2)
        with torch.no_grad():
            self.assertLess(relative(model(ids), self.peer_logits(model, ids)), 5e-6)

    def test_logits_after_training_steps_are_equal(self):
        model = tiny(index_topk=128)
        optimizer = Optimizer(model, "muon", 5e-3, 2e-3)
        for _ in range(3):
            train.train_step(model, optimizer, *some_batch(), dense=False, factor=1.0)
        ids = some_ids(200)
        with torch.no_grad():
            self.assertLess(relative(model(ids), self.peer_logits(model, ids)), 5e-6)

    def test_shipped_checkpoint_is_read_alike(self):
        folder = PROJECT / "phantom" / "checkpoint"
        if not (folder / "model.safetensors").exists():
            self.skipTest("no checkpoint is shipped")
        model = export.load(folder)
        ids = torch.randint(8, model.config.vocab_size, (1, 256), generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            ours, theirs = model(ids), self.peer_logits(model, ids)
        same = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1) < 1e-4
        self.assertGreater(float(same.float().mean()), 0.95)  # where index scores tie, the selections may differ


class AgainstItself(unittest.TestCase):
    def test_gathered_and_masked_selection_agree_with_gradients(self):
        ids, answer = some_batch(512, 1)
        results = []
        for sparse_from in (1, 4096):
            model = tiny()
            model.sparse_from = sparse_from
            loss, _, _, trace = model.loss(ids.long(), ids.long().roll(-1, 1), torch.ones(ids.shape),
                                           index_weights=torch.ones(ids.numel()))
            (loss + trace.index_loss).backward()
            results.append((loss.item(), {n: p.grad for n, p in model.named_parameters()}))
        self.assertAlmostEqual(results[0][0], results[1][0], places=5)
        for name, gradient in results[0][1].items():
            self.assertLess(relative(gradient, results[1][1][name]), 1e-3, name)

    def test_padding_behind_changes_nothing_before(self):
        model, ids = tiny(), some_ids(384)
        with torch.no_grad():
            self.assertLess(relative(model(ids[:, :201]), model(ids)[:, :201]), 1e-5)

    def test_sequences_of_a_batch_do_not_see_each_other(self):
        model, ids = tiny(), some_ids(256, 2)
        with torch.no_grad():
            self.assertLess(relative(model(ids)[1:], model(ids[1:])), 1e-5)

    def test_every_parameter_learns_and_only_the_indexer_from_its_own_loss(self):
        model, (ids, answer) = tiny(), some_batch()
        loss, _, _, trace = model.loss(ids.long(), ids.long().roll(-1, 1), torch.ones(ids.shape), index_weights=torch.ones(ids.numel()))
        trace.index_loss.backward()
        taught = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
        self.assertEqual(taught, {n for n, _ in model.named_parameters() if "indexer" in n})

    def test_each_fault_changes_the_logits(self):
        model, ids = tiny(), some_ids(512)
        with torch.no_grad():
            right = model(ids)
            for name, fault in faults.cases(dataclasses.replace(TINY, index_topk=8)).items():
                changed = relative(model(ids, fault), right)
                with self.subTest(name):
                    if name == "none":
                        self.assertEqual(changed, 0)
                    else:
                        self.assertGreater(changed, 1e-7)

    def test_a_window_as_wide_as_configured_is_no_fault(self):
        model, ids = tiny(), some_ids(256)
        with torch.no_grad():
            self.assertEqual(relative(model(ids, Faults(window=TINY.sliding_window)), model(ids)), 0)


class Parts(unittest.TestCase):
    def test_sinkhorn_ends_on_columns_and_nears_doubly_stochastic(self):
        comb = sinkhorn_reference(torch.randn(50, 4, 4, generator=torch.Generator().manual_seed(1)), 20, 1e-6)
        self.assertLess(float((comb.sum(1) - 1).abs().max()), 1e-5)
        self.assertLess(float((comb.sum(2) - 1).abs().max()), 1e-2)

    def test_orthogonalise_brings_singular_values_near_one(self):
        for shape in ((2, 24, 40), (2, 40, 24)):
            values = torch.linalg.svdvals(orthogonalise(torch.randn(shape, generator=torch.Generator().manual_seed(1))).float())
            self.assertGreater(float(values.min()), 0.3)
            self.assertLess(float(values.max()), 1.4)

    def test_frequencies_are_the_release_s(self):
        f = Config(yarn_original_length=65536).inverse_frequencies(compressed=True)
        for at, value in ((14, 5.28685632e-3), (16, 2.265625e-3), (20, 2.96976778e-4), (25, 5.37231267e-6), (31, 5.68052904e-7)):
            self.assertAlmostEqual(f[at] / value, 1, delta=5e-6)  # they come from f32 tables

    def test_an_answer_is_right_only_as_a_whole(self):
        answer = torch.tensor([[0, 1, 1, 0, 2, 2, 0, 0], [0, 0, 1, 1, 1, 0, 0, -1]])
        right = torch.ones(2, 8, dtype=torch.bool)
        right[0, 5] = False
        right[1, 0] = False  # no answer's
        whole, logp = evaluate.answers(torch.full((2, 8), -0.5), right, answer)
        self.assertEqual(whole.tolist(), [True, False, True])
        self.assertEqual(logp.tolist(), [-1.0, -1.0, -1.5])

    def test_sign_test_by_hand(self):
        self.assertEqual(faults.sign_test(0, 0), 1.0)
        self.assertAlmostEqual(faults.sign_test(8, 0), 2 / 256)
        self.assertAlmostEqual(faults.sign_test(3, 1), 2 * 5 / 16)

    def test_a_checkpoint_survives_writing_and_reading(self):
        model = tiny()
        with tempfile.TemporaryDirectory() as folder:
            export.checkpoint(model, folder)
            again = export.load(folder)
        self.assertEqual(again.config, model.config)
        for name, tensor in model.state_dict().items():
            want = tensor.bfloat16().float() if tensor.is_floating_point() else tensor
            self.assertTrue(torch.equal(again.state_dict()[name], want), name)

    def test_training_on_one_batch_lowers_its_loss(self):
        model = tiny()
        optimizer = Optimizer(model, "muon", 5e-3, 2e-3)
        batch = some_batch()
        losses = [float(train.train_step(model, optimizer, *batch, dense=True, factor=1.0)[0]) for _ in range(8)]
        self.assertLess(losses[-1], losses[0] - 0.2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
