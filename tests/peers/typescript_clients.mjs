// One conversation with an MCP server, as a client of the TypeScript SDK: prints what was said as one JSON object.
//
//     node typescript_clients.mjs <1|2> <handshake|modern> <command> <arguments…>, or an address instead of a command

const packages = new URL("../../peers/node_modules/@modelcontextprotocol/", import.meta.url).href;
const [generation, era, command, ...args] = process.argv.slice(2);
const files = {
  1: ["sdk/dist/esm/client/index.js", "sdk/dist/esm/client/stdio.js", "sdk/dist/esm/client/streamableHttp.js", "sdk/dist/esm/types.js"],
  2: ["client/dist/index.mjs", "client/dist/stdio.mjs", "client/dist/index.mjs"],
}[generation];
const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }, types] = await Promise.all(
  files.map((file) => import(packages + file)),
);

const anything = { "~standard": { version: 1, vendor: "tests", validate: (value) => ({ value }) } };
const versionNegotiation = { mode: era === "modern" ? "auto" : "legacy" };
const client = new Client({ name: "typescript", version: "1" }, generation === "2" ? { versionNegotiation } : {});
const transport = command.startsWith("http://")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, stderr: "pipe" });
let stderr = "";
transport.stderr?.on("data", (data) => (stderr += data));
const errors = [];
client.onerror = (error) => errors.push(String(error));
await client.connect(transport);

const call = (name, args = {}, options = undefined) =>
  generation === "1"
    ? client.callTool({ name, arguments: args }, undefined, options)
    : client.callTool({ name, arguments: args }, options);
const read = ({ isError, content }) => [isError ?? false, content[0].text];
const refusal = async (promise) => promise.then(() => null, (error) => error.code);

const { name, version } = client.getServerVersion();
const said = { server: [name, version, client.getInstructions()] };
said.era = generation === "1" ? "handshake" : client.getProtocolEra() === "modern" ? "modern" : "handshake";
said.tools = (await client.listTools()).tools.map((tool) => tool.name);
said.echo = read(await call("echo", { text: "häß \u{1f41a}" }));
said.count = [read(await call("count")), read(await call("count"))];
said.fail = read(await call("fail"));
said["unknown tool"] = await refusal(call("nope"));
said["unknown method"] = await refusal(client.request({ method: "no/such/method" }, generation === "1" ? types.EmptyResultSchema : anything));
said.shout = read(await call("shout"));

const cancelling = new AbortController();
let progress;
const onprogress = (update) => {
  progress = update;
  cancelling.abort();
};
await call("wait", {}, { signal: cancelling.signal, onprogress }).catch(() => null);
said.progress = progress;
said.cancelled = read(await call("cancelled"));

await client.close();
said.stderr = stderr.trim().split("\n");
said.errors = errors;
console.log(JSON.stringify(said));
