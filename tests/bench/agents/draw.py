#!/usr/bin/env python3
"""Draws tokens/s over the number of agents: behind one document, and each behind its own.

    decode="coppice-bench decode -b cuda -m llama-3.1-8b -d 32768 -t 64 --json"
    $decode --pool=60G -c 1,2,4,8,16,32,64 >tests/bench/agents/shared.json
    $decode --pool=80G -c 1,2,4,8 --private >tests/bench/agents/private.json
    tests/bench/agents/draw.py tests/bench/agents/*.json --out tests/bench/agents/agents.svg \\
        --title "Llama 3.1 8B, a document of 32,768 tokens, one H200"

The same figures give the same file, byte by byte. Needs matplotlib.
"""

import argparse
import json
import re

# What a round of coppice-bench decode is called: model, processes x sequences, document, how.
CASE = re.compile(
    r"(?P<model>.+)_(?P<clients>\d+)x(?P<seqs>\d+)_d(?P<document>\d+)(_(?P<how>\w+))?$"
)
LINES = {
    None: ("#1f6fb4", "o", "one document for all"),
    "private": ("#b4571f", "s", "a document each"),
}


def read(paths):
    """{how: {agents: tokens/s}}"""
    found = {how: {} for how in LINES}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                fact = json.loads(line)
                case = CASE.match(fact["case"])
                if case and fact["metric"] == "tokens_s" and case["how"] in found:
                    n_agents = int(case["clients"]) * int(case["seqs"])
                    found[case["how"]][n_agents] = fact["value"]
    return found


def draw(found, title, out):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "coppice", "svg.fonttype": "none", "font.size": 11})
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(7, 3.6))
    for how, (color, mark, label) in LINES.items():
        points = sorted(found[how].items())
        if not points:
            continue
        xs, ys = zip(*points)
        axes.plot(xs, ys, color=color, marker=mark, linewidth=2, markersize=5)
        last, near = (xs[-1], ys[-1]), {"textcoords": "offset points", "color": color}
        axes.annotate(label, last, (8, 0), va="center", **near)
        axes.annotate(f"{ys[-1]:,.0f}", last, (0, 8), ha="center", **near)
    counts = sorted({n for line in found.values() for n in line})
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.set_ylim(0, 1.12 * max(max(line.values(), default=0) for line in found.values()))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("agents, each a process")
    axes.set_ylabel("tokens/s of all")
    axes.set_title(title, fontsize=11, loc="left")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.subplots_adjust(left=0.11, right=0.76, bottom=0.15, top=0.9)
    figure.savefig(out, metadata={"Date": None, "Creator": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("files", nargs="+", help="what coppice-bench decode --json has printed")
    parser.add_argument("--out", required=True, help="the picture, .svg")
    parser.add_argument("--title", required=True)
    args = parser.parse_args()
    draw(read(args.files), args.title, args.out)


if __name__ == "__main__":
    main()
