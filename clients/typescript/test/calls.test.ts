/** Calls over a network that does as it is told, in time that passes only when it is waited for. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { CLASSES, NotAppliedError, UnknownOutcomeError, createClient } from "@exactly/client";
import type { AttemptEvent, Outcome } from "@exactly/client";
import { Time, cut, present, problem, refused, reply, scripted, still } from "./world.js";
import type { Reply } from "./world.js";

const URL_ = "http://service.test/payments";
const UUID_V4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

async function post(replies: readonly Reply[], options = {}, sending = {}) {
  const time = new Time();
  const { options: world, sent } = still(time, replies);
  const client = createClient({ ...world, ...options });
  const outcome = await client.post(URL_, { json: { amount: 1 }, ...sending });
  return { outcome, sent, time, client };
}

function brief(outcome: Outcome): string {
  return `${outcome.kind} ${outcome.stop} ${outcome.attempts.length}`;
}

test("one key and the same bytes go out on every attempt", async () => {
  const { outcome, sent } = await post([cut(), refused(), reply(500), reply(201)]);
  assert.equal(brief(outcome), "applied done 4");
  assert.match(present(outcome.key), UUID_V4);
  assert.deepEqual(new Set(sent.map((one) => one.headers.get("idempotency-key"))), new Set([outcome.key]));
  assert.deepEqual(new Set(sent.map((one) => one.body)), new Set(['{"amount":1}']));
  assert.deepEqual(new Set(sent.map((one) => one.headers.get("content-type"))), new Set(["application/json"]));
});

test("every call has a key of its own, and a key of the caller's is respected wherever it is given", async () => {
  const time = new Time();
  const { options, sent } = still(time, [reply(200)]);
  const client = createClient(options);
  const first = await client.post(URL_);
  const second = await client.post(URL_);
  assert.notEqual(first.key, second.key);
  await client.post(URL_, { key: "mine" });
  await client.delete(URL_, { headers: { "Idempotency-Key": "yours" } });
  await client.get(URL_);
  assert.deepEqual(
    sent.map((one) => one.headers.get("idempotency-key")),
    [first.key, second.key, "mine", "yours", null],
  );
});

test("a key with other bytes is refused before anything is sent", async () => {
  const time = new Time();
  const { options, sent } = still(time, [reply(200)]);
  const client = createClient(options);
  assert.equal(brief(await client.post(URL_, { key: "mine", json: 1 })), "applied done 1");
  assert.equal(brief(await client.post(URL_, { key: "mine", json: 1 })), "applied done 1");
  assert.equal(brief(await client.post(URL_, { key: "mine", json: 2 })), "not_applied key_reused 0");
  assert.equal(brief(await client.post(`${URL_}?again`, { key: "mine", json: 1 })), "not_applied key_reused 0");
  assert.equal(sent.length, 2);
  // Elsewhere the same text is another key.
  assert.equal(brief(await client.put(URL_, { key: "mine", json: 1 })), "applied done 1");
  assert.equal(brief(await client.post("http://service.test/refunds", { key: "mine", json: 2 })), "applied done 1");
});

test("every kind of body is encoded once, also a form with its boundary", async () => {
  const form = new FormData();
  form.set("a", "1");
  form.set("file", new File(["bytes"], "f.txt", { type: "text/plain" }));
  const bodies = [
    "text",
    new Uint8Array([1, 2]),
    new Uint8Array([3]).buffer,
    new Blob(["b"]),
    new URLSearchParams({ q: "1" }),
    form,
  ];
  for (const body of bodies) {
    const { outcome, sent } = await post([cut(), cut(), reply(200)], {}, { json: undefined, body });
    assert.equal(brief(outcome), "applied done 3");
    assert.equal(new Set(sent.map((one) => one.body)).size, 1);
    assert.equal(new Set(sent.map((one) => one.headers.get("content-type"))).size, 1);
  }
});

test("a stream is sent once and says so", async () => {
  const stream = (): ReadableStream<Uint8Array> => new Blob(["once"]).stream() as ReadableStream<Uint8Array>;
  const lost = await post([cut()], {}, { json: undefined, body: stream() });
  assert.equal(brief(lost.outcome), "unknown unrepeatable 1");
  assert.ok(lost.outcome.kind === "unknown");
  assert.equal(await lost.outcome.resolve(), lost.outcome, "there is nothing to send again");
  assert.equal(lost.sent.length, 1);
  const busy = await post([reply(503)], {}, { json: undefined, body: stream() });
  assert.equal(brief(busy.outcome), "not_applied unrepeatable 1");
});

test("waits follow the schedule, and Retry-After is never cut short", async () => {
  const { outcome } = await post([reply(503), reply(503, { "retry-after": "5" }), reply(429), reply(200)]);
  assert.deepEqual(
    outcome.attempts.map((attempt) => attempt.waited),
    [0, 100, 5000, 400],
  );
  assert.equal(outcome.kind, "applied");
});

test("a Retry-After that does not fit ends the call at once and says when", async () => {
  const { outcome, time } = await post([reply(503, { "retry-after": "11" })]);
  assert.equal(brief(outcome), "not_applied deadline 1");
  assert.ok(outcome.kind === "not_applied");
  assert.equal(outcome.readyIn, 11_000);
  assert.equal(time.now(), 0);
});

test("a malformed Retry-After is as good as none, and a past date asks for no wait", async () => {
  for (const value of ["soon", "-3", "1.5", "Thu, 01 Jan 1970 00:00:00 GMT"]) {
    const { outcome } = await post([reply(503, { "retry-after": value }), reply(200)]);
    assert.equal(outcome.attempts[1]?.waited, 100, value);
  }
});

test("at the deadline the attempt in flight is aborted, also if fetch does not listen", async () => {
  const { outcome, sent, time } = await post(["hang"], { total: 3000 });
  assert.equal(brief(outcome), "unknown deadline 1");
  assert.equal(time.now(), 3000);
  assert.equal(sent[0]?.signal.aborted, true);
});

test("an attempt that says nothing is given up, and the call goes on while there is time", async () => {
  const { outcome, sent, time } = await post(["hang", reply(200)]);
  assert.equal(brief(outcome), "applied done 2");
  assert.deepEqual(
    outcome.attempts.map(({ phase, took }) => [phase, took]),
    [
      ["sent", 5000],
      ["answered", 0],
    ],
  );
  assert.equal(sent[0]?.signal.aborted, true);
  assert.equal(time.now(), 5100);
  // Whoever answers is told how long the call is waited for, and not the attempt.
  assert.deepEqual(
    sent.map((one) => one.headers.get("x-request-timeout")),
    ["10000", "4900"],
  );
  const silent = await post(["hang"]);
  assert.equal(brief(silent.outcome), "unknown deadline 2");
  assert.equal(silent.time.now(), 10_000);
  assert.match(String(silent.outcome.error), /the time for the call is over/);
});

test("every class has its time for an attempt, and so have clients and calls that say so", async () => {
  const first = async (options: object, sending = {}): Promise<number | undefined> =>
    (await post(["hang", reply(200)], options, sending)).outcome.attempts[0]?.took;
  assert.equal(await first({ class: "user-facing" }), 5000);
  assert.equal(await first({ class: "background" }), 30_000);
  assert.equal(await first({ class: "webhook" }), 30_000);
  assert.equal(await first({ class: "scheduled" }), 60_000);
  assert.equal(await first({ attempt: 700 }), 700);
  assert.equal(await first({ attempt: 700 }, { attempt: 900 }), 900);
  assert.equal(await first({ attempt: 60_000 }), 10_000, "the call's own time comes first");
});

test("a body that drips is given up with its attempt, and one that is not repeatable ends there", async () => {
  const dripping = (): Response =>
    new Response(new ReadableStream({ pull: () => new Promise(() => {}) }), { status: 200 });
  assert.equal(brief((await post([dripping, reply(200)])).outcome), "applied done 2");
  const body = new Blob(["once"]).stream() as ReadableStream<Uint8Array>;
  const once = await post(["hang"], {}, { json: undefined, body });
  assert.equal(brief(once.outcome), "unknown unrepeatable 1");
  assert.equal(once.time.now(), 5000);
});

test("an answer whose body never ends is under the same deadline", async () => {
  const dripping = (): Response =>
    new Response(new ReadableStream({ pull: () => new Promise(() => {}) }), { status: 200 });
  const { outcome, time } = await post([dripping], { total: 2000 });
  assert.equal(brief(outcome), "unknown deadline 1");
  assert.equal(time.now(), 2000);
});

test("the time left goes with every attempt, and shrinks", async () => {
  const time = new Time();
  const slow = (): Response => {
    time.pass(250.5);
    return reply(503);
  };
  const { options, sent } = still(time, [slow]);
  await createClient(options).post(URL_);
  const left = sent.map((one) => one.headers.get("x-request-timeout"));
  assert.deepEqual(left, ["10000", "9649", "9199", "8548"]);
});

test("retries end after those of the class", async () => {
  for (const [name, attempts] of [
    ["user-facing", 4],
    ["background", 6],
    ["webhook", 10],
    ["scheduled", 4],
  ] as const) {
    const { outcome, time } = await post([reply(503)], { class: name, budget: false });
    assert.equal(brief(outcome), `not_applied attempts ${attempts}`);
    assert.ok(time.now() <= 24 * 3600 * 1000);
  }
});

test("no attempt begins after the key has expired", async () => {
  const date = new Date(3000).toUTCString();
  const headers = { "idempotency-expires": date, date: new Date(0).toUTCString() };
  const { outcome, sent } = await post([reply(503, { ...headers, "retry-after": "3" })]);
  assert.equal(brief(outcome), "not_applied expired 1");
  // Dates have whole seconds, so the last one is not relied on.
  assert.equal(brief((await post([reply(503, { ...headers, "retry-after": "2" })])).outcome), "not_applied expired 1");
  const other = await post([reply(503, { ...headers, "retry-after": "1" }), reply(200)]);
  assert.equal(brief(other.outcome), "applied done 2");
  assert.equal(sent.length, 1);
});

test("a key that expired meanwhile is not sent to find out either", async () => {
  const headers = { "idempotency-expires": new Date(3000).toUTCString(), date: new Date(0).toUTCString() };
  const { outcome, sent, time } = await post([problem(409, "OUTCOME.unknown", headers)]);
  assert.equal(brief(outcome), "unknown final 1");
  assert.ok(outcome.kind === "unknown");
  time.pass(3000);
  assert.equal(brief(await outcome.resolve()), "unknown expired 0");
  assert.equal(sent.length, 1);
});

test("a key is thought to stand for a day, for retries and for finding out alike", async () => {
  const hours = 3600 * 1000;
  const patient = { ...CLASSES.background, total: 100 * hours };
  const late = reply(503, { "retry-after": String(24 * 3600) });
  assert.equal(brief((await post([late], { class: patient })).outcome), "not_applied expired 1");
  const early = reply(503, { "retry-after": String(24 * 3600 - 1) });
  assert.equal(brief((await post([early, reply(200)], { class: patient })).outcome), "applied done 2");
  const lost = await post(["hang", reply(200)], { total: 1000 });
  assert.ok(lost.outcome.kind === "unknown");
  lost.time.pass(24 * hours - 1001);
  assert.equal(brief(await lost.outcome.resolve()), "applied done 1");
  lost.time.pass(1);
  assert.equal(brief(await lost.outcome.resolve()), "unknown expired 0");
  assert.equal(lost.sent.length, 2);
});

test("the server's word on how long the key stands replaces what is thought, also when it is found out later", async () => {
  const options = { keyStands: 5000 };
  const busy = (expires: string): Response => reply(503, { "idempotency-expires": expires, "retry-after": "6" });
  assert.equal(brief((await post([reply(503, { "retry-after": "6" })], options)).outcome), "not_applied expired 1");
  for (const expires of ["never", new Date(8000).toUTCString()]) {
    assert.equal(brief((await post([busy(expires), reply(200)], options)).outcome), "applied done 2", expires);
  }
  const doubt = reply(500, { "idempotency-expires": "never", "idempotency-retryable": "false" });
  const lost = await post([doubt, reply(200)], options);
  assert.ok(lost.outcome.kind === "unknown");
  lost.time.pass(1e12);
  assert.equal(brief(await lost.outcome.resolve()), "applied done 1");
});

test("an expiry is counted from the start of the attempt that was told it", async () => {
  const date = new Date(0).toUTCString();
  const slow = (wait: string) => {
    const time = new Time();
    const busy = (): Response => {
      time.pass(2000);
      return reply(503, { "idempotency-expires": new Date(5000).toUTCString(), date, "retry-after": wait });
    };
    const { options } = still(time, [busy, reply(200)]);
    return createClient(options).post(URL_);
  };
  assert.equal(brief(await slow("1")), "applied done 2");
  assert.equal(brief(await slow("2")), "not_applied expired 1");
});

test("an attempt in flight is aborted when its key expires", async () => {
  const { outcome, sent, time } = await post(["hang"], { keyStands: 3000 });
  assert.equal(brief(outcome), "unknown expired 1");
  assert.match(String(outcome.error), /the key does not stand/);
  assert.equal(time.now(), 3000);
  assert.equal(sent[0]?.signal.aborted, true);
});

test("what needs no key is not bound to the life of one", async () => {
  const time = new Time();
  const { options } = still(time, [reply(503), reply(200)]);
  assert.equal(brief(await createClient({ ...options, keyStands: 1 }).get(URL_)), "applied done 2");
});

test("the server's word beats the code, and the code the status", async () => {
  const cases: [Response, string][] = [
    [reply(500, { "idempotency-retryable": "false" }), "unknown final 1"],
    [reply(503, { "stripe-should-retry": "false" }), "not_applied final 1"],
    [reply(409, { "stripe-should-retry": "true" }), "not_applied attempts 4"],
    [problem(503, "VALIDATION.amount"), "not_applied final 1"],
    [problem(409, "CONFLICT.idempotency.in_progress"), "unknown attempts 4"],
    [problem(409, "CONFLICT.idempotency.payload_mismatch"), "not_applied final 1"],
    [problem(409, "PROVIDER.duplicate"), "applied done 1"],
    [problem(500, "DEPENDENCY.unavailable", { "idempotency-retryable": "false" }), "unknown final 1"],
    [reply(422), "not_applied final 1"],
    [reply(425), "not_applied final 1"],
    [reply(500), "unknown attempts 4"],
    [reply(500, { "idempotency-status": "freed" }), "not_applied attempts 4"],
  ];
  for (const [answer, expected] of cases) assert.equal(brief((await post([answer])).outcome), expected);
});

test("a refusal after a lost attempt stays unknown until the key's own answer comes", async () => {
  const { outcome, sent } = await post([cut(), reply(401), reply(422, { "idempotency-status": "replayed" })]);
  assert.equal(brief(outcome), "unknown final 2");
  assert.ok(outcome.kind === "unknown");
  const resolved = await outcome.resolve();
  assert.equal(brief(resolved), "not_applied final 1");
  assert.deepEqual(new Set(sent.map((one) => one.headers.get("idempotency-key"))), new Set([outcome.key]));
});

test("resolving has fresh time, and keeps the doubt", async () => {
  const { outcome, time } = await post(["hang", reply(503)], { total: 1000 });
  assert.ok(outcome.kind === "unknown");
  assert.equal(time.now(), 1000);
  const resolved = await outcome.resolve();
  assert.equal(brief(resolved), "unknown attempts 4");
  assert.ok(resolved.kind === "unknown");
});

test("an answer that was stored is applied even if its end is missing", async () => {
  const headers = { "idempotency-status": "stored", "content-type": "text/plain" };
  const torn = (): Response => {
    let pulls = 0;
    const pull = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
      pulls += 1;
      if (pulls === 1) controller.enqueue(new TextEncoder().encode("half"));
      else controller.error(new TypeError("terminated"));
    };
    return new Response(new ReadableStream({ pull }), { status: 201, headers });
  };
  const { outcome } = await post([torn, refused()]);
  assert.equal(brief(outcome), "applied attempts 4");
  assert.ok(outcome.kind === "applied");
  assert.deepEqual([outcome.answer.status, outcome.answer.truncated, outcome.answer.text()], [201, true, "half"]);
  const whole = await post([torn, reply(201, { "idempotency-status": "replayed" }, "half and half")]);
  assert.ok(whole.outcome.kind === "applied");
  assert.deepEqual([whole.outcome.answer.truncated, whole.outcome.answer.text()], [false, "half and half"]);
});

test("an answer over the limit is truncated and says so", async () => {
  const { outcome } = await post([reply(200, {}, "x".repeat(100))], { answerMax: 10 });
  assert.ok(outcome.kind === "applied");
  assert.deepEqual([outcome.answer.truncated, outcome.answer.bytes().length], [true, 10]);
  const exact = await post([reply(200, {}, "x".repeat(10))], { answerMax: 10 });
  assert.ok(exact.outcome.kind === "applied" && !exact.outcome.answer.truncated);
});

test("a refusal whose explanation is too long to be read may say that it had happened", async () => {
  const json = { "content-type": "application/problem+json" };
  const explained = (length: number): string => JSON.stringify({ detail: "x".repeat(length), code: "VALIDATION.x" });
  const whole = explained(64 * 1024 - explained(0).length);
  assert.equal(brief((await post([reply(422, json, whole)])).outcome), "not_applied final 1");
  const long = await post([reply(422, json, `${whole} `)]);
  assert.equal(brief(long.outcome), "unknown attempts 4");
  assert.deepEqual(
    long.outcome.attempts.map(({ phase, status, code }) => [phase, status, code]).at(0),
    ["sent", 422, undefined],
  );
  assert.equal(brief((await post([reply(422, json, explained(9))], { answerMax: 9 })).outcome), "unknown attempts 4");
  // The key's own answer may still be one that says it had happened.
  const kept = { ...json, "idempotency-status": "stored" };
  assert.equal(brief((await post([reply(409, kept, `${whole} `)])).outcome), "unknown attempts 4");
  const page = reply(422, { "content-type": "text/html" }, `${whole} `);
  assert.equal(brief((await post([page], { answerMax: 9 })).outcome), "not_applied final 1");
  assert.equal(brief((await post([reply(201, json, `${whole} `)], { answerMax: 9 })).outcome), "applied done 1");
});

test("an abort before the first byte is not applied, in flight it is unknown, and it cuts a wait short", async () => {
  const early = await post([reply(200)], {}, { signal: AbortSignal.abort() });
  assert.equal(brief(early.outcome), "not_applied aborted 0");
  const controller = new AbortController();
  const hanging: Reply = () => {
    controller.abort();
    return new Promise(() => {});
  };
  const flying = await post([hanging], {}, { signal: controller.signal });
  assert.equal(brief(flying.outcome), "unknown aborted 1");
  const patient = new AbortController();
  const busy: Reply = () => {
    setImmediate(() => patient.abort());
    return reply(503, { "retry-after": "9" });
  };
  const waiting = await post([busy], {}, { signal: patient.signal });
  assert.equal(brief(waiting.outcome), "not_applied aborted 1");
  assert.ok(waiting.time.now() < 9000);
});

test("an abort that comes with the answer does not hide it", async () => {
  const controller = new AbortController();
  const late: Reply = () => {
    const answer = reply(200);
    setImmediate(() => controller.abort());
    return answer;
  };
  assert.equal((await post([late], {}, { signal: controller.signal })).outcome.kind, "applied");
});

test("a thousand calls to a dead host are at most 1210 attempts", async () => {
  const time = new Time();
  const { options, sent } = still(time, [refused()]);
  const client = createClient(options);
  const outcomes = await Promise.all(Array.from({ length: 1000 }, () => client.post(URL_)));
  assert.ok(sent.length <= 1000 * 1.2 + 10, String(sent.length));
  assert.ok(sent.length > 1000);
  assert.ok(outcomes.every((outcome) => outcome.kind === "not_applied"));
  assert.ok(outcomes.some((outcome) => outcome.stop === "budget"));
});

test("redirects keep the key at home and lose every secret elsewhere", async () => {
  const headers = { authorization: "secret", "x-api-key": "secret", "x-other": "kept" };
  const moved = (location: string, status = 307): Response => reply(status, { location });
  const home = await post([moved("/v2"), reply(200)], { sensitive: ["X-Api-Key"] }, { headers });
  assert.deepEqual(home.sent.map((one) => [one.url, one.method, one.body]).at(1), [
    "http://service.test/v2",
    "POST",
    '{"amount":1}',
  ]);
  assert.equal(home.sent[1]?.headers.get("idempotency-key"), home.outcome.key);
  assert.equal(home.sent[1]?.headers.get("authorization"), "secret");
  assert.equal(home.sent[0]?.redirect, "manual");
  const away = await post([moved("http://other.test/"), reply(200)], { sensitive: ["X-Api-Key"] }, { headers });
  const there = present(away.sent[1]).headers;
  assert.deepEqual(
    ["idempotency-key", "authorization", "x-api-key", "x-other"].map((name) => there.get(name)),
    [null, null, null, "kept"],
  );
});

test("what was sent to another origin without the key is not sent again, what never left is", async () => {
  const away = reply(308, { location: "http://other.test/" });
  const lost = await post([away, cut()]);
  assert.equal(brief(lost.outcome), "unknown unrepeatable 1");
  assert.ok(lost.outcome.kind === "unknown");
  assert.equal(await lost.outcome.resolve(), lost.outcome);
  assert.equal(lost.sent.length, 2);
  assert.equal(brief((await post([away, refused(), reply(200)])).outcome), "applied done 2");
});

test("what may have happened before is not sent on to where its key must not go", async () => {
  const away = reply(307, { location: "http://other.test/" });
  const home = reply(307, { location: "/v2" });
  const lost = await post(["hang", away, home, away, home, reply(200)], { total: 1000 });
  assert.ok(lost.outcome.kind === "unknown");
  assert.equal(brief(await lost.outcome.resolve()), "unknown final 1");
  assert.equal(brief(await lost.outcome.resolve()), "unknown final 1", "nor by a detour");
  assert.equal(brief(await lost.outcome.resolve()), "applied done 1", "but on the same origin");
  assert.deepEqual(
    lost.sent.map((one) => new URL(one.url).origin),
    Array<string>(6).fill("http://service.test"),
  );
  assert.deepEqual(new Set(lost.sent.map((one) => one.headers.get("idempotency-key"))), new Set([lost.outcome.key]));
});

test("redirects that change the method, lose encryption or go in circles are the answer", async () => {
  const at = (status: number, location: string): Response => reply(status, { location });
  assert.equal(brief((await post([at(303, "/done")])).outcome), "applied done 1");
  assert.equal(brief((await post([at(302, "/done")])).outcome), "unknown final 1");
  const circle = await post([at(307, "/again")]);
  assert.equal(brief(circle.outcome), "not_applied final 1");
  assert.equal(circle.sent.length, 6);
  const { fetch, sent } = scripted([at(307, "http://service.test/")]);
  const outcome = await createClient({ fetch }).post("https://service.test/");
  assert.equal(brief(outcome), "not_applied final 1");
  assert.equal(sent.length, 1);
});

test("a redirect that the browser hides is unknown and not repeated", async () => {
  const hidden: Reply = () => Object.defineProperty(Response.error(), "type", { value: "opaqueredirect" });
  assert.equal(brief((await post([hidden])).outcome), "unknown redirect 1");
});

test("reads follow redirects and are repeated without a key", async () => {
  const time = new Time();
  const { options, sent } = still(time, [cut(), reply(200, {}, "read")]);
  const outcome = await createClient(options).get(URL_);
  assert.equal(brief(outcome), "applied done 2");
  assert.equal(outcome.key, undefined);
  assert.equal(sent[0]?.redirect, "follow");
});

test("exceptions are there for those who like them", async () => {
  const applied = (await post([reply(200)])).outcome;
  assert.equal(applied.orThrow(), applied);
  const refusedCall = (await post([problem(422, "VALIDATION.amount")])).outcome;
  assert.throws(
    () => refusedCall.orThrow(),
    (error) => error instanceof NotAppliedError && /fix the input/.test(error.message),
  );
  const lost = (await post([cut()])).outcome;
  assert.throws(
    () => lost.orThrow(),
    (error) => error instanceof UnknownOutcomeError && error.outcome === lost,
  );
});

test("mistakes of the caller are rejected and send nothing", async () => {
  const { fetch, sent } = scripted([reply(200)]);
  const client = createClient({ fetch });
  const mistakes = [
    client.post(URL_, { json: 1, body: "2" }),
    client.post(URL_, { json: () => 1 }),
    client.get(URL_, { body: "x" }),
    client.post("not a url"),
    client.post("http://user:password@service.test/"),
    client.send("TRACE", URL_),
    ...["", " padded ", "ü", "a\nb", "x".repeat(256)].map((key) => client.post(URL_, { key })),
  ];
  for (const mistake of mistakes) await assert.rejects(mistake, TypeError);
  assert.equal(sent.length, 0);
});

test("watchers see every attempt and never a key, and cannot break anything", async () => {
  const events: AttemptEvent[] = [];
  const onAttempt = (event: AttemptEvent): void => {
    events.push(event);
    throw new Error("a watcher fails");
  };
  const { outcome } = await post(
    [cut(), problem(503, "TRANSIENT.x"), reply(200)],
    { onAttempt },
    { key: "secret-key" },
  );
  assert.equal(outcome.kind, "applied");
  assert.ok(!JSON.stringify(events).includes("secret-key"));
  // The same digits that the gateway shows: echo -n secret-key | sha256sum
  assert.deepEqual(new Set(events.map((event) => event.keyDigest)), new Set(["85dbe15d75ef"]));
  assert.deepEqual(
    events.map(({ attempt, phase, status, code, delay, stop }) => [attempt, phase, status, code, delay, stop]),
    [
      [1, "sent", undefined, undefined, 100, undefined],
      [2, "answered", 503, "TRANSIENT.x", 200, undefined],
      [3, "answered", 200, undefined, undefined, "done"],
    ],
  );
});

test("who was called without the key is not called again, though the way ended further on", async () => {
  const away = reply(307, { location: "http://other.test/" });
  const further = reply(307, { location: "http://third.test/" });
  const { outcome, sent } = await post([away, further, refused(), reply(200)]);
  assert.equal(brief(outcome), "not_applied unrepeatable 1");
  assert.equal(sent.length, 3);
});

test("once an attempt may have happened, no later one goes where the key must not", async () => {
  const away = reply(307, { location: "http://other.test/" });
  const { outcome, sent } = await post([cut(), away, reply(200)]);
  assert.equal(brief(outcome), "unknown final 2");
  assert.equal(sent.length, 2);
});

test("a key is spelled so that every server reads the same one", async () => {
  const { options, sent } = still(new Time(), [reply(200)]);
  const client = createClient(options);
  for (const key of ["plain-1", "two words", 'a"b\\c', "a,b"]) {
    assert.equal((await client.post(URL_, { key })).key, key);
  }
  const quoted = await client.post(URL_, { headers: { "Idempotency-Key": '"a\\"b"' } });
  assert.equal(quoted.key, 'a"b');
  assert.deepEqual(
    sent.map((one) => one.headers.get("idempotency-key")),
    ["plain-1", '"two words"', '"a\\"b\\\\c"', '"a,b"', '"a\\"b"'],
  );
});

test("only http and https are called", async () => {
  for (const url of ["data:,x", "ftp://files.test/", "file:///etc/hosts"]) {
    const { options, sent } = still(new Time(), [reply(200)]);
    await assert.rejects(createClient(options).post(url), TypeError, url);
    assert.equal(sent.length, 0);
  }
});

test("of two waits that are asked for the longer counts", async () => {
  const { outcome } = await post([reply(503, { "retry-after": "0, 60" }), reply(200)]);
  assert.equal(brief(outcome), "not_applied deadline 1");
});
