"""coppice.LLM, and the same on the command line."""

import errno
import io
import json
import os
import subprocess
import sys

import pytest

import checkpoint
from serving import Daemon
from coppice import LLM, Closed, DaemonGone, NoDaemon, NoRoom, Sampling
from coppice.generation.progress import Bar
from coppice.generation.stream import Event

PROMPT, GREEDY = checkpoint.prompt(), checkpoint.greedy()


@pytest.fixture(scope="module")
def llm(daemon, folder):
    with LLM(folder, socket=daemon.socket, progress=False) as one:
        yield one


def n_seqs(llm):
    return llm.model.connection.stats().n_seqs


def test_greedy(llm):
    [output] = llm.generate(PROMPT, temperature=0, max_tokens=64)
    assert output.text == GREEDY and output.tokens == list(GREEDY.encode())
    assert len(output.prompt) == 600 and output.continuations[0].finish == "length"
    assert n_seqs(llm) == 0


def test_many_prompts_at_once_are_as_each_alone(llm):
    prompts = [PROMPT[: 300 + 7 * i] for i in range(40)]
    alone = [llm.generate(prompt, temperature=0, max_tokens=8)[0].text for prompt in prompts]
    outputs = llm.generate(prompts, temperature=0, max_tokens=8)
    assert [output.text for output in outputs] == alone


def test_n_beyond_a_lane(llm):
    options = {"temperature": 2.0, "max_tokens": 6, "n": 40, "seed": 3}
    [output] = llm.generate(PROMPT, **options)
    texts = [one.text for one in output.continuations]
    assert len(texts) == 40 and len(set(texts)) > 1
    assert [one.text for one in llm.generate(PROMPT, **options)[0].continuations] == texts
    few = llm.generate(PROMPT, **{**options, "n": 3})[0].continuations
    assert [one.text for one in few] == texts[:3]


def test_what_is_drawn_beyond_the_likeliest(llm):
    """At a high temperature many draws are of tokens that are not among the 64 likeliest."""
    [output] = llm.generate(PROMPT, temperature=50.0, max_tokens=40, seed=1, logprobs=64)
    beyond = [one for one in output.continuations[0].logprobs if one.token not in dict(one.top)]
    assert len(beyond) > 5
    assert all(one.logprob < one.top[-1][1] for one in beyond)
    [flat] = llm.generate(PROMPT[:9], temperature=1.0, max_tokens=200, seed=4)
    assert len(flat.tokens) == 200


def test_streaming(llm):
    pieces = list(llm.stream(PROMPT, temperature=0, max_tokens=10))
    assert [piece.text for piece in pieces] == list(GREEDY[:10])
    assert pieces[-1].finish == "length"


def test_a_stream_that_is_dropped_leaves_nothing(llm):
    for piece in llm.stream(PROMPT, temperature=0, max_tokens=1000):
        assert piece.text == GREEDY[0]
        break
    assert n_seqs(llm) == 0


def test_a_stream_beside_others(llm):
    stream = llm.stream(PROMPT, temperature=0, max_tokens=20)
    text = next(stream).text
    assert llm.generate(PROMPT, temperature=0, max_tokens=5)[0].text == GREEDY[:5]
    assert text + "".join(piece.text for piece in stream) == GREEDY[:20]


def test_stop_and_chat(llm):
    [output] = llm.generate(PROMPT, temperature=0, max_tokens=64, stop=GREEDY[20:24])
    assert output.text == GREEDY[:20] and output.continuations[0].finish == "stop"
    messages = [{"role": "user", "content": PROMPT}]
    assert llm.chat(messages, temperature=0, max_tokens=8).text == GREEDY[:8]


def test_what_ends_a_text(daemon, tmp_path):
    ends = checkpoint.write(tmp_path / "ends", eos_token_id=[ord(GREEDY[7])], temperature=0.0)
    with LLM(ends, socket=daemon.socket) as llm:
        [output] = llm.generate(PROMPT, max_tokens=30)
        assert output.text == GREEDY[: GREEDY.index(GREEDY[7])]
        assert output.continuations[0].finish == "stop"
        assert llm.generate(PROMPT, max_tokens=30, ignore_eos=True)[0].text == GREEDY[:30]


