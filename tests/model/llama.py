"""The Llama architecture in plain PyTorch.

Its modules carry Hugging Face's names, so state_dict() does too."""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


def rope_parameters(config):
	"""(theta, scaling dict or None), from a config of transformers 4 or of transformers 5."""
	p = config.get("rope_parameters") or config.get("rope_scaling") or {}
	theta = p.get("rope_theta", config.get("rope_theta", 10000.0))
	kind = p.get("rope_type", "default")
	if kind == "default":
		return theta, None
	if kind != "llama3":
		raise ValueError(f"rope type {kind}")
	return theta, p


def inverse_frequencies(config, head_dim):
	theta, scaling = rope_parameters(config)
	inv = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
	if scaling is None:
		return inv
	old = scaling["original_max_position_embeddings"]
	low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
	factor = scaling["factor"]
	wavelength = 2 * math.pi / inv
	smooth = (old / wavelength - low) / (high - low)
	mixed = (1 - smooth) * inv / factor + smooth * inv
	not_long = torch.where(wavelength < old / high, inv, mixed)
	return torch.where(wavelength > old / low, inv / factor, not_long)


class RMSNorm(nn.Module):
	def __init__(self, size, eps):
		super().__init__()
		self.weight = nn.Parameter(torch.ones(size))
		self.eps = eps

	def forward(self, x):
		return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
	def __init__(self, c):
		super().__init__()
		self.heads, self.kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
		self.dim = c["head_dim"]
		self.q_proj = nn.Linear(c["hidden_size"], self.heads * self.dim, bias=False)
		self.k_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.dim, bias=False)
		self.v_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.dim, bias=False)
		self.o_proj = nn.Linear(self.heads * self.dim, c["hidden_size"], bias=False)

	@staticmethod
	def rotate(x, cos, sin):
		a, b = x.chunk(2, dim=-1)
		return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

	def forward(self, x, cos, sin):
		b, t, _ = x.shape
		q = self.q_proj(x).view(b, t, self.heads, self.dim).transpose(1, 2)
		k = self.k_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
		v = self.v_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
		q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
		group = self.heads // self.kv_heads
		k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
		y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
		return self.o_proj(y.transpose(1, 2).reshape(b, t, self.heads * self.dim))


class MLP(nn.Module):
	def __init__(self, c):
		super().__init__()
		self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
		self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
		self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

	def forward(self, x):
		return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
	def __init__(self, c, dropout):
		super().__init__()
		self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
		self.self_attn = Attention(c)
		self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
		self.mlp = MLP(c)
		self.dropout = dropout

	def forward(self, x, cos, sin):
		y = self.self_attn(self.input_layernorm(x), cos, sin)
		x = x + F.dropout(y, self.dropout, self.training)
		y = self.mlp(self.post_attention_layernorm(x))
		return x + F.dropout(y, self.dropout, self.training)


def angles_of(config, n_positions):
	positions = torch.arange(n_positions, dtype=torch.float64)
	return torch.outer(positions, inverse_frequencies(config, config["head_dim"]))


class Llama(nn.Module):
	def __init__(self, config, dropout=0.0):
		super().__init__()
		c = self.config = config
		self.dropout = dropout
		self.model = nn.Module()
		self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
		layers = [Layer(c, dropout) for _ in range(c["num_hidden_layers"])]
		self.model.layers = nn.ModuleList(layers)
		self.model.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
		if not c["tie_word_embeddings"]:
			self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
		angles = angles_of(c, c["max_position_embeddings"])
		self.register_buffer("cos", angles.cos().float(), persistent=False)
		self.register_buffer("sin", angles.sin().float(), persistent=False)

	def double(self):
		"""To float64, the rotation angles with it rather than by way of float32."""
		angles = angles_of(self.config, self.cos.shape[0])
		super().double()
		self.cos = angles.cos().to(self.cos.device)
		self.sin = angles.sin().to(self.sin.device)
		return self

	def forward(self, ids):
		cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
		x = F.dropout(self.model.embed_tokens(ids), self.dropout, self.training)
		for layer in self.model.layers:
			x = layer(x, cos, sin)
		head = self.lm_head if hasattr(self, "lm_head") else self.model.embed_tokens
		return F.linear(self.model.norm(x), head.weight)

	@classmethod
	def load(cls, folder):
		"""The model of a folder with config.json and model.safetensors, as float32."""
		from safetensors.torch import load_file

		config = json.loads((Path(folder) / "config.json").read_text())
		model = cls(config)
		weights = load_file(Path(folder) / "model.safetensors")
		model.load_state_dict({k: v.float() for k, v in weights.items()})
		return model.eval()
