#!/usr/bin/env python3
"""Makes fixture/ from config.json and model.safetensors, on the CPU: the logits and the greedy text
that an engine must reproduce, and the tiny models for tests of loaders. README.md has the layouts.

	./fixture.py

Every logit is computed twice, by llama.py in float64 and by transformers' LlamaForCausalLM in
float32; the script fails where the two differ by more than TOLERANCE.
"""

import json
import shutil
import struct
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

import corpus
from llama import Llama

HERE = Path(__file__).resolve().parent
OUT = HERE / "fixture"
TOLERANCE = 2e-3
LAST = 64  # the positions whose logits are kept
GREEDY = 64  # the bytes of the greedy continuation
MARGIN = 0.05  # the least lead of the best logit over the second along the greedy text


def write_f32(path, logits):
	path.write_bytes(logits.float().contiguous().numpy().astype("<f4").tobytes())


@torch.no_grad()
def greedy(model, prompt):
	"""(the continuation, the least lead along it)."""
	ids, lead = list(prompt), float("inf")
	for _ in range(GREEDY):
		top = model(torch.tensor([ids]))[0, -1].topk(2)
		ids.append(int(top.indices[0]))
		lead = min(lead, float(top.values[0] - top.values[1]))
	return bytes(ids[len(prompt) :]), lead


def check(name, ours, theirs):
	worst = (ours.double() - theirs.double()).abs().max().item()
	print(f"{name}: transformers and llama.py differ by {worst:.1e} at most")
	if worst > TOLERANCE:
		raise SystemExit(f"{name}: more than {TOLERANCE}")
	return worst


def load_theirs(folder):
	model = LlamaForCausalLM.from_pretrained(
		folder, dtype=torch.float32, attn_implementation="eager"
	)
	return model.eval()


@torch.no_grad()
def trained(folder, held_out, length, step):
	"""A fixture of the trained model, at the first of the prompts step bytes apart that has a
	clear greedy text."""
	exact = Llama.load(HERE).double()
	single = Llama.load(HERE)
	theirs = load_theirs(HERE)
	for at in range(step, len(held_out) - length, step):
		prompt = held_out[at : at + length]
		text, lead = greedy(single, prompt)
		if lead >= MARGIN:
			break
	else:
		raise SystemExit("no prompt with a clear greedy text")
	ids = torch.tensor([list(prompt)])
	logits = exact(ids)[0]
	worst = check(folder.name, logits, theirs(ids).logits[0])
	rounding = (single(ids)[0].double() - logits).abs().max().item()
	# All greedy text at once, in float64: each byte must be the best one after those before.
	again = exact(torch.tensor([list(prompt + text)]))[0, length - 1 : -1].argmax(-1)
	if bytes(again.tolist()) != text:
		raise SystemExit("the greedy text differs in float64")
	folder.mkdir(parents=True)
	(folder / "prompt.bin").write_bytes(prompt)
	write_f32(folder / "logits.f32", logits[-LAST:])
	(folder / "greedy.bin").write_bytes(text)
	notes = {
		"prompt_bytes": length,
		"held_out_offset": at,
		"positions": [length - LAST, length - 1],
		"greedy_bytes": GREEDY,
		"greedy_least_lead": round(lead, 4),
		"largest_logit": round(logits[-LAST:].abs().max().item(), 3),
		"float32_differs_by": float(f"{rounding:.1e}"),
		"transformers_differs_by": float(f"{worst:.1e}"),
	}
	(folder / "fixture.json").write_text(json.dumps(notes, indent=2) + "\n")
	print(json.dumps(notes), text)


COMMON = {
	"architectures": ["LlamaForCausalLM"],
	"attention_bias": False,
	"attention_dropout": 0.0,
	"head_dim": 64,
	"hidden_act": "silu",
	"hidden_size": 32,
	"initializer_range": 0.02,
	"max_position_embeddings": 256,
	"mlp_bias": False,
	"model_type": "llama",
	"num_hidden_layers": 2,
	"pretraining_tp": 1,
	"use_cache": True,
	"vocab_size": 64,
}

TINY = {
	# As transformers 4 writes a config.
	"tiny-fp32": COMMON
	| {
		"bos_token_id": 1,
		"eos_token_id": 2,
		"intermediate_size": 40,
		"num_attention_heads": 2,
		"num_key_value_heads": 1,
		"rms_norm_eps": 1e-06,
		"rope_scaling": None,
		"rope_theta": 10000.0,
		"tie_word_embeddings": False,
		"torch_dtype": "float32",
		"transformers_version": "4.57.1",
	},
	# As transformers 5 writes a config.
	"tiny-fp16": COMMON
	| {
		"bos_token_id": 1,
		"dtype": "float16",
		"eos_token_id": 2,
		"intermediate_size": 96,
		"num_attention_heads": 4,
		"num_key_value_heads": 2,
		"pad_token_id": None,
		"rms_norm_eps": 1e-05,
		"rope_parameters": {"rope_theta": 50000.0, "rope_type": "default"},
		"tie_word_embeddings": True,
		"transformers_version": "5.17.0",
	},
	# Scaled positions as Llama 3.1 and 3.2 have them, end tokens as their chat models have.
	"tiny-bf16-llama3": COMMON
	| {
		"bos_token_id": 1,
		"eos_token_id": [2, 3],
		"intermediate_size": 96,
		"num_attention_heads": 4,
		"num_key_value_heads": 1,
		"rms_norm_eps": 1e-05,
		"rope_scaling": {
			"factor": 8.0,
			"high_freq_factor": 4.0,
			"low_freq_factor": 1.0,
			"original_max_position_embeddings": 32,
			"rope_type": "llama3",
		},
		"rope_theta": 500000.0,
		"tie_word_embeddings": False,
		"torch_dtype": "bfloat16",
		"transformers_version": "4.57.1",
	},
}


@torch.no_grad()
def tiny(folder, config, seed):
	"""A model of random weights, and its logits at every position of a random prompt."""
	g = torch.Generator().manual_seed(seed)
	dtype = getattr(torch, config.get("dtype") or config["torch_dtype"])
	state = {}
	for name, p in Llama(config).state_dict().items():
		if p.dim() == 1:
			w = 1 + 0.2 * torch.randn(p.shape, generator=g)
		else:
			scale = 0.5 if "embed" in name else 1.5 / p.shape[1] ** 0.5
			w = torch.randn(p.shape, generator=g) * scale
		state[name] = w.to(dtype)
	folder.mkdir(parents=True)
	save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
	(folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
	ids = torch.randint(config["vocab_size"], (96,), generator=g)
	logits = load_theirs(folder)(ids[None]).logits[0]
	check(folder.name, Llama.load(folder).double()(ids[None])[0], logits)
	(folder / "prompt.bin").write_bytes(struct.pack(f"<{len(ids)}I", *ids.tolist()))
	write_f32(folder / "logits.f32", logits)


def main():
	shutil.rmtree(OUT, ignore_errors=True)
	_, held_out = corpus.load()
	trained(OUT / "trained", held_out, 600, 10000)
	trained(OUT / "trained-long", held_out, 8000, 20000)
	for seed, (name, config) in enumerate(TINY.items()):
		tiny(OUT / name, config, seed)


if __name__ == "__main__":
	main()
