// A client built on the TypeScript ACP SDK. It starts an agent and prints a report as JSON.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [packages, cwd, server, python, program, ...rest] = process.argv.slice(2);
const acp = await import(
  pathToFileURL(`${packages}/@agentclientprotocol/sdk/dist/v1/stable/acp.js`).href
);
const tools = { name: "tools", command: python, args: [server], env: [] };
const report = {};
let session;

async function holdfast(work) {
  const seen = [];
  const said = [];
  let permissions = 0;
  const child = spawn(program, rest, { stdio: ["pipe", "pipe", "ignore"] });
  await acp
    .client({ name: "test" })
    .onRequest("session/request_permission", ({ params }) => {
      permissions += 1;
      return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
    })
    .onNotification("session/update", ({ params }) => {
      seen.push(params.update.sessionUpdate);
      if (params.update.sessionUpdate === "agent_message_chunk") said.push(params.update.content.text);
    })
    .connectWith(
      acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)),
      async (ctx) => {
        const hello = await ctx.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
        report.version = hello.protocolVersion;
        await work(ctx, seen, () => permissions);
      },
    );
  child.stdin.end();
  await new Promise((done) => (child.exitCode === null ? child.on("exit", done) : done()));
  return said.join("");
}

const prompt = (text) => ({ sessionId: session, prompt: [{ type: "text", text }] });
const both = '/call tools.echo {"text": "hi"}\n/call tools.count';

const first = await holdfast(async (ctx, seen, permissions) => {
  session = (await ctx.request("session/new", { cwd, mcpServers: [tools] })).sessionId;
  report.stopped = (await ctx.request("session/prompt", prompt(both))).stopReason;
  report.permissions = permissions();
  const waiting = ctx.request("session/prompt", prompt(`/call tools.wait {"started": "${cwd}/started"}`));
  while (!existsSync(`${cwd}/started`)) await new Promise((done) => setTimeout(done, 20));
  await ctx.notify("session/cancel", { sessionId: session });
  report.cancelled = (await waiting).stopReason;
  report.listed = (await ctx.request("session/list", {})).sessions.length;
  await ctx.request("session/set_mode", { sessionId: session, modeId: "auto" });
  try {
    await ctx.request("session/load", { sessionId: "sess_0123456789abcdef", cwd, mcpServers: [] });
  } catch (error) {
    report.unknown = error.code;
  }
});
const second = await holdfast(async (ctx, seen, permissions) => {
  const loaded = await ctx.request("session/load", { sessionId: session, cwd, mcpServers: [tools] });
  report.mode = loaded.modes.currentModeId;
  report.replayed = seen.includes("user_message_chunk");
});
report["same replies"] = first === second;
await holdfast(async (ctx, seen, permissions) => {
  await ctx.request("session/resume", { sessionId: session, cwd, mcpServers: [tools] });
  report["works after resume"] = (await ctx.request("session/prompt", prompt(both))).stopReason;
  report["not asked in auto"] = permissions();
});
console.log(JSON.stringify(report));
process.exit(0);
