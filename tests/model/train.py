#!/usr/bin/env python3
"""Trains the model on corpus.txt.xz, on one GPU.

Writes config.json, model.safetensors, loss.json, samples.txt.

	./train.py --out DIR [--minutes 6.3] [--dropout 0.3]
"""

import argparse
import copy
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import corpus
from llama import Llama

CONTEXT = 8192

CONFIG = {
	"architectures": ["LlamaForCausalLM"],
	"attention_bias": False,
	"attention_dropout": 0.0,
	"bos_token_id": None,
	"eos_token_id": None,
	"head_dim": 64,
	"hidden_act": "silu",
	"hidden_size": 256,
	"initializer_range": 0.02,
	"intermediate_size": 576,
	"max_position_embeddings": CONTEXT,
	"mlp_bias": False,
	"model_type": "llama",
	"num_attention_heads": 8,
	"num_hidden_layers": 5,
	"num_key_value_heads": 2,
	"pretraining_tp": 1,
	"rms_norm_eps": 1e-05,
	"rope_scaling": None,
	"rope_theta": 100000.0,
	"tie_word_embeddings": True,
	"torch_dtype": "bfloat16",
	"transformers_version": "4.57.1",
	"use_cache": True,
	"vocab_size": 256,
}


def initialize(model):
	scale = 1 / math.sqrt(2 * model.config["num_hidden_layers"])
	for name, p in model.named_parameters():
		if p.dim() == 2:
			to_stream = "o_proj" in name or "down_proj" in name
			torch.nn.init.normal_(p, std=0.02 * (scale if to_stream else 1))


@torch.no_grad()
def held_out_losses(model, data, context, amp):
	"""Nats of every byte of the held-out text, in windows that do not overlap:
	[windows, context]."""
	model.eval()
	rows = []
	for at in range(0, len(data) - context, context):
		x = data[at : at + context].long()[None]
		y = data[at + 1 : at + context + 1].long()
		with torch.autocast(data.device.type, torch.bfloat16, enabled=amp):
			logits = model(x)[0]
		rows.append(F.cross_entropy(logits.float(), y, reduction="none"))
	model.train()
	return torch.stack(rows)


@torch.no_grad()
def generate(model, prompt, count, temperature, generator):
	device = model.cos.device
	ids = torch.tensor([list(prompt)], device=device)
	for _ in range(count):
		logits = model(ids)[0, -1].float()
		if temperature == 0:
			one = logits.argmax()[None]
		else:
			chances = (logits / temperature).softmax(-1)
			one = torch.multinomial(chances, 1, generator=generator)
		ids = torch.cat((ids, one[None]), 1)
	return bytes(ids[0].tolist())


def samples(model, held_out, device):
	model.eval()
	generator = torch.Generator(device).manual_seed(1)
	out = []
	for prompt, temperature in (
		(b"In the beginning", 0.8),
		(b"And it came to pass", 0.8),
		(b"The king said unto the woman, ", 0.8),
		(b"Psalm 151\n\n", 0.7),
		(held_out[-500:], 0.8),
		(held_out[-500:], 0.0),
	):
		text = generate(model, prompt, 500, temperature, generator).decode("latin-1")
		cut = len(prompt)
		out.append(
			f"=== temperature {temperature}\n--- prompt\n{text[:cut]}\n"
			f"--- continuation\n{text[cut:]}\n\n"
		)
	return "".join(out)


