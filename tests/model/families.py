#!/usr/bin/env python3
"""Makes families/: what transformers computes of 64 small models, four of each family that
client/model reads, and the same with sizes that a GPU takes. README.md tells the layouts. On a CPU,
with PyTorch 2.15, transformers 5.23 and numpy, in some minutes:

	./families.py

Weights and token ids are not stored: they come from a generator that tests repeat in C. Logits are
computed by transformers' own classes with eager attention, in float64 where transformers does not
itself say float32 (norms, softmax, angles). How far they move by what an engine may round is
measured beside: see `measure`.
"""

import json
import math
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

OUT = Path(__file__).resolve().parent / "families"
PROMPTS = (5, 300, 1500)
TOKENS = 64
TOP = 8
MASK = (1 << 64) - 1

# ---- the models ----------------------------------------------------------------------------------


def sizes(vocab, layers, hidden, intermediate, heads, kv_heads, positions=2048, **more):
	return {
		"vocab_size": vocab,
		"num_hidden_layers": layers,
		"hidden_size": hidden,
		"intermediate_size": intermediate,
		"num_attention_heads": heads,
		"num_key_value_heads": kv_heads,
		"max_position_embeddings": positions,
	} | more


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = [round(1.0 + 0.37 * i * i / 4, 3) for i in range(64)]
SHORT = [round(1.0 + 0.02 * i, 3) for i in range(64)]


def longrope(n, **more):
	return {"long_factor": LONG[:n], "short_factor": SHORT[:n]} | more


def yarn(**more):
	return {"rope_type": "yarn"} | more


