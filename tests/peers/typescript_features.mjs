// Use every feature of a toolkit server as a client of the TypeScript SDK 2; print what was said as one JSON object.
//
//     node typescript_features.mjs <handshake|modern> <command> <arguments…>, or an address instead of a command

const packages = new URL("../../peers/node_modules/@modelcontextprotocol/", import.meta.url).href;
const [era, command, ...args] = process.argv.slice(2);
const [{ Client, StreamableHTTPClientTransport }, { StdioClientTransport }] = await Promise.all(
  ["client/dist/index.mjs", "client/dist/stdio.mjs"].map((file) => import(packages + file)),
);

const client = new Client(
  { name: "typescript", version: "1" },
  {
    versionNegotiation: { mode: era === "modern" ? "auto" : "legacy" },
    capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
  },
);
const asked = [];
client.setRequestHandler("elicitation/create", async ({ params }) => {
  asked.push(params.message);
  if (params.message === "Decline this.") return { action: "decline" };
  return { action: "accept", content: { dish: "soup", plates: 2 } };
});
client.setRequestHandler("sampling/createMessage", async ({ params }) => {
  asked.push(params.messages[0].content.text);
  return { role: "assistant", content: { type: "text", text: "Nice!" }, model: "tiny" };
});
client.setRequestHandler("roots/list", async () => ({ roots: [{ uri: "file:///blog" }] }));
const told = [];
let hear;
const heard = new Promise((resolve) => (hear = resolve));
for (const method of ["notifications/prompts/list_changed", "notifications/resources/updated"])
  client.setNotificationHandler(method, () => {
    told.push(method.replace("notifications/", ""));
    if (told.length === 2) hear();
  });

const transport = command.startsWith("http://")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, stderr: "ignore" });
await client.connect(transport);

const call = async (name) => JSON.parse((await client.callTool({ name, arguments: {} })).content[0].text);
const said = {
  resources: (await client.listResources()).resources.map((each) => each.uri),
  templates: (await client.listResourceTemplates()).resourceTemplates.map((each) => each.uriTemplate),
  prompts: (await client.listPrompts()).prompts.map((each) => [
    each.name,
    (each.arguments ?? []).map((argument) => [argument.name, argument.required]),
  ]),
};
const read = (await client.readResource({ uri: "shop://orders/7" })).contents[0];
said.read = [read.mimeType, read.text];
said.unknown = await client.readResource({ uri: "shop://nothing" }).then(() => null, (error) => error.code);
const prompt = await client.getPrompt({ name: "greet", arguments: { name: "Ann" } });
said.prompt = prompt.messages.map((message) => [message.role, message.content.type]);
const completed = await client.complete({
  ref: { type: "ref/prompt", name: "greet" },
  argument: { name: "name", value: "b" },
});
said.completion = completed.completion.values;
said.order = (await call("order")).result;
said.declined = (await call("decline")).code;
said.asked = asked;
if (era === "modern") await client.listen({ promptsListChanged: true, resourceSubscriptions: ["shop://menu"] });
else await client.subscribeResource({ uri: "shop://menu" });
await call("change");
await heard;
said.told = told.sort();
await client.close();
console.log(JSON.stringify(said));
process.exit(0);