def main():
	arg = argparse.ArgumentParser(allow_abbrev=False)
	arg.add_argument("--out", type=Path, required=True)
	arg.add_argument("--minutes", type=float, default=6.3)
	arg.add_argument("--dropout", type=float, default=0.3)
	arg.add_argument("--lr", type=float, default=2e-3)
	arg.add_argument("--weight-decay", type=float, default=0.1)
	arg.add_argument("--bytes", type=int, default=65536, help="bytes a step")
	arg.add_argument("--short", type=int, default=1024, help="context of the first part")
	arg.add_argument(
		"--short-part",
		type=float,
		default=0.65,
		help="the part of the time spent at --short",
	)
	arg.add_argument("--context", type=int, default=CONTEXT)
	arg.add_argument("--eval-seconds", type=float, default=10)
	arg.add_argument("--seed", type=int, default=1)
	arg.add_argument("--device", default="cuda")
	arg.add_argument("--no-compile", action="store_true")
	a = arg.parse_args()
	a.out.mkdir(parents=True, exist_ok=True)

	torch.manual_seed(a.seed)
	torch.set_float32_matmul_precision("high")
	train_bytes, held_out_bytes = corpus.load()
	train = torch.frombuffer(bytearray(train_bytes), dtype=torch.uint8).to(a.device)
	held_out = torch.frombuffer(bytearray(held_out_bytes), dtype=torch.uint8).to(a.device)
	model = Llama(CONFIG, a.dropout).to(a.device)
	initialize(model)
	count = sum(p.numel() for p in model.parameters())
	print(
		f"{count} parameters, {len(train)} bytes to train on, {len(held_out)} held out",
		flush=True,
	)
	matrices = [p for p in model.parameters() if p.dim() == 2]
	vectors = [p for p in model.parameters() if p.dim() == 1]
	optimizer = torch.optim.AdamW(
		[
			{"params": matrices, "weight_decay": a.weight_decay},
			{"params": vectors, "weight_decay": 0.0},
		],
		lr=a.lr,
		betas=(0.9, 0.95),
		fused=a.device == "cuda",
	)
	picks = torch.Generator(a.device).manual_seed(a.seed)

	def loss_of(x, y):
		with torch.autocast(a.device, torch.bfloat16):
			logits = model(x)
		return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())

	fast = loss_of if a.no_compile else torch.compile(loss_of, dynamic=False)

	def batch(context):
		n_rows = a.bytes // context
		at = torch.randint(
			len(train) - context, (n_rows,), device=a.device, generator=picks
		)
		w = train[at[:, None] + torch.arange(context + 1, device=a.device)].long()
		return w[:, :-1].contiguous(), w[:, 1:].contiguous()

	model.train()
	began = time.time()
	for context in (a.short, a.context):  # compiled before the clock starts
		fast(*batch(context)).backward()
		optimizer.zero_grad()
		print(f"ready at context {context}: {time.time() - began:.0f} s", flush=True)

	began = asked = time.time()
	best, best_state, step, last, total, longer = math.inf, None, 0, 0, 0.0, 0
	while True:
		part = (time.time() - began) / (60 * a.minutes)
		falling = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(part, 1)))
		lr = a.lr * min(1, (step + 1) / 300) * falling
		for group in optimizer.param_groups:
			group["lr"] = lr
		context = a.short if part < a.short_part else a.context
		longer += context == a.context
		loss = fast(*batch(context))
		loss.backward()
		torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
		optimizer.step()
		optimizer.zero_grad()
		step += 1
		total += loss.detach()
		if step % 16 == 0:
			float(loss.detach())  # the clock is the device's, not the queue's
		if part >= 1 or time.time() - asked > a.eval_seconds:
			losses = held_out_losses(model, held_out, a.context, a.device == "cuda")
			now = losses.mean().item()
			mean = float(total) / max(1, step - last)
			print(
				f"{time.time() - began:5.0f} s  step {step}  context {context}"
				f"  lr {lr:.2e}  train {mean:.4f}  held out {now:.4f}",
				flush=True,
			)
			last, total, asked = step, 0.0, time.time()
			if now < best:
				best, best_step = now, step
				best_state = copy.deepcopy(model.state_dict())
			if part >= 1:
				break

	state = {k: v.to(torch.bfloat16).contiguous() for k, v in best_state.items()}
	model.load_state_dict({k: v.float() for k, v in state.items()})
	torch.set_float32_matmul_precision("highest")
	torch.backends.cuda.matmul.allow_tf32 = False
	losses = held_out_losses(model, held_out, a.context, False)
	nats = losses.mean().item()
	edges = [0] + [e for e in (64, 256, 1024, 4096) if e < a.context] + [a.context]
	by_position = {
		f"{lo}-{hi - 1}": round(losses[:, lo:hi].mean().item() / math.log(2), 4)
		for lo, hi in zip(edges, edges[1:])
	}
	report = {
		"held_out_nats_per_byte": round(nats, 5),
		"held_out_bits_per_byte": round(nats / math.log(2), 5),
		"context": a.context,
		"bytes_scored": losses.numel(),
		"weights": "bfloat16",
		"arithmetic": "float32",
		"bits_per_byte_by_position": by_position,
		"parameters": count,
		"steps": step,
		"best_step": best_step,
		"steps_at_full_context": longer,
		"bytes_per_step": a.bytes,
		"minutes": a.minutes,
		"dropout": a.dropout,
		"learning_rate": a.lr,
		"weight_decay": a.weight_decay,
		"seed": a.seed,
		"torch": torch.__version__,
	}
	weights = {k: v.cpu() for k, v in state.items()}
	save_file(weights, a.out / "model.safetensors", metadata={"format": "pt"})
	(a.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
	(a.out / "loss.json").write_text(json.dumps(report, indent=2) + "\n")
	print(json.dumps(report, indent=2), flush=True)
	text = samples(model, held_out_bytes, a.device)
	(a.out / "samples.txt").write_text(text)
	print(text, flush=True)


if __name__ == "__main__":
	main()
