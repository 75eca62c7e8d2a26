// An agent on the TypeScript ACP SDK that stores nothing.
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const path = createRequire(import.meta.url).resolve(
  `${process.argv[2]}/@agentclientprotocol/sdk/dist/v1/stable/acp.js`,
);
const acp = await import(pathToFileURL(path).href);
const chunk = { type: "text", text: "x".repeat(192) };

acp
  .agent({ name: "streamer" })
  .onRequest("initialize", () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest("session/new", () => ({ sessionId: "one" }))
  .onRequest("session/prompt", async ({ params, client }) => {
    for (let n = Number(params.prompt[0].text); n > 0; n--) {
      await client.notify("session/update", {
        sessionId: params.sessionId,
        update: { sessionUpdate: "agent_message_chunk", content: chunk },
      });
    }
    return { stopReason: "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
