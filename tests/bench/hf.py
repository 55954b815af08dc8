#!/usr/bin/env python3
"""Measures a decode step of transformers' generate on one GPU: rows on one document, by coppice.hf
and by transformers' own attention and cache, in one run. Weights are random.

    tests/bench/hf.py --daemon build/check/daemon/coppiced --mps --document 32768 --rows 8

Told are, of each way, ms from token to token (the whole of generate's loop), how many of its tokens
are those of the first way, and the device memory that it took beside the weights. The way "bare"
has no attention at all: what is left is torch's launches, which is most of a token by coppice.hf,
and differs from host to host. Needs torch, transformers and the package; --mps starts CUDA's
multi-process service in front of the daemon.

With --threads each way is followed by what a token took of each thread of this process, of the
daemon and of MPS: on a core, waiting for one, asleep, and who was beside Python's (threads.py). Is
Python's own time on a core what is long, its core is slow, or somebody shares it: --place apart
keeps the daemon off Python's core and those that share it, --place together puts it there, and
--spin-us 0 has it sleep where it would spin.
"""

import argparse
import contextlib
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
import traceback

import threads
import torch
import transformers as hf

import coppice
import coppice.hf

SHAPES = {
    "tiny": dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, vocab_size=512,
                 num_attention_heads=4, num_key_value_heads=2, head_dim=64),
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, vocab_size=128256,
               num_attention_heads=32, num_key_value_heads=8, head_dim=128),
}
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
MIB = 1 << 20


N_FIRST = 4  # tokens that do not count


class Clock(hf.LogitsProcessor):
    """When each token's logits were there, as generate's loop sees it; and where threads are."""

    def __init__(self, watch):
        self.times, self.watch = [], watch

    def __call__(self, input_ids, scores):
        self.times.append(time.perf_counter())
        if self.watch and len(self.times) == N_FIRST + 1:
            self.watch.begin()
        elif self.watch and len(self.times) > N_FIRST:
            self.watch.look()
        return scores

    @property
    def steps(self):
        return [1e3 * (b - a) for a, b in zip(self.times[N_FIRST:], self.times[N_FIRST + 1 :])]


@contextlib.contextmanager
def mps(wanted):
    """Its end waits for processes that use the GPU: those that do so are others than this one."""
    if not wanted:
        yield
        return
    folder = tempfile.mkdtemp(prefix="coppice-mps-")
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(args, *flags):
    """A daemon at a socket of its own, where processes begun meanwhile find it too."""
    with tempfile.TemporaryDirectory() as folder:
        socket = os.environ["COPPICE_SOCKET"] = os.path.join(folder, "sock")
        options = ["--backend", args.backend, f"--pool={args.pool}", "--socket", socket, *flags]
        daemon = subprocess.Popen([args.daemon, *options])
        try:
            yield connected(daemon, socket), daemon.pid
        finally:
            daemon.terminate()
            daemon.wait(20)


def connected(daemon, socket):
    while daemon.poll() is None:
        try:
            return coppice.connect(socket)
        except coppice.NoDaemon:
            time.sleep(0.05)
    raise SystemExit(f"the daemon ended with {daemon.returncode}")


