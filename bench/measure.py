#!/usr/bin/env python3
"""Interleaved CPU-per-request comparison of MCP proxies. Standard library only, Linux only.

    python3 measure.py TARGETS.json [--scenarios l0_small,l0_16k] [--conns 1,16,64] [--requests 1500] [--rounds 3]
                       [--base NAME,NAME] [--only NAME,NAME] [--out result.json]
                       [--check NAME --limit BASE:SCENARIO:CONNS:MOST,...]

TARGETS.json is a list of proxies to compare:
    [{"name": "peer",
      "cmd": ["mcp-airlock", "--policy", "{dir}/policy.yaml", "--upstream", "{upstream}", "--port", "{port}",
              "--audit", "{tmp}/audit.jsonl"],
      "env": {"AIRLOCK_JWT_SECRET": "{secret}"},
      "headers": {"X-Extra": "1"},        # optional: added to every request
      "path": "/mcp",                     # optional
      "skip": ["denied"],                 # optional: scenarios it cannot answer (a plain pass-through denies nothing)
      "scale": 1.0}]                      # optional: share of --requests, for a slow one
In cmd and env: {port} {upstream} {upstream_port} {secret} {dir} (this folder) {tmp} (an empty folder of the
target's own) {python} (this interpreter). Ports are free ones of the loopback address.

Method. One fake upstream (C) and one load generator (C) are built with cc. All proxies are up at once. For every
scenario and connection count the targets take turns, A B C A B C ..., `rounds` times, after one untimed warm-up
turn each; every turn is a fixed number of requests, every answer is checked. The CPU figure is user+sys of the
target's whole process tree over the turn (the scheduler's run time, in ns), divided by the requests. Medians over
rounds; a ratio is the median of the per-round ratios to a base, so that noise which hits one round hits both
sides. Start-up is timed in turns as well, before anything else runs; idle RSS is read right after.
"""

import argparse
import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECRET = "benchmark-secret-benchmark-secret-0123456789"
PROTO = "2026-07-28"
FOREIGN = ("AIRLOCK_", "OTEL_", "PG")  # variables that would change what a target is
METRICS = ("cpu_ms", "rps", "p50_ms", "p99_ms", "rss")

ARGUMENTS = {"name": "checkout", "namespace": "shop", "limit": 50}
# name: (method, tool, arguments, text every answer must hold, share of the requests)
SCENARIOS = {
    "l0_small": ("tools/call", "read_small", ARGUMENTS, "content", 1.0),
    "l0_16k": ("tools/call", "read_16k", ARGUMENTS, "content", 1.0),
    "l0_1m": ("tools/call", "read_1m", ARGUMENTS, "content", 0.03),
    "l3": ("tools/call", "auto_do", ARGUMENTS, "content", 1.0),
    "denied": ("tools/call", "not_in_policy", ARGUMENTS, "isError", 1.0),
    "list100": ("tools/list", None, None, "read_small", 1.0),
    "poison": ("tools/call", "read_poison", ARGUMENTS, "content", 1.0),
    "l1": ("tools/call", "t098", ARGUMENTS, "content", 1.0),
    "l2_issue": ("tools/call", "t099", ARGUMENTS, "requestState", 1.0),
    "l2_confirm": ("tools/call", "t099", ARGUMENTS, "content", 1.0),
}
CONFIRMED = "l2_confirm"  # each request carries the answer to a question asked before the turn


class Failed(Exception):
    """A target or the harness did not do what it must; the text says which and how."""


def b64(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token(now):
    """An HS256 token for alice, good for a day."""
    claims = {"sub": "alice", "groups": ["dev", "oncall"], "iat": int(now), "exp": int(now) + 86400}
    body = b64(b'{"alg":"HS256","typ":"JWT"}') + "." + b64(json.dumps(claims, separators=(",", ":")).encode())
    return body + "." + b64(hmac.new(SECRET.encode(), body.encode(), hashlib.sha256).digest())


def request_bytes(scenario, target, port, bearer, state=None):
    """One whole HTTP request; the load generator replaces the id 1000000. `state` answers a question with yes."""
    method, tool, arguments, _, _ = SCENARIOS[scenario]
    params = {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": PROTO,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    }
    if tool:
        params = {"name": tool, "arguments": arguments, **params}
    if state is not None:
        params["requestState"] = state
        params["inputResponses"] = {"airlock-confirm": {"action": "accept", "content": {"confirm": True}}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1000000, "method": method, "params": params}).encode()
    headers = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        "MCP-Protocol-Version": PROTO,
        "Mcp-Method": method,
        **({"Mcp-Name": tool} if tool else {}),
        "Authorization": "Bearer " + bearer,
        **target.get("headers", {}),
    }
    head = f"POST {target.get('path', '/mcp')} HTTP/1.1\r\n" + "".join(
        f"{k}: {v}\r\n" for k, v in headers.items()
    )
    return head.encode() + b"\r\n" + body