MODELS = {
	"llama": [
		sizes(
			311, 2, 64, 89, 4, 2, tie_word_embeddings=True, rope_theta=10000.0,
			rope_scaling=None,
		),
		sizes(
			400, 3, 96, 131, 4, 1, head_dim=32, attention_bias=True, mlp_bias=True,
			rms_norm_eps=1e-5,
			rope_parameters=LLAMA3
			| {"rope_theta": 500000.0, "original_max_position_embeddings": 256},
		),
		sizes(
			512, 2, 80, 120, 2, 2, head_dim=48,
			rope_scaling={"type": "linear", "factor": 4.0}, torch_dtype="float16",
		),
		sizes(
			333, 4, 64, 97, 4, 4, dtype="bfloat16", hidden_act="gelu",
			rope_parameters=yarn(
				rope_theta=50000.0, factor=6.0, beta_fast=24.0, beta_slow=1.5,
				mscale=0.8, mscale_all_dim=0.5, truncate=False,
				original_max_position_embeddings=320,
			),
		),
	],
	"mistral": [
		sizes(320, 2, 64, 112, 4, 2, sliding_window=None, rope_theta=1000000.0),
		sizes(
			555, 2, 96, 75, 2, 1, head_dim=64, sliding_window=None,
			tie_word_embeddings=True,
			rope_parameters=yarn(
				rope_theta=10000.0, factor=4.0,
				original_max_position_embeddings=512,
			),
		),
		sizes(
			401, 3, 48, 81, 3, 3, sliding_window=2048, hidden_act="gelu_pytorch_tanh",
			rms_norm_eps=1e-5,
		),
		sizes(
			600, 2, 64, 64, 8, 2, head_dim=16, sliding_window=None,
			rope_parameters=LLAMA3 | {"rope_theta": 20000.0},
		),
	],
	"qwen2": [
		sizes(
			448, 2, 112, 101, 7, 1, tie_word_embeddings=True, use_sliding_window=False,
			sliding_window=64, max_window_layers=1,
		),
		sizes(
			360, 3, 64, 90, 4, 2, rope_theta=1000000.0,
			rope_scaling={
				"type": "yarn", "factor": 4.0,
				"original_max_position_embeddings": 512,
			},
		),
		sizes(
			577, 2, 96, 139, 3, 1, layer_types=["full_attention"] * 2,
			rope_scaling={"rope_type": "linear", "factor": 2.5},
		),
		sizes(
			300, 4, 64, 71, 2, 2, rms_norm_eps=1e-5,
			rope_parameters=yarn(
				rope_theta=30000.0, factor=3.0, attention_factor=1.25,
				original_max_position_embeddings=700,
			),
		),
	],
	"qwen3": [
		sizes(
			350, 2, 64, 103, 4, 2, head_dim=32, tie_word_embeddings=True,
			rope_theta=1000000.0,
		),
		sizes(512, 2, 48, 85, 2, 1),
		sizes(421, 3, 96, 93, 6, 2, head_dim=16, attention_bias=True, rms_norm_eps=1e-5),
		sizes(
			384, 4, 64, 127, 4, 4, head_dim=48, dtype="bfloat16",
			rope_parameters=yarn(
				rope_theta=1000000.0, factor=4.0,
				original_max_position_embeddings=512,
			),
		),
	],
	"phi3": [
		sizes(
			322, 2, 64, 105, 4, 4, sliding_window=2047,
			original_max_position_embeddings=2048, max_positions=2000,
		),
		sizes(
			500, 3, 96, 99, 2, 1, tie_word_embeddings=True, partial_rotary_factor=0.75,
			sliding_window=262144, original_max_position_embeddings=64,
			rope_scaling=longrope(18, type="longrope", factor=4.0),
		),
		sizes(
			390, 2, 96, 77, 3, 3, 8192, sliding_window=None,
			original_max_position_embeddings=2048,
			rope_scaling=longrope(16, rope_type="longrope"), max_positions=2048,
		),
		sizes(
			444, 4, 96, 83, 2, 2, rms_norm_eps=1e-6,
			rope_parameters={
				"rope_type": "default", "rope_theta": 250000.0,
				"partial_rotary_factor": 0.5,
			},
		),
	],
	"olmo2": [
		sizes(303, 2, 64, 95, 4, 4, rope_theta=500000.0),
		sizes(480, 3, 96, 109, 6, 2, attention_bias=True, rms_norm_eps=1e-6),
		sizes(
			365, 2, 80, 88, 5, 1, tie_word_embeddings=True,
			rope_scaling={"rope_type": "linear", "factor": 3.0},
		),
		sizes(
			524, 4, 64, 73, 2, 1, dtype="bfloat16",
			rope_parameters=yarn(
				rope_theta=8.0, factor=2.0,
				original_max_position_embeddings=1024,
			),
		),
	],
	"seed_oss": [
		sizes(
			340, 2, 64, 111, 4, 2, head_dim=16, attention_bias=True,
			attention_out_bias=False,
		),
		sizes(
			460, 2, 48, 79, 2, 1, attention_bias=False, attention_out_bias=True,
			tie_word_embeddings=True,
		),
		sizes(
			599, 3, 96, 115, 3, 1, head_dim=64, attention_out_bias=True, mlp_bias=True,
			rms_norm_eps=1e-5,
		),
		sizes(
			388, 4, 64, 69, 4, 4, head_dim=None, rope_theta=10000000.0,
			rope_scaling={"rope_type": "default"},
		),
	],
	"smollm3": [
		sizes(410, 4, 64, 91, 4, 2, no_rope_layer_interval=4, rope_theta=5000000.0),
		sizes(
			330, 3, 48, 107, 3, 1, no_rope_layers=[0, 1, 0], tie_word_embeddings=False,
			mlp_bias=True,
		),
		sizes(
			540, 4, 96, 87, 6, 3, no_rope_layer_interval=2, attention_bias=True,
			rope_scaling=yarn(
				factor=2.0, beta_fast=4, beta_slow=4, truncate=False,
				original_max_position_embeddings=1024,
			),
		),
		sizes(
			372, 2, 64, 117, 2, 2, no_rope_layers=[1, 1], use_sliding_window=False,
			layer_types=["full_attention"] * 2,
		),
	],
}

DIMS = 64, 96, 128, 64


