#!/usr/bin/env python3
"""Measures processes of transformers whose parameters are the daemon's, on one GPU or a CPU.

    tests/bench/share.py --daemon build/check/daemon/coppiced --mps --checkpoint FOLDER

Each makes the model on meta, shares the weights (coppice.hf.share_weights), and decodes a sequence
of its own behind one document. Told are, of each, the time to share, what torch itself allocated
after it and at last, ms from token to token, and which parameters do not lie where the weights are
mapped (none); and what is in use of the GPU, by whom it is. Needs torch, transformers and the
package; a checkpoint of random weights is what coppice-bench decode has left in its --models.
"""

import argparse
import time
from dataclasses import dataclass, field

import hf as bench
import llm
import serve
import torch
import transformers

import coppice
import coppice.hf


@dataclass
class Told:
    """By a process."""

    shared: float  # seconds
    parameters: int  # bytes
    own: int  # bytes that torch allocated, when the weights were shared
    steps: list = field(default_factory=list)  # ms
    tokens: list = field(default_factory=list)
    most: int = 0  # bytes of torch's own


def on_meta(args):
    """Parameters have no memory; buffers are small, and where the daemon's weights are."""
    config = transformers.AutoConfig.from_pretrained(args.checkpoint)
    config.eos_token_id = config.bos_token_id = None
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    rotary = type(model.model.rotary_emb)
    model.model.rotary_emb = rotary(config=config).to(args.device)
    return model


def own_bytes(args):
    return torch.cuda.max_memory_allocated() if args.device == "cuda" else 0


def decode(args, connection, model, own):
    """own: the last token of the prompt, which nobody else has."""
    ids = bench.prompts_of(args, model, args.document)
    ids[0, -1] = own + 1
    with coppice.hf.attach(model, connection, weights_hash=1) as shared, shared.cache(ids) as cache:
        bench.read(model, ids[:, :-1], cache, args.chunk)
        cache.check()
        steps, [tokens] = bench.generate(args, model, ids, cache)
    return steps, tokens


@torch.no_grad()
def process(args, own, barrier, results):
    model = on_meta(args)
    with coppice.connect() as connection:
        begun = time.perf_counter()
        with coppice.open_weights(connection, args.checkpoint) as weights:
            coppice.hf.share_weights(model, weights)
        n_bytes = sum(each.numel() * each.element_size() for each in model.parameters())
        told = Told(time.perf_counter() - begun, n_bytes, own_bytes(args))
        if own == 0:
            decode(args, connection, model, args.processes)
        barrier.wait()
        told.steps, told.tokens = decode(args, connection, model, own)
        told.most = own_bytes(args)
        results.put(told)
        barrier.wait()


def tell(told):
    most = {name: max(getattr(one, name) for one in told) / bench.MIB
            for name in ("parameters", "own", "most")}
    print(f"parameters of each: {most['parameters']:.0f} MiB; of torch's own {most['own']:.0f} MiB "
          f"once they are shared, {most['most']:.0f} at most\n")
    print("| ms | p50 | p90 | p99 |\n| --- | --- | --- | --- |")
    serve.row("to share the weights", [one.shared for one in told])
    serve.row("a token", [step / 1e3 for one in told for step in one.steps])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--daemon", default="build/check/daemon/coppiced")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--pool", default="8G")
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--checkpoint", required=True, help="a folder")
    parser.add_argument("--document", type=int, default=8192, help="tokens")
    parser.add_argument("--chunk", type=int, default=4096, help="of the document, a pass")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=40)
    args = parser.parse_args()
    args.rows, args.watch = 1, None
    with bench.mps(args.mps), bench.running(args, "--lend-weights=1"):
        tell(llm.side_by_side(args, process))


if __name__ == "__main__":
    main()
