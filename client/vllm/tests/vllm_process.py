"""A process of vLLM's for the tests: python vllm_process.py FOLDER SETTINGS, then a line of
requests on its standard input, a line of answers on its standard output, until the input ends.

SETTINGS: {"coppice": bool, options of vllm.LLM...}. Requests: a list of {"tokens": [...], options
of SamplingParams...}. Answers: {"tokens", "cached", "prompt_logprobs"} of each, how many sequences
are left, and how many requests were preempted so far.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ENVIRONMENT = dict(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="1",
    COPPICE_VLLM_CPU="1",
)
OPTIONS = dict(
    skip_tokenizer_init=True,
    dtype="float32",
    enforce_eager=True,
    max_model_len=256,
    max_num_seqs=8,
    enable_prefix_caching=False,
    compilation_config={"mode": 0},
    distributed_executor_backend="uni",
)


def transfer() -> Any:
    from vllm.config import KVTransferConfig

    return KVTransferConfig(kv_connector="CoppiceConnector", kv_role="kv_both")


def engine(folder: str, settings: dict[str, Any]) -> Any:
    is_ours = settings.pop("coppice")
    os.environ.update(ENVIRONMENT, VLLM_PLUGINS="coppice" if is_ours else "")
    from vllm import LLM

    more = dict(kv_transfer_config=transfer()) if is_ours else {}
    return LLM(folder, **(OPTIONS | more | settings))


def answer(output: Any) -> dict[str, Any]:
    given = output.prompt_logprobs
    return dict(
        tokens=list(output.outputs[0].token_ids),
        cached=output.num_cached_tokens,
        prompt_logprobs=[next(iter(x.values())).logprob for x in given[1:]] if given else None,
    )


def serve(llm: Any, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from vllm import SamplingParams, TokensPrompt

    prompts = [TokensPrompt(prompt_token_ids=request.pop("tokens")) for request in requests]
    fixed = dict(temperature=0, max_tokens=8, detokenize=False, ignore_eos=True)
    params = [SamplingParams(**(fixed | request)) for request in requests]
    return [answer(x) for x in llm.generate(prompts, params, use_tqdm=False)]


def scheduler_of(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.scheduler


def n_seqs() -> int:
    from coppice_vllm import engine as ours

    return sum(engine.connection.stats().n_seqs for engine in ours._engines.values())


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints
    llm = engine(sys.argv[1], json.loads(sys.argv[2]))
    n_preempted = 0
    scheduler = scheduler_of(llm)
    preempt = scheduler._preempt_request

    def counted(*args: Any) -> Any:
        nonlocal n_preempted
        n_preempted += 1
        return preempt(*args)

    scheduler._preempt_request = counted
    print("{}", file=out, flush=True)
    for line in sys.stdin:
        answers = serve(llm, json.loads(line))
        told = dict(answers=answers, n_seqs=n_seqs(), n_preempted=n_preempted)
        print(json.dumps(told), file=out, flush=True)


if __name__ == "__main__":
    main()