def for_gpus(family, config, number):
	"""The same with heads and rows that a GPU takes: rows of a multiple of 16 bytes."""
	dim = DIMS[number]
	wider = dict(config, intermediate_size=-(-config["intermediate_size"] // 8) * 8)
	if family == "phi3":  # which has no such key
		wider["hidden_size"] = dim * config["num_attention_heads"]
	else:
		wider["head_dim"] = dim
	rope = wider.get("rope_scaling") or {}
	if "long_factor" in rope:
		n = int(dim * config.get("partial_rotary_factor", 1)) // 2
		wider["rope_scaling"] = rope | longrope(n)
	return wider


# ---- the generator -------------------------------------------------------------------------------


def hash_name(name):
	"""FNV-1a, 64 bits."""
	h = 0xCBF29CE484222325
	for byte in name.encode():
		h = ((h ^ byte) * 0x100000001B3) & MASK
	return h


def draw(name, n_words):
	"""Words of splitmix64, counted from the hash of a name."""
	counts = np.arange(1, n_words + 1, dtype=np.uint64)
	x = np.uint64(hash_name(name)) + counts * np.uint64(0x9E3779B97F4A7C15)
	x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
	x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
	return x ^ (x >> np.uint64(31))


def weight(model, name, shape):
	"""Eight significant bits at most: it is the same in float32, bfloat16 and float16."""
	n = math.prod(shape)
	words = draw(f"{model}/{name}", (n + 7) // 8).astype("<u8")
	byte = words.view(np.uint8)[:n].astype(np.float64).reshape(shape)
	if len(shape) == 1 and "norm" in name:
		return (96 + byte % 64) / 128  # 0.75 to 1.24
	if len(shape) == 1:
		return (2 * byte - 255) / 1024
	if "embed" in name:
		return (2 * byte - 255) / 256
	bits = math.ceil(math.log2(shape[1]))
	return (2 * byte - 255) / 2 ** (7 + bits // 2)  # outputs of about the size of inputs


def ids(model, n_prompt, n_vocab):
	words = draw(f"{model}/ids/{n_prompt}", n_prompt + TOKENS)
	return (words % np.uint64(n_vocab)).astype(np.int64)


# ---- the reference -------------------------------------------------------------------------------


def load(model, config):
	with tempfile.TemporaryDirectory() as folder:
		(Path(folder) / "config.json").write_text(json.dumps(config))
		loaded = AutoConfig.from_pretrained(folder)
	net = AutoModelForCausalLM.from_config(
		loaded, attn_implementation="eager", dtype=torch.float32
	)
	net = net.double().eval()
	state = {
		name: torch.from_numpy(weight(model, name, tuple(p.shape)))
		for name, p in net.named_parameters()
	}
	missing = net.load_state_dict(state, strict=False)
	assert not missing.unexpected_keys, missing
	assert all("lm_head" in k for k in missing.missing_keys), missing
	assert ("lm_head.weight" in state) != bool(loaded.tie_word_embeddings)
	return net, {name: list(w.shape) for name, w in sorted(state.items())}


class Rounded:
	"""q, k, v and what attention gives are rounded to a type; and where products is set, what
	goes into each product, weights of attention among it."""

	def __init__(self, net, dtype, products):
		self.module = sys.modules[type(net).__module__]
		self.eager = self.module.eager_attention_forward
		self.softmax = torch.nn.functional.softmax
		self.net, self.dtype, self.products, self.hooks = net, dtype, products, []

	def round(self, x):
		return x.to(self.dtype).to(x.dtype)

	def __enter__(self):
		def attend(module, q, k, v, *args, **kwargs):
			rounded = [self.round(x) for x in (q, k, v)]
			out, weights = self.eager(module, *rounded, *args, **kwargs)
			return self.round(out), weights

		def round_input(_, x):
			return (self.round(x[0]),)

		def softmax(*args, **kwargs):
			return self.round(self.softmax(*args, **kwargs))

		self.module.eager_attention_forward = attend
		if self.products:
			torch.nn.functional.softmax = softmax
			parts = [p for p in self.net.modules() if isinstance(p, torch.nn.Linear)]
			self.hooks = [p.register_forward_pre_hook(round_input) for p in parts]

	def __exit__(self, *_):
		self.module.eager_attention_forward = self.eager
		torch.nn.functional.softmax = self.softmax
		for hook in self.hooks:
			hook.remove()


class Exact:
	"""Angles in float64, of the same inverse frequencies."""

	def __init__(self, net):
		self.rotary = net.model.rotary_emb

	def __enter__(self):
		def forward(x, position_ids):
			freqs = position_ids[..., None].double() * self.rotary.inv_freq.double()
			both = torch.cat((freqs, freqs), dim=-1)
			scaling = self.rotary.attention_scaling
			return both.cos() * scaling, both.sin() * scaling

		self.rotary.forward = forward

	def __exit__(self, *_):
		del self.rotary.forward


@torch.no_grad()
def run(net, tokens):
	"""Logits of the rows from the prompt's last token to the last but one."""
	logits = net(torch.from_numpy(tokens)[None], use_cache=False).logits[0]
	return logits[-TOKENS - 1 : -1]


def compare(a, b):
	"""How far a logit, and the log of the sum, differ at most."""
	by_logits = (a - b).abs().max().item()
	by_sum = (a.logsumexp(-1) - b.logsumexp(-1)).abs().max().item()
	return max(by_logits, by_sum)


def measure(net, tokens, logits):
	"""How far logits move where things are rounded to bf16 (to fp16: an eighth of that), and
	where angles are float64. Rounding counts most where few tokens are attended to, angles
	where positions are high."""
	if len(tokens) > 1000:
		with Exact(net):
			return {"angles": compare(run(net, tokens), logits)}
	moved = {}
	for key, products in (("bf16", False), ("bf16_products", True)):
		with Rounded(net, torch.bfloat16, products):
			moved[key] = compare(run(net, tokens), logits)
	return moved


def rows(logits, tokens):
	"""A row: log of the sum, log-probability of the next id, likeliest logits, their ids."""
	lse = logits.logsumexp(-1)
	top = logits.topk(TOP)
	out, layout = bytearray(), f"<2f{TOP}f{TOP}H"
	for i in range(TOKENS):
		score = logits[i, tokens[len(tokens) - TOKENS + i]] - lse[i]
		out += struct.pack(layout, lse[i], score, *top.values[i], *top.indices[i])
	return out


def make(model, family, config, on_gpu):
	max_positions = config.pop("max_positions", 0)
	config = {"model_type": family, "pad_token_id": None} | config
	net, shapes = load(model, config)
	data, moved = bytearray(), {}
	for n_prompt in PROMPTS:
		tokens = ids(model, n_prompt, config["vocab_size"])
		logits = run(net, tokens)
		data += rows(logits, tokens)
		for key, value in measure(net, tokens, logits).items():
			moved[key] = max(moved.get(key, 0), value)
	spread = logits.std().item()
	print(model, f"spread {spread:.2f}", {k: f"{v:.1e}" for k, v in moved.items()}, flush=True)
	return data, {
		"name": model,
		"gpu": on_gpu,
		"config": config,
		"max_positions": max_positions,
		"tensors": shapes,
		"inv_freq": [float(f"{x:.9g}") for x in net.model.rotary_emb.inv_freq.tolist()],
		"rope_factor": float(f"{net.model.rotary_emb.attention_scaling:.9g}"),
		"moved": {k: float(f"{v:.2e}") for k, v in moved.items()},
	}


def all_models():
	"""Name, family, config, and whether a GPU takes it."""
	for on_gpu in False, True:
		for family, configs in MODELS.items():
			for i, config in enumerate(configs):
				own = for_gpus(family, config, i) if on_gpu else dict(config)
				yield f"{family}-{i + len(configs) * on_gpu}", family, own, on_gpu


def main():
	OUT.mkdir(exist_ok=True)
	data, notes = bytearray(), []
	for model in all_models():
		more, note = make(*model)
		data += more
		notes.append(note)
	(OUT / "rows.bin").write_bytes(data)
	lines = ",\n".join(json.dumps(note) for note in notes)
	(OUT / "models.json").write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
	main()