def place(args, daemon):
    """Python's main thread has a core for itself, or shares it with the daemon. Others of its
    process, CUDA's, stay where they may be, as they are there by now."""
    if args.place == "free":
        return
    cores = sorted(os.sched_getaffinity(0))
    own = cores[len(cores) // 2]
    near = threads.siblings_of(own) & set(cores)
    beside = (near - {own} or {own}) if args.place == "together" else set(cores) - near
    os.sched_setaffinity(0, {own})
    for thread in threads.threads_of({"daemon": daemon}):
        os.sched_setaffinity(thread.tid, beside or set(cores))
    print(f"Python is on core {own}, the daemon on {sorted(beside)}", flush=True)


def watch_of(args, daemon):
    if not args.threads:
        return None
    found = {"python": os.getpid(), "daemon": daemon}
    found.update((f"mps {pid}", pid) for pid in threads.pids_of("nvidia-cuda-mps-server"))
    return threads.Watch(found)


def model_of(args):
    torch.manual_seed(1)
    config = hf.LlamaConfig(
        **SHAPES[args.shape],
        max_position_embeddings=max(args.document) + 4096,
        rope_parameters=dict(rope_type="default", rope_theta=500000.0),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        dtype=DTYPES[args.dtype],
    )
    torch.set_default_dtype(DTYPES[args.dtype])
    with torch.device(args.device):
        model = hf.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def prompts_of(args, model, n_tokens):
    """A document, and a token of each row's own."""
    by = torch.Generator().manual_seed(3)
    n_vocab = model.config.vocab_size
    document = torch.randint(1, n_vocab, (1, n_tokens), generator=by)
    own = torch.arange(1, args.rows + 1)[:, None]
    return torch.cat([document.expand(args.rows, -1), own], 1).to(args.device)


def read(model, ids, cache, n_chunk):
    """A prompt's KV, in chunks, but for what is there."""
    for first in range(cache.get_seq_length(), ids.shape[1], n_chunk):
        model(ids[:, first : first + n_chunk], past_key_values=cache, logits_to_keep=1)


def used(args):
    if args.device == "cpu":
        return 0
    free, whole = torch.cuda.mem_get_info()
    return (whole - free) / MIB


def generate(args, model, ids, cache):
    clock = Clock(args.watch)
    tokens = model.generate(
        ids,
        past_key_values=cache,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=args.tokens,
        do_sample=False,
        logits_processor=[clock],
    )
    if args.watch:
        args.watch.end()
    return clock.steps, tokens[:, ids.shape[1] :].tolist()


def by_transformers(args, model, ids, implementation):
    """The document is read once, and its KV copied to each row's."""
    model.set_attn_implementation("sdpa")
    cache = hf.DynamicCache(config=model.config)
    read(model, ids[:1, :-1], cache, args.chunk)
    cache.batch_repeat_interleave(args.rows)
    model.set_attn_implementation(implementation)
    return generate(args, model, ids, cache)


class Nothing(hf.cache_utils.CacheLayerMixin):
    """So many tokens, of which nothing is kept."""

    is_compileable = is_sliding = False

    def __init__(self, n_tokens):
        super().__init__()
        self.n_tokens, self.is_initialized = n_tokens, True

    def lazy_initialization(self, keys, values):
        pass

    def update(self, keys, values, *args, **kwargs):
        return keys, values

    def get_mask_sizes(self, n_queries):
        return self.n_tokens + n_queries, 0

    def get_seq_length(self):
        return self.n_tokens

    def get_max_length(self):
        return -1


def no_attention(module, query, key, value, attention_mask=None, **options):
    return query.transpose(1, 2).contiguous(), None


def by_nothing(args, model, ids):
    hf.AttentionInterface.register("bare", no_attention)
    model.set_attn_implementation("bare")
    layers = [Nothing(ids.shape[1] - 1) for _ in range(model.config.num_hidden_layers)]
    return generate(args, model, ids, hf.cache_utils.Cache(layers=layers))


def by_coppice(args, model, ids, connection):
    with coppice.hf.attach(model, connection, weights_hash=1) as shared:
        with shared.cache(ids[:1, :-1]) as cache:
            begun = time.perf_counter()
            read(model, ids[:1, :-1], cache, args.chunk)
            cache.check()
            print(f"the document is read in {time.perf_counter() - begun:.2f} s")
        with shared.cache(ids) as cache:
            print(f"rows find {cache.n_cached} tokens", flush=True)
            return generate(args, model, ids, cache)


def by_graphs(args, model, ids, connection, fuse=True):
    with coppice.hf.capture(model, fuse=fuse):
        return by_coppice(args, model, ids, connection)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def n_alike(tokens, others):
    return sum(a == b for row, other in zip(tokens, others) for a, b in zip(row, other))


def tell(name, steps, tokens, others, mib):
    shares = " | ".join(f"{percentile(steps, share):.2f}" for share in (0.0, 0.5, 0.9))
    n_all = sum(map(len, tokens))
    print(f"| {name} | {shares} | {n_alike(tokens, others)} of {n_all} | {mib:.0f} |", flush=True)


@torch.no_grad()
def measure(args, connection, model, n_tokens):
    ids, others = prompts_of(args, model, n_tokens), None
    ways = {
        "coppice": lambda: by_coppice(args, model, ids, connection),
        "captured": lambda: by_graphs(args, model, ids, connection),
        "unfused": lambda: by_graphs(args, model, ids, connection, fuse=False),
        "bare": lambda: by_nothing(args, model, ids),
        "sdpa": lambda: by_transformers(args, model, ids, "sdpa"),
        "eager": lambda: by_transformers(args, model, ids, "eager"),
    }
    table = []
    for name in args.ways.split(","):
        before, begun = used(args), time.perf_counter()
        try:
            steps, tokens = ways[name]()
        except Exception:
            traceback.print_exc()
            continue
        others = others or tokens
        table.append((name, steps, tokens, others, used(args) - before))
        took, middle = time.perf_counter() - begun, percentile(steps, 0.5)
        print(f"{name}: {took:.1f} s in all, {middle:.2f} ms a token, p50", flush=True)
        if args.watch:
            print(args.watch.told("token", len(steps)))
            print(f"a loop of Python's on this core: {threads.loop_ms():.2f} ms\n", flush=True)
        if args.device != "cpu":
            torch.cuda.empty_cache()
    print(f"{args.rows} rows on {n_tokens} tokens, {args.shape}, {args.dtype}\n")
    print("| attention | ms a token, least | p50 | p90 | the same tokens | MiB taken |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in table:
        tell(*row)


def run(args):
    """In a process of its own."""
    flags = [] if args.spin_us is None else [f"--spin-us={args.spin_us}"]
    with running(args, *flags) as (connection, daemon), connection:
        args.watch = watch_of(args, daemon)
        print(f"a loop of Python's, before anything: {threads.loop_ms():.2f} ms", flush=True)
        begun = time.perf_counter()
        model = model_of(args)
        print(f"the model is made in {time.perf_counter() - begun:.2f} s", flush=True)
        place(args, daemon)
        for n_tokens in args.document:
            measure(args, connection, model, n_tokens)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--daemon", default="build/check/daemon/coppiced")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--pool", default="16G")
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--document", type=int, nargs="+", default=[32768], help="tokens")
    parser.add_argument("--chunk", type=int, default=4096, help="of the document, a pass")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--ways", default="coppice,captured,sdpa,eager")
    parser.add_argument("--threads", action="store_true", help="what each thread took")
    parser.add_argument("--place", choices=["free", "apart", "together"], default="free")
    parser.add_argument("--spin-us", type=int, help="the daemon's")
    args = parser.parse_args()
    with mps(args.mps):
        process = multiprocessing.get_context("spawn").Process(target=run, args=(args,))
        process.start()
        process.join()
    raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
