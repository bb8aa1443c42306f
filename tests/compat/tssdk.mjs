// The TypeScript SDK's client playing the same as `pysdk.play`: node tssdk.mjs PACKAGES 1|2 MODE URL LABEL [CAREFUL].
//
// It knows both packages of the SDK; it must not know what is behind the address. Prints one JSON object.

import { createRequire } from "node:module";

const [packages, line, mode, url, label, careful] = process.argv.slice(2);
const require = createRequire(packages + "/");
const second = line === "2";
const ways = { legacy: "legacy", auto: "auto", "2026-07-28": { pin: "2026-07-28" } };
const RULE = "io.mcp-airlock/rule_id";

const { Client } = require(second ? "@modelcontextprotocol/client" : "@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require(
  second ? "@modelcontextprotocol/client" : "@modelcontextprotocol/sdk/client/streamableHttp.js",
);
const elicitation = second
  ? "elicitation/create"
  : require("@modelcontextprotocol/sdk/types.js").ElicitRequestSchema;

const text = (result) => result.content.map((block) => block.text ?? "").join("\n");
const rule = (result) => result._meta?.[RULE] ?? "";

// A client that has opened, as `principal`; `answer` is what its person says, `sent` gets what it posts.
async function connected(principal, answer, sent = []) {
  const options = { capabilities: { elicitation: { form: {} } } };
  if (second) options.versionNegotiation = { mode: ways[mode] };
  const client = new Client({ name: "compat", version: "1" }, options);
  client.setRequestHandler(elicitation, async () => answer);
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { "X-Airlock-Principal": principal } },
    fetch: (to, init) => {
      if (init?.body) sent.push(init);
      return fetch(to, init);
    },
  });
  await client.connect(transport);
  const version = second ? client.getNegotiatedProtocolVersion() : transport.protocolVersion;
  const call = (name, values, how) =>
    second
      ? client.callTool({ name, arguments: values }, how)
      : client.callTool({ name, arguments: values }, undefined, how);
  return { client, version, call };
}

async function freely() {
  const { client, version, call } = await connected("alice", { action: "accept", content: { name: "ada" } });
  const facts = { opened: version };
  facts.lists = (await client.listTools()).tools.some((tool) => tool.name === "change");
  facts.calls = text(await call("change", { label })) === "changed";
  const paced = await call("paced", { label }, { onprogress: () => void call("go_on", { label }) });
  facts.progress = text(paced) === "went on";
  try {
    facts.asks = text(await call("ask", { label })) === "hello ada";
  } catch (error) {
    facts.asks = false;
    facts.asks_error = String(error);
  }
  const stop = new AbortController();
  try {
    await call("endless", { label }, { onprogress: () => stop.abort(), signal: stop.signal });
  } catch (error) {
    facts.aborted = String(error);
  }
  facts.cancels = text(await call("ended", { label })) === "cancelled";
  try {
    const refused = await call("test_simple_text", {});
    facts.refused = refused.isError ? rule(refused) : "";
  } catch (error) {
    facts.refused = String(error);
  }
  await client.close();
  return facts;
}

async function carefully() {
  const facts = {};
  const answers = { yes: { action: "accept", content: { confirm: true } }, no: { action: "decline" } };
  for (const [word, answer] of Object.entries(answers)) {
    const sent = [];
    const { client, call } = await connected(careful, answer, sent);
    facts["held_" + word] = rule(await call("change", { label: `${label}-${word}` }));
    if (word === "yes") facts.replay = await again(sent);
    await client.close();
  }
  return facts;
}

// Send the person's yes once more: the rule that refused it, or the status of an answer without one.
async function again(sent) {
  const last = sent.filter((init) => init.body.includes('"action":')).pop();
  const message = JSON.parse(last.body);
  if (message.method) message.id = "again";
  const answer = await fetch(url, { ...last, body: JSON.stringify(message), signal: undefined });
  return message.method ? rule((await answer.json()).result) : String(answer.status);
}

let facts;
try {
  facts = await freely();
  if (careful) Object.assign(facts, await carefully());
} catch (error) {
  facts = facts ? { ...facts, error: String(error) } : { opened: "", error: String(error) };
}
console.log(JSON.stringify(facts));
process.exit(0);
