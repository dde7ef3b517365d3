/** The client against the real gateway: effects are counted where they happen. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createClient } from "@exactly/client";
import type { AttemptEvent, Outcome, Policy } from "@exactly/client";
import { BadLine, Gateway, PaymentService } from "./service.js";
import type { Fault, Payment } from "./service.js";

const service = new PaymentService();
let gateway: Gateway;
let line: BadLine;

before(async () => {
  await service.listen();
  gateway = await Gateway.start(service.url);
  line = new BadLine(gateway.url);
  await line.listen();
});

after(async () => {
  line.close();
  await gateway.stop();
  service.close();
});

/** Enough attempts for a very bad line, and no long waits. */
const STUBBORN: Policy = {
  class: "stubborn",
  retries: 8,
  total: 20_000,
  attempt: 20_000,
  schedule: { kind: "doubling", base: 5, jitter: "full", cap: 100 },
};

function pay(payment: Payment, options = {}, sending = {}): Promise<Outcome> {
  const client = createClient({ class: STUBBORN, budget: false, ...options });
  return client.post(`${line.url}/payments`, { json: payment, ...sending });
}

test("a busy service is asked again with the same key, and pays once", async () => {
  const outcome = await pay({ order: "busy", busy: 3 });
  assert.equal(outcome.kind, "applied");
  assert.deepEqual(
    outcome.attempts.map((attempt) => attempt.status),
    [503, 503, 503, 201],
  );
  assert.equal(service.paid("busy"), 1);
  assert.deepEqual(service.keys.get("busy"), new Set([outcome.key]));
});

test("a lost answer is asked for again and comes as it was, with one effect", async () => {
  const faults: Fault[] = [{ answer: 0 }, { answer: 20 }];
  line.fault = () => faults.shift();
  await line.hangUp();
  const outcome = await pay({ order: "lost" });
  assert.ok(outcome.kind === "applied");
  assert.equal(outcome.attempts.length, 3);
  assert.deepEqual(outcome.answer.json(), { order: "lost", paid: 1 });
  assert.equal(outcome.answer.heard.key, "replayed");
  assert.equal(service.paid("lost"), 1);
});

test("a time-out is unknown, and resolving it brings the answer of the one effect", async () => {
  const outcome = await pay({ order: "slow", slow: 400 }, { total: 150 });
  assert.equal(`${outcome.kind} ${outcome.stop}`, "unknown deadline");
  assert.ok(outcome.kind === "unknown");
  const resolved = await outcome.resolve({ total: 5000 });
  assert.ok(resolved.kind === "applied");
  assert.deepEqual(resolved.answer.json(), { order: "slow", paid: 1 });
  assert.equal(resolved.key, outcome.key);
});

test("a doubt between gateway and service is told as one, and ends by the gateway's own probe", async () => {
  let outcome = await pay({ order: "doubt", drop: true });
  assert.equal(`${outcome.kind} ${outcome.answer?.heard.code}`, "unknown OUTCOME.unknown");
  assert.equal(outcome.hint, "find out before doing it again");
  for (let tries = 0; outcome.kind === "unknown" && tries < 100; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    outcome = await outcome.resolve();
  }
  assert.equal(outcome.kind, "applied");
  assert.equal(service.paid("doubt"), 1);
});

test("the same key for another payment is refused by the gateway too", async () => {
  const first = await pay({ order: "mine" }, {}, { key: "a-key-of-mine" });
  assert.equal(first.kind, "applied");
  const other = await pay({ order: "other" }, {}, { key: "a-key-of-mine" });
  assert.equal(`${other.kind} ${other.answer?.heard.code}`, "not_applied CONFLICT.idempotency.payload_mismatch");
  assert.equal(service.paid("other"), 0);
});

test("a redirect is followed with its key", async () => {
  const client = createClient({ budget: false });
  const outcome = await client.post(`${gateway.url}/moved`, { json: { order: "moved" } });
  assert.equal(outcome.kind, "applied");
  assert.deepEqual(service.keys.get("moved"), new Set([outcome.key]));
  assert.equal(service.paid("moved"), 1);
});

test("over a line on which most connections break, no outcome is wrong and every payment is made once", async () => {
  // The same faults in every run.
  let state = 20_260_131;
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
  line.fault = () => {
    const dice = random();
    if (dice < 0.35) return { request: Math.floor(random() * 350) };
    return dice < 0.7 ? { answer: Math.floor(random() * 350) } : undefined;
  };
  const events: AttemptEvent[] = [];
  const impatient: Policy = { ...STUBBORN, retries: 2 };
  const orders = Array.from({ length: 150 }, (_, index) => `storm-${index}`);
  const outcomes = await Promise.all(
    orders.map((order, index) =>
      pay(
        { order, busy: index % 3, slow: index % 7 },
        { class: impatient, onAttempt: (event: AttemptEvent) => events.push(event) },
      ),
    ),
  );
  outcomes.forEach((outcome, index) => {
    const paid = service.paid(orders[index] ?? "");
    if (outcome.kind === "applied") assert.equal(paid, 1);
    else if (outcome.kind === "not_applied") assert.equal(paid, 0);
    else assert.ok(paid <= 1);
  });
  const kinds = outcomes.map((outcome) => outcome.kind);
  assert.ok(kinds.includes("applied") && kinds.includes("unknown"), "the line is neither too good nor too bad");
  assert.ok(events.some((event) => event.phase === "sent"));
  line.fault = () => undefined;
  for (const outcome of outcomes) {
    const settled = outcome.kind === "unknown" ? await outcome.resolve() : outcome;
    assert.ok(settled.kind === "applied" || outcome.kind === "not_applied", `${settled.kind} ${settled.stop}`);
  }
  for (const [index, outcome] of outcomes.entries()) {
    assert.equal(service.paid(orders[index] ?? ""), outcome.kind === "not_applied" ? 0 : 1);
  }
});
