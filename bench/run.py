#!/usr/bin/env python3
"""What `make bench` runs: our gateway against the published original and two reference points, held to our limits.

    python bench/run.py [--quick] [--without-product] [--write]

Puts `mcp-airlock[regex]==0.4.1` into an environment of its own (bench/.venv-peer), measures with `measure.py`, prints
every table, then each limit with pass or fail; exit status 1 when a limit is missed (a quick run holds nobody to them). `--write` puts the same into
bench/RESULTS.md. Everything is on the loopback address, on free ports, bounded in count, and ends by itself.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import measure

HERE = Path(__file__).resolve().parent
PEER_ENV = HERE / ".venv-peer"
OUT = HERE / "out"
# The original's own dependencies already hold Starlette, httpx and uvicorn: the reference target runs from there.
PEER_NEEDS = ["mcp-airlock[regex]==0.4.1"]
CONNS = (1, 16, 64)
SCENARIOS = ("l0_small", "l0_16k", "l3", "denied", "list100")
GATED = ("l1", "l2_issue", "l2_confirm")  # figures without a limit of their own
WINDOW_CALLS = 10_000  # what the limit speaks of

# CPU of the product as a share of the base, at 1, 16 and 64 connections: (must, aim).
CPU_LIMITS = [
    ("peer", "l0_small", {1: (0.07, 0.04), 16: (0.04, 0.025), 64: (0.04, 0.025)}),
    ("peer", "l0_16k", {1: (0.03, 0.018), 16: (0.025, 0.015), 64: (0.025, 0.015)}),
    ("peer", "l0_1m", {1: (0.025, 0.013)}),
    ("peer", "l3", {1: (0.07, 0.045), 16: (0.04, 0.025), 64: (0.04, 0.02)}),
    ("peer", "denied", {1: (0.13, 0.09), 16: (0.12, 0.08), 64: (0.12, 0.08)}),
    ("peer", "list100", {1: (0.09, 0.02), 16: (0.08, 0.015), 64: (0.08, 0.015)}),
    ("raw", "l0_small", {1: (3.5, 2.2), 16: (3.5, 2.5), 64: (3.5, 2.8)}),
    ("raw", "l0_16k", {1: (4.5, 3), 16: (6, 4.5), 64: (6, 4)}),
    ("starlette", "l0_small", {1: (0.12, 0.08), 16: (0.06, 0.04), 64: (0.05, 0.03)}),
]
# Of the peer's figure at 200 bytes: metric, must, aim, and whether more is better.
OTHER_LIMITS = [("rps", 20, 35, True), ("p99_ms", 0.06, 0.02, False)]
IDLE_LIMIT = (0.6, 0.4)
START_LIMIT = (0.3, 0.15)
WINDOW_LIMIT = 1.1


def make_peer_env():
    """Make bench/.venv-peer, once for each list of needs."""
    mark = PEER_ENV / ".ready"
    wanted = "\n".join([*PEER_NEEDS, platform.python_version()])
    if mark.exists() and mark.read_text() == wanted:
        return
    print(f"installing {', '.join(PEER_NEEDS)} into {PEER_ENV.relative_to(HERE.parent)} ...", flush=True)
    shutil.rmtree(PEER_ENV, ignore_errors=True)
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    python = str(PEER_ENV / "bin" / "python")
    if uv:
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(PEER_ENV)], check=True)
        subprocess.run(
            [uv, "pip", "install", "-q", "--compile-bytecode", "--python", python, *PEER_NEEDS], check=True
        )
    else:
        subprocess.run([sys.executable, "-m", "venv", str(PEER_ENV)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEER_NEEDS], check=True)
    mark.write_text(wanted)


def gateway(command):
    """The command line shared by the product and the original."""
    policy = ["--policy", "{dir}/policy.yaml", "--upstream", "{upstream}", "--port", "{port}"]
    return {
        "cmd": [command, *policy, "--audit", "{tmp}/audit.jsonl"],
        "env": {"AIRLOCK_JWT_SECRET": "{secret}"},
    }


def specs(product):
    """The targets, slow ones with a smaller share of the requests."""
    peer_bin = PEER_ENV / "bin"
    found = [
        {"name": "peer", "scale": 0.13, **gateway(str(peer_bin / "mcp-airlock"))},
        {
            "name": "raw",
            "skip": ["denied", *GATED],
            "cmd": ["{python}", "{dir}/refs/raw_passthrough.py", "{port}", "{upstream_port}"],
        },
        {
            "name": "starlette",
            "scale": 0.13,
            "skip": ["denied", *GATED],
            "cmd": [str(peer_bin / "python"), "{dir}/refs/starlette_httpx.py", "{port}", "{upstream}"],
        },
    ]
    if product:
        found.insert(0, {"name": "product", **gateway(str(Path(sys.executable).parent / "mcp-airlock"))})
    return found


def window_ratio(bench, calls, rounds):
    """CPU of an L3 call with `calls` in the window, against one of a twin that has none; both equally warm."""
    spec = {"name": "product", **gateway(str(Path(sys.executable).parent / "mcp-airlock"))}
    empty, full = bench.add_all([spec, spec])
    for target, scenario in ((empty, "l0_small"), (full, "l3")):
        if "error" in (done := bench.turn(target, scenario, 16, calls)):
            raise measure.Failed(f"filling the window: {done['error']}")
    ratios = []
    for _ in range(rounds):
        a, b = (bench.turn(target, "l3", 16, 400) for target in (empty, full))
        if "error" in a or "error" in b:
            raise measure.Failed(f"a full window: {a.get('error') or b.get('error')}")
        ratios.append(b["cpu_ms"] / a["cpu_ms"])
    return statistics.median(ratios)


def judge(rows, targets, window, window_calls):
    """Hold what was measured to the limits: rows of (what, value or None, must, aim, more is better)."""
    found = []
    for base, scenario, at in CPU_LIMITS:
        for conns, (must, aim) in at.items():
            value = measure.ratio(rows, "product", base, scenario, conns)
            found.append((f"CPU of {scenario} at {conns}, of {base}", value, must, aim, False))
    for metric, must, aim, more in OTHER_LIMITS:
        for conns in (16, 64):
            value = measure.ratio(rows, "product", "peer", "l0_small", conns, metric)
            found.append(
                (f"{metric.removesuffix('_ms')} of l0_small at {conns}, of peer", value, must, aim, more)
            )
    by_name = {t.name: t for t in targets}
    idle = start = None
    if "product" in by_name:
        ours, peer = by_name["product"], by_name["peer"]
        idle = statistics.median(a / b for a, b in zip(ours.idle, peer.idle, strict=True))
        start = statistics.median(a / b for a, b in zip(ours.starts, peer.starts, strict=True))
    found.append(("idle RSS, of peer", idle, *IDLE_LIMIT, False))
    found.append(("start to listening, of peer", start, *START_LIMIT, False))
    found.append(
        (
            f"CPU of l3 after {window_calls:,} calls in the window, of before",
            window,
            WINDOW_LIMIT,
            None,
            False,
        )
    )
    return found


def verdict(value, limit, more):
    if value is None:
        return "not measured"
    return "pass" if (value >= limit if more else value <= limit) else "FAIL"


def limits_table(found):
    lines = ["| limit | measured | must | verdict | aim |", "| --- | --- | --- | --- | --- |"]
    for what, value, must, aim, more in found:
        sign = "at least" if more else "at most"
        shown = "-" if value is None else f"{value:.3f}"
        lines.append(
            f"| {what} | {shown} | {sign} {must:g} | {verdict(value, must, more)} | {'-' if aim is None else f'{aim:g}'} |"
        )
    return lines


def figures_table(rows):
    lines = [
        "| scenario | conns | target | CPU ms/request | rps | p50 ms | p99 ms | RSS MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        figures = (
            f"{r['cpu_ms']:.3f} | {r['rps']:.0f} | {r['p50_ms']:.2f} | {r['p99_ms']:.2f} | {r['rss']:.0f}"
            if "error" not in r
            else "failed | | | |"
        )
        lines.append(f"| {r['scenario']} | {r['conns']} | {r['target']} | {figures} |")
    return lines


def machine():
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.python_implementation()} {platform.python_version()}"


def write_results(rows, targets, found, took):
    lines = [
        "# Benchmark results",
        "",
        f"Made by `make bench ARGS=--write` on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine()}; {took:.0f} s.",
        "",
        "`peer` is `mcp-airlock[regex]` 0.4.1; `raw` and `starlette` are pass-throughs that check nothing (README.md here).",
        "Figures of one run may be compared with each other, never with those of another run or machine.",
        "",
        "## Limits",
        "",
        *limits_table(found),
        "",
        "## Figures",
        "",
        *figures_table(rows),
        "",
        "| target | start to listening, s | idle RSS, MB |",
        "| --- | --- | --- |",
        *(
            f"| {t.name} | {statistics.median(t.starts):.2f} | {statistics.median(t.idle):.0f} |"
            for t in targets
        ),
        "",
    ]
    page = HERE / "RESULTS.md"
    # What eras.py and the corpus of hygiene wrote stands below.
    _, mark, below = page.read_text().partition("<!-- eras -->") if page.exists() else ("", "", "")
    page.write_text("\n".join(lines) + (f"\n{mark}{below}" if mark else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of few requests: does it run at all?")
    parser.add_argument(
        "--without-product", action="store_true", help="measure the peer and the references alone"
    )
    parser.add_argument("--write", action="store_true", help="write bench/RESULTS.md")
    args = parser.parse_args()
    if not Path("/proc/self/schedstat").exists():
        sys.exit("bench: this needs Linux with /proc/PID/schedstat")
    if not shutil.which("cc"):
        sys.exit(
            "bench: no C compiler (cc) on the PATH; install gcc or clang: the load generator and the upstream are C"
        )
    begun = time.monotonic()
    make_peer_env()
    requests, rounds, starts, window_calls = (300, 1, 1, 1000) if args.quick else (1200, 3, 3, WINDOW_CALLS)
    bases = ["peer", "raw", "starlette"]
    rows, window = [], None
    targets_file = specs(not args.without_product)
    OUT.mkdir(exist_ok=True)
    (OUT / "targets.json").write_text(json.dumps(targets_file, indent=1))
    with measure.Bench() as bench:
        targets = bench.add_all(targets_file, starts)
        plan = [(scenario, conns) for scenario in SCENARIOS for conns in CONNS] + [("l0_1m", 1)]
        plan += [(scenario, 16) for scenario in GATED]
        for scenario, conns in plan:
            rows += (new := bench.compare(targets, scenario, conns, requests, rounds, bases))
            measure.print_rows(new, bases)
        for target in targets:
            target.stop()
        if not args.without_product:
            window = window_ratio(bench, window_calls, 3 if args.quick else 9)
    took = time.monotonic() - begun
    found = judge(rows, targets, window, window_calls)
    (OUT / "result.json").write_text(
        json.dumps({"machine": machine(), "rows": rows, "limits": found}, indent=1)
    )
    print("\n" + "\n".join(limits_table(found)))
    print(f"\n{machine()}; {took:.0f} s")
    if args.write:
        write_results(rows, targets, found, took)
        print("written: bench/RESULTS.md")
    failed = [row for row in rows if "error" in row]
    missed = [what for what, value, must, _, more in found if verdict(value, must, more) == "FAIL"]
    if args.quick:
        print("bench: a quick run is too short to hold anybody to the limits")
        missed = []
    if failed or missed:
        print(f"bench: {len(missed)} limit(s) missed, {len(failed)} turn(s) failed")
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except measure.Failed as problem:
        sys.exit(f"bench: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