@pytest.mark.parametrize(
    "prompt, options, sentence",
    [
        ([256], {}, "token 256"),
        ([], {}, "empty"),
        ([1] * 9000, {}, "shorten the prompt"),
        ("a", {"temperature": -1}, "temperature"),
        ("a", {"heat": 1}, "no option heat; there are max_tokens, temperature"),
        ("a", {"max_tokens": 8192}, "lower max_tokens"),
    ],
)
def test_bad_input(llm, prompt, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        llm.generate([prompt], **options)
    assert n_seqs(llm) == 0


@pytest.mark.parametrize(
    "prompts, sentence",
    [
        (None, "texts, or lists of tokens, not None"),
        (5, "texts, or lists of tokens, not 5"),
        ([1.5, 2.0], "a text, or a list of tokens, not 1.5"),
        ([1, "a"], r"a text, or a list of tokens, not \[1, 'a'\]"),
        ([list(range(90)) + ["a"]], r"not \[0, 1, 2.*\.\.\.$"),
    ],
)
def test_what_is_no_prompt(llm, prompts, sentence):
    with pytest.raises(TypeError, match=sentence):
        llm.generate(prompts)
    assert n_seqs(llm) == 0


def test_tokens_of_any_kind(llm):
    numpy = pytest.importorskip("numpy")
    ids = list(PROMPT.encode())
    for prompts in (ids, bytes(ids), numpy.array(ids), numpy.array([ids]), iter([PROMPT])):
        [output] = llm.generate(prompts, temperature=0, max_tokens=3)
        assert output.text == GREEDY[:3] and output.prompt == ids


@pytest.mark.parametrize("messages", ["hello", {"role": "user", "content": "hello"}, [5]])
def test_what_are_no_messages(llm, messages):
    with pytest.raises(TypeError, match="'role': 'user'"):
        llm.chat(messages)


def test_options_beside_a_sampling(llm):
    with pytest.raises(ValueError, match="give n, seed in the Sampling"):
        llm.generate(PROMPT, Sampling(), n=2, seed=1)
    with pytest.raises(TypeError, match="a coppice.Sampling, not {'n': 2}"):
        llm.generate(PROMPT, {"n": 2})
    assert llm.generate(PROMPT, Sampling(max_tokens=2, temperature=0))[0].text == GREEDY[:2]


def test_no_daemon(folder, tmp_path):
    with pytest.raises(NoDaemon):
        LLM(folder, socket=str(tmp_path / "none.sock"))
    with pytest.raises(FileNotFoundError, match="no folder"):
        LLM(tmp_path / "none")


def test_a_daemon_that_ends(folder, tmp_path):
    daemon = Daemon(tmp_path)
    llm = LLM(folder, socket=daemon.socket)
    stream = llm.stream(PROMPT, temperature=0, max_tokens=5000)
    next(stream)
    daemon.process.kill()
    daemon.process.wait()
    with pytest.raises(DaemonGone):
        list(stream)
    llm.close()


def test_what_fails_is_said_to_who_asked_for_it(llm, folder):
    """And of what came with it nothing is lost."""
    stream = llm.stream(PROMPT, temperature=0, max_tokens=1000)
    other = llm.stream(PROMPT, temperature=0, max_tokens=1000)
    assert next(stream).text + next(other).text == GREEDY[0] * 2
    mine, failing = list(llm._writers)
    failure = NoRoom(errno.ENOSPC, "as the test wants it")
    last = Event(mine, ord("!"), finish="length")
    llm._take([Event(failing, error=failure), last])
    assert [piece.text for piece in stream][-1] == "!"
    with pytest.raises(NoRoom):
        list(other)
    assert n_seqs(llm) == 0


def test_a_stream_that_ended_meanwhile_is_told_whole(llm):
    stream = llm.stream(PROMPT, temperature=0, max_tokens=4)
    text = next(stream).text
    llm.generate(PROMPT, temperature=0, max_tokens=30)
    assert text + "".join(piece.text for piece in stream) == GREEDY[:4]


def test_after_its_end(daemon, folder):
    llm = LLM(folder, socket=daemon.socket)
    stream = llm.stream(PROMPT, temperature=0, max_tokens=5000)
    next(stream)
    llm.close()
    assert list(stream)[-1].finish == "cancelled"
    read, write = os.pipe2(os.O_NONBLOCK)  # has the numbers that the engine had
    llm._engine.wake()
    with pytest.raises(BlockingIOError):
        os.read(read, 1)
    os.close(read)
    os.close(write)
    with pytest.raises(Closed, match="open it anew"):
        llm.generate(PROMPT)


def test_a_bar():
    to = io.StringIO()
    bar = Bar("loading", True, to)
    bar.show(1, 10**9)
    assert to.getvalue() == ""
    bar._next = 0.0
    bar.show(5 * 10**8, 10**9, "B")
    assert " 50% of 1.0 GB" in to.getvalue()
    bar.close()
    assert to.getvalue().endswith("\r")


def command(daemon, *arguments, text=None):
    line = [sys.executable, "-m", "coppice", "generate", *map(str, arguments)]
    line += ["--socket", daemon.socket]
    return subprocess.run(line, input=text, capture_output=True, text=True, timeout=120)


def test_the_command(daemon, folder):
    options = ("--temperature=0", "--max-tokens=12")
    assert command(daemon, folder, PROMPT, *options).stdout == GREEDY[:12] + "\n"
    assert command(daemon, folder, "-", *options, text=PROMPT).stdout == GREEDY[:12] + "\n"
    told = json.loads(command(daemon, folder, PROMPT, "--json", "--n=2", *options).stdout)
    assert [one["text"] for one in told["continuations"]] == [GREEDY[:12]] * 2
    drawn = ("--top-k=1", "--top-p=0.5", "--temperature=0.7", "--seed=3", "--logprobs=2")
    told = json.loads(command(daemon, folder, PROMPT, "--json", "--max-tokens=4", *drawn).stdout)
    [one] = told["continuations"]
    assert one["text"] == GREEDY[:4] and len(one["logprobs"]) == 4
    stopped = command(daemon, folder, PROMPT, *options, f"--stop={GREEDY[4:7]}").stdout
    assert stopped == GREEDY[:4] + "\n"
    none = command(daemon, folder, PROMPT, "--max-tokens=0")
    assert none.returncode == 1 and "max_tokens has to be 1 or more" in none.stderr
    found = command(
        daemon, folder, "--temperature=0", PROMPT[:300], "--n=1", PROMPT, "--max-tokens=3"
    )
    assert found.stdout.splitlines()[1] == GREEDY[:3]  # words on both sides of an option
    found = command(daemon, folder, "a", "--heat=1")
    assert found.returncode == 2 and "--heat=1 is no option" in found.stderr
    found = command(daemon, "/nowhere", "a")
    assert found.returncode == 1 and found.stderr == "coppice: /nowhere is no folder; give a " \
        "checkpoint's, unpacked\n"


def test_the_command_on_tokens(daemon, tmp_path):
    """With no tokenizer what comes is tokens, too."""
    bare = checkpoint.without_tokenizer(tmp_path / "bare")
    ids, greedy = ",".join(map(str, PROMPT.encode())), " ".join(map(str, GREEDY[:5].encode()))
    options = ("--ids", "--temperature=0", "--max-tokens=5")
    assert command(daemon, bare, ids, *options).stdout.strip() == greedy
    assert command(daemon, bare, ids, *options, "--n=2").stdout == f"{greedy}\n{greedy}\n"
    assert "give its tokens, with --ids" in command(daemon, bare, "text").stderr
    said = command(daemon, bare, "--ids", "x").stderr
    assert "--ids takes tokens such as 73,110, not 'x'" in said


@pytest.mark.parametrize(
    "program, install",
    [
        ("coppice.LLM(sys.argv[1])", "pip install 'coppice[llm]'"),
        ("import coppice.hf", "pip install torch transformers"),
        ("from coppice.serve.__main__ import main; sys.exit(main(sys.argv[1:]))", "[serve]'"),
    ],
)
def test_what_is_not_installed_is_named(folder, program, install):
    missing = "('tokenizers', 'torch', 'uvicorn')"
    hide = f"import sys; sys.modules.update(dict.fromkeys({missing})); import coppice; "
    line = [sys.executable, "-c", hide + program, str(folder)]
    found = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert found.returncode == 1 and install in found.stderr.splitlines()[-1], found.stderr
