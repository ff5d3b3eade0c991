// Deadlines with the official npm openai package. FAIRGATE_URL and FAIRGATE_KEY say where the gateway is, which serves nothing of
// the class `batch`, and `chat` by deadlines.

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.FAIRGATE_URL}/v1`,
  apiKey: process.env.FAIRGATE_KEY,
  maxRetries: 3,
});
const asked = { model: "sim", messages: [{ role: "user", content: "Say something." }], max_tokens: 5 };

function ask(name, deadline) {
  const headers = { "x-fairgate-class": name, "x-fairgate-deadline": deadline };
  return client.chat.completions.create(asked, { headers });
}

test("a deadline that has passed is not tried again", async () => {
  await assert.rejects(ask("batch", "0.2"), (error) => {
    assert.ok(error instanceof OpenAI.InternalServerError);
    assert.equal(error.status, 504);
    assert.equal(error.code, "deadline_passed");
    return true;
  });
});

test("a short deadline needs a right where the earliest goes first", async () => {
  await assert.rejects(ask("chat", "750ms"), (error) => {
    assert.ok(error instanceof OpenAI.PermissionDeniedError);
    assert.equal(error.code, "deadline_not_allowed");
    return true;
  });
  const answer = await ask("chat", "5");
  assert.ok(answer.choices[0].message.content);
});
