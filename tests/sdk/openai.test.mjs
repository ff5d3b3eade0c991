// The official npm openai package against the gateway. FAIRGATE_URL and FAIRGATE_KEY say where it is.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.FAIRGATE_URL}/v1`,
  apiKey: process.env.FAIRGATE_KEY,
  maxRetries: 0,
});
const messages = [{ role: "user", content: "Say something about queues." }];

test("models are listed", async () => {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.deepEqual(names, ["sim"]);
});

test("chat, whole and streamed, is the same text", async () => {
  const whole = await client.chat.completions.create({ model: "sim", messages, max_tokens: 20 });
  assert.ok(whole.choices[0].message.content);
  assert.ok(whole.usage.completion_tokens > 0 && whole.usage.completion_tokens <= 20);
  const stream = await client.chat.completions.create({
    model: "sim",
    messages,
    max_tokens: 20,
    stream: true,
  });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0].delta.content ?? "";
  assert.equal(text, whole.choices[0].message.content);
});

test("responses, whole and streamed, are the same text", async () => {
  const asked = { model: "sim", input: "Say something.", max_output_tokens: 20 };
  const whole = await client.responses.create(asked);
  let text = "";
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, whole.output_text);
});

test("embeddings", async () => {
  const answer = await client.embeddings.create({ model: "sim", input: ["one", "two"] });
  assert.equal(answer.data.length, 2);
});

test("a stream that is left early ends cleanly", async () => {
  const stream = await client.chat.completions.create({ model: "sim", messages, stream: true });
  for await (const chunk of stream) {
    assert.ok(chunk);
    break;
  }
});

test("errors are the SDK's own", async () => {
  const asked = { model: "no-such-model", messages };
  await assert.rejects(client.chat.completions.create(asked), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    return true;
  });
});