def tree(pid):
    """The process and all its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_s(pids):
    """Run time of every thread of these processes, in seconds. Threads that ended do not count."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return total / 1e9


def rss_mb(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1])
    return total / 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, process, log=None, limit=40):
    """Return when something accepts connections on the port."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()[-3:] if log else []
            raise Failed(f"it ended with {process.returncode} instead of listening: {' | '.join(said)}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.005)
    raise Failed(f"nothing listens on port {port} after {limit} s")


class Target:
    """One proxy: its command, its folder, and its process while it runs."""

    def __init__(self, spec, folder, upstream_port, bearer):
        self.name = spec["name"]
        self.spec = spec
        self.folder = folder
        self.upstream_port = upstream_port
        self.bearer = bearer
        self.process = None
        self.starts, self.idle = [], []
        folder.mkdir()

    def start(self):
        self.port = free_port()
        fields = {
            "port": str(self.port),
            "upstream": f"http://127.0.0.1:{self.upstream_port}/mcp",
            "upstream_port": str(self.upstream_port),
            "secret": SECRET,
            "dir": str(HERE),
            "tmp": str(self.folder),
            "python": sys.executable,
        }

        def fill(text):
            for key, value in fields.items():
                text = text.replace("{" + key + "}", value)
            return text

        env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        env |= {k: fill(v) for k, v in self.spec.get("env", {}).items()}
        log = self.folder / "stderr"
        begun = time.monotonic()
        with open(self.folder / "stdout", "wb") as out, open(log, "wb") as err:
            self.process = subprocess.Popen(
                [fill(part) for part in self.spec["cmd"]],
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            wait_port(self.port, self.process, log)
        except Failed as failed:
            raise Failed(f"{self.name}: {failed}") from None
        self.starts.append(time.monotonic() - begun)
        self.idle.append(rss_mb(tree(self.process.pid)))
        for scenario in SCENARIOS:
            request = request_bytes(scenario, self.spec, self.port, self.bearer)
            (self.folder / f"{scenario}.req").write_bytes(request)

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


class Bench:
    """The harness: builds its two programs, keeps the upstream up, starts targets and drives turns."""

    def __init__(self, delay_ms="0"):
        self.tmp = Path(tempfile.mkdtemp(prefix="airlock-bench-"))
        self.targets = []
        self.upstream = None
        try:
            for source in ("fake_upstream", "load"):
                subprocess.run(
                    ["cc", "-O2", "-w", "-o", str(self.tmp / source), str(HERE / f"{source}.c"), "-lm"],
                    check=True,
                )
            self.upstream_port = free_port()
            self.upstream = subprocess.Popen(
                [str(self.tmp / "fake_upstream"), str(self.upstream_port), delay_ms]
            )
            wait_port(self.upstream_port, self.upstream)
        except BaseException:
            self.close()
            raise
        self.bearer = token(time.time())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for target in self.targets:
            target.stop()
        if self.upstream is not None:
            self.upstream.terminate()
            self.upstream.wait()
        shutil.rmtree(self.tmp, ignore_errors=True)

    def add(self, spec, starts=1):
        return self.add_all([spec], starts)[0]

    def add_all(self, specs, starts=1):
        """Start the targets, `starts` times in turns; the last start stays up."""
        added = []
        for spec in specs:
            folder = self.tmp / f"{len(self.targets)}-{spec['name'].replace('/', '_')}"
            added.append(Target(spec, folder, self.upstream_port, self.bearer))
            self.targets.append(added[-1])
        for k in range(starts):
            for target in added:
                target.start()
                if k < starts - 1:
                    target.stop()
        return added

    def ask(self, target, count):
        """Have `count` questions asked, and write the requests that answer each of them with yes."""
        answer = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60)
        whole = request_bytes("l2_issue", target.spec, target.port, target.bearer)
        head, _, body = whole.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        requests = []
        for _ in range(count):
            answer.request("POST", target.spec.get("path", "/mcp"), body, headers)
            state = json.loads(answer.getresponse().read())["result"]["requestState"]
            requests.append(request_bytes(CONFIRMED, target.spec, target.port, target.bearer, state))
        answer.close()
        (target.folder / f"{CONFIRMED}.req").write_bytes(b"".join(requests))

    def turn(self, target, scenario, conns, requests):
        """Drive one turn. Returns its figures, or {"error": text}."""
        if scenario == CONFIRMED:
            self.ask(target, requests)
        before = cpu_s(tree(target.process.pid))
        command = [str(self.tmp / "load"), str(target.port), str(conns), str(requests)]
        command += [str(target.folder / f"{scenario}.req"), SCENARIOS[scenario][3]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return {"error": f"{requests} requests took more than 300 s"}
        pids = tree(target.process.pid)
        after = cpu_s(pids)
        if done.returncode:
            return {"error": (done.stderr or done.stdout)[:600]}
        figures = json.loads(done.stdout)
        figures.update(cpu_ms=(after - before) / requests * 1e3, rss=rss_mb(pids))
        return figures

    def compare(self, targets, scenario, conns, requests, rounds, bases):
        """Let the targets take turns. Returns a row for each, with its ratios to each base."""
        live = [t for t in targets if scenario not in t.spec.get("skip", [])]
        turns = {t.name: [] for t in live}
        for k in range(rounds + 1):
            for target in live:
                share = target.spec.get("scale", 1.0) * SCENARIOS[scenario][4] * (1 if k else 0.25)
                figures = self.turn(target, scenario, conns, max(conns * 4, int(requests * share)))
                if k or "error" in figures:
                    turns[target.name].append(figures)
        rows = []
        for target in live:
            row = {"target": target.name, "scenario": scenario, "conns": conns}
            wrong = [t["error"] for t in turns[target.name] if "error" in t]
            if wrong:
                rows.append(row | {"error": wrong[0]})
                continue
            row |= {m: statistics.median(t[m] for t in turns[target.name]) for m in METRICS}
            row["ratios"] = {
                base: {
                    m: statistics.median(
                        a[m] / b[m] for a, b in zip(turns[target.name], turns[base], strict=True)
                    )
                    for m in METRICS
                }
                for base in bases
                if base in turns and not any("error" in t for t in turns[base])
            }
            rows.append(row)
        return rows


def print_rows(rows, bases):
    """Print one comparison as a table: figures, then the CPU ratio to each base."""
    print(f"\n{rows[0]['scenario']}, {rows[0]['conns']} connection(s)")
    print(
        f"{'target':18}{'cpu ms/req':>11}{'rps':>9}{'p50 ms':>9}{'p99 ms':>9}{'RSS MB':>8}"
        + "".join(f"{'of ' + base:>20}" for base in bases)
    )
    for row in rows:
        if "error" in row:
            print(f"{row['target']:18} FAILED: {row['error'][:300]!r}")
            continue
        ratios = (row["ratios"].get(base, {}).get("cpu_ms") for base in bases)
        print(
            f"{row['target']:18}{row['cpu_ms']:>11.4f}{row['rps']:>9.0f}{row['p50_ms']:>9.3f}{row['p99_ms']:>9.3f}"
            f"{row['rss']:>8.1f}" + "".join(f"{'-' if r is None else format(r, '.4f'):>20}" for r in ratios),
            flush=True,
        )


def ratio(rows, name, base, scenario, conns, metric="cpu_ms"):
    """One ratio out of the rows, or None when it was not measured."""
    for row in rows:
        if (row["target"], row["scenario"], row["conns"]) == (name, scenario, conns) and "error" not in row:
            return row["ratios"].get(base, {}).get(metric)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets")
    parser.add_argument("--scenarios", default="l0_small,l0_16k,l3,denied,list100")
    parser.add_argument("--conns", default="1,16,64")
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--base", help="comma-separated names; default: the first target")
    parser.add_argument("--only", help="comma-separated names")
    parser.add_argument("--upstream-delay-ms", default="0")
    parser.add_argument("--out")
    parser.add_argument("--check", help="the target that --limit holds to")
    parser.add_argument(
        "--limit", default="", help="BASE:SCENARIO:CONNS:MOST,... : exit 1 when a CPU ratio is over"
    )
    args = parser.parse_args()
    specs = json.loads(Path(args.targets).read_text())
    if args.only:
        specs = [s for s in specs if s["name"] in args.only.split(",")]
    bases = (args.base or specs[0]["name"]).split(",")
    rows = []
    with Bench(args.upstream_delay_ms) as bench:
        targets = bench.add_all(specs)
        for scenario in args.scenarios.split(","):
            for conns in map(int, args.conns.split(",")):
                rows += (new := bench.compare(targets, scenario, conns, args.requests, args.rounds, bases))
                print_rows(new, bases)
        idle = {t.name: {"rss_mb": round(t.idle[-1], 1), "start_s": round(t.starts[-1], 3)} for t in targets}
        print("\nidle:", json.dumps(idle))
    if args.out:
        Path(args.out).write_text(json.dumps({"rows": rows, "idle": idle}, indent=1))
    over = []
    for base, scenario, conns, most in (limit.split(":") for limit in args.limit.split(",") if limit):
        found = ratio(rows, args.check, base, scenario, int(conns))
        if found is None or found > float(most):
            over.append(f"{scenario} at {conns} connections: {found} of {base}, at most {most} asked")
    if args.limit:
        print("; ".join(over) or f"{args.check}: every ratio is within its limit")
    return 1 if over or any("error" in row for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        sys.exit(f"measure: {failed}")
