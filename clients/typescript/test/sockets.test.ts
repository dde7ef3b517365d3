/** Real sockets: a server that breaks off after every single byte, of the request and of the answer. */

import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { after, before, test } from "node:test";
import { createClient } from "@exactly/client";
import type { ClientOptions, Outcome, Policy } from "@exactly/client";

/** What the server does with the next connections; after the last one it behaves. */
interface Cut {
  /** Breaks off when this many bytes of the request are there. */
  readonly request?: number;
  /** Breaks off behind this many bytes of the answer. */
  readonly answer?: number;
  /** With a reset instead of a clean end. */
  readonly reset?: boolean;
}

const ONCE: Policy = {
  class: "once",
  retries: 0,
  total: 5000,
  attempt: 5000,
  schedule: { kind: "delays", delays: [] },
};
const TWICE: Policy = { ...ONCE, class: "twice", retries: 2, schedule: { kind: "delays", delays: [1, 1] } };
const KEY = "0123456789";
const BODY = '{"amount":12}';

const ANSWERS = {
  stored: "HTTP/1.1 201 Created\r\nIdempotency-Status: stored\r\nContent-Length: 7\r\n\r\ncreated",
  chunked: "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ncrea\r\n3\r\nted\r\n0\r\n\r\n",
  plain: "HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\ncreated",
  empty: "HTTP/1.1 204 No Content\r\nIdempotency-Status: stored\r\n\r\n",
  busy: "HTTP/1.1 503 Busy\r\nIdempotency-Status: freed\r\nContent-Length: 4\r\n\r\nbusy",
  invalid: "HTTP/1.1 422 Invalid\r\nIdempotency-Status: stored\r\nContent-Length: 2\r\n\r\nno",
};

/** Counts effects by key, and gives the first answer again. */
class Cutter {
  readonly server: Server;
  readonly sockets = new Set<Socket>();
  effects = new Set<string>();
  /** Whole requests, and connections on which anything came. */
  requests = 0;
  arrivals = 0;
  plan: Cut[] = [];
  answer = ANSWERS.plain;
  url = "";

  constructor() {
    this.server = createServer((socket) => this.#serve(socket));
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  forget(): void {
    this.effects = new Set();
    this.requests = 0;
    this.arrivals = 0;
  }

  /** So that every connection is one of the plan, and none is left over from before. */
  async hangUp(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    // A few turns more, for the other side to notice.
    for (let turns = 0; this.sockets.size > 0 || turns < 3; turns += 1)
      await new Promise((resolve) => setImmediate(resolve));
  }

  #serve(socket: Socket): void {
    this.sockets.add(socket);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("error", () => {});
    const cut = this.plan.shift() ?? {};
    let received = "";
    if (cut.request === 0) return this.#break(socket, cut);
    socket.on("data", (bytes) => {
      if (received === "") this.arrivals += 1;
      received += bytes.toString("latin1");
      const whole = /^[^]*?\r\n\r\n/.exec(received);
      const length = Number(/content-length: (\d+)/i.exec(whole?.[0] ?? "")?.[1] ?? 0);
      const complete = whole !== null && received.length >= whole[0].length + length;
      if (cut.request !== undefined && received.length >= cut.request) return this.#break(socket, cut);
      if (!complete) return;
      this.requests += 1;
      const key = /idempotency-key: (.*)\r\n/i.exec(received)?.[1];
      received = "";
      if (key !== undefined && /^HTTP\/1.1 2/.test(this.answer)) this.effects.add(key);
      if (cut.answer === undefined) return void socket.write(this.answer);
      socket.write(this.answer.slice(0, cut.answer), () => this.#break(socket, cut));
    });
  }

  #break(socket: Socket, cut: Cut): void {
    if (cut.reset === true) socket.resetAndDestroy();
    else socket.end(() => socket.destroy());
  }
}

const cutter = new Cutter();

before(() => cutter.listen());
after(() => {
  for (const socket of cutter.sockets) socket.destroy();
  cutter.server.close();
});

async function send(plan: readonly Cut[], policy: Policy, options: ClientOptions = {}): Promise<Outcome> {
  cutter.forget();
  cutter.plan = [...plan];
  await cutter.hangUp();
  const client = createClient({ class: policy, budget: false, timeoutHeader: false, ...options });
  return client.post(cutter.url, { key: KEY, body: BODY });
}

/** As many bytes as the request has, learned from one that went well. */
async function requestLength(): Promise<number> {
  let length = 0;
  const measure = (socket: Socket): void => void socket.on("data", (bytes) => (length += bytes.length));
  cutter.server.once("connection", measure);
  assert.equal((await send([], ONCE)).kind, "applied");
  assert.ok(length > 100);
  return length;
}

function checkTruth(outcome: Outcome, where: string): void {
  const happened = cutter.effects.size === 1;
  if (outcome.kind === "applied") assert.ok(happened, `applied without an effect: ${where}`);
  if (outcome.kind === "not_applied") assert.ok(!happened, `not applied with an effect: ${where}`);
}

test("a request that is cut after any byte is never called applied, and the cut is not called certain", async () => {
  cutter.answer = ANSWERS.plain;
  const length = await requestLength();
  for (const reset of [false, true])
    for (let request = 0; request < length; request += 1) {
      const outcome = await send([{ request, reset }], ONCE);
      const where = `request cut after ${request}, reset ${reset}`;
      checkTruth(outcome, where);
      assert.equal(cutter.effects.size, 0, where);
      // A reset can come while still connecting, and then it is certain that nothing left.
      const early = request === 0 && reset && outcome.attempts[0]?.phase === "not_sent";
      if (!early) assert.equal(`${outcome.kind} ${outcome.attempts[0]?.phase}`, "unknown sent", where);
    }
});

test("an answer that is cut after any byte is never taken for another one", async () => {
  for (const [name, answer] of Object.entries(ANSWERS)) {
    cutter.answer = answer;
    const head = answer.indexOf("\r\n\r\n") + 4;
    for (const reset of [false, true])
      for (let sent = 0; sent <= answer.length; sent += 1) {
        const outcome = await send([{ answer: sent, reset }], ONCE);
        const where = `${name} answer cut after ${sent} of ${answer.length}, reset ${reset}: ${outcome.kind}`;
        checkTruth(outcome, where);
        if (reset) continue;
        if (sent === answer.length)
          assert.equal(outcome.kind, /^HTTP\/1.1 2/.test(answer) ? "applied" : "not_applied", where);
        else if (sent >= head && name === "stored") {
          assert.ok(outcome.kind === "applied" && outcome.answer.truncated, where);
        } else assert.equal(outcome.kind, "unknown", where);
      }
  }
});

test("with retries, whatever is cut ends applied, with one effect and the whole answer", async () => {
  for (const name of ["stored", "chunked", "plain", "empty"] as const) {
    cutter.answer = ANSWERS[name];
    const length = await requestLength();
    const cuts: Cut[] = [];
    // Where a request is cut has nothing to do with the answer that it does not get.
    for (let request = 0; name === "stored" && request < length; request += 1)
      cuts.push({ request, reset: request % 2 === 0 });
    for (let answer = 0; answer < cutter.answer.length; answer += 1) cuts.push({ answer, reset: answer % 2 === 0 });
    for (const cut of cuts) {
      const outcome = await send([cut, { answer: 3 }], TWICE);
      const where = `${name} ${JSON.stringify(cut)}`;
      assert.ok(outcome.kind === "applied" && !outcome.answer.truncated, where);
      assert.equal(outcome.answer.text(), name === "empty" ? "" : "created", where);
      assert.equal(cutter.effects.size, 1, where);
    }
  }
});

test("nobody listening is certain, and so is a name that nobody has", async () => {
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  for (const url of [`http://127.0.0.1:${port}/`, `http://localhost:${port}/`, "http://nobody.invalid/"]) {
    const outcome = await createClient({ class: ONCE }).post(url, { body: BODY });
    assert.equal(`${outcome.kind} ${outcome.attempts[0]?.phase}`, "not_applied not_sent", url);
  }
});

test("a handshake that fails is not called certain", async () => {
  await cutter.hangUp();
  cutter.plan = [{ request: 1 }];
  const outcome = await createClient({ class: ONCE }).post(cutter.url.replace("http:", "https:"), { body: BODY });
  assert.equal(`${outcome.kind} ${outcome.attempts[0]?.phase}`, "unknown sent");
});

test("fetch itself sends a request once, also on a kept connection that breaks", async () => {
  cutter.answer = ANSWERS.plain;
  for (const reset of [false, true]) {
    cutter.forget();
    await cutter.hangUp();
    const client = createClient({ class: ONCE, budget: false });
    assert.equal((await client.post(cutter.url, { body: BODY })).kind, "applied");
    const [kept] = cutter.sockets;
    assert.ok(kept !== undefined);
    // The server gives up the kept connection as soon as the next request is on it, and would take it on another one.
    kept.removeAllListeners("data");
    let arrived = 0;
    kept.on("data", () => {
      arrived += 1;
      if (reset) kept.resetAndDestroy();
      else kept.destroy();
    });
    // The pool takes a fresh connection while it has not noticed that the kept one is idle.
    let outcome = await client.post(cutter.url, { body: BODY });
    let applied = 1;
    for (; arrived === 0 && applied < 100; applied += 1) outcome = await client.post(cutter.url, { body: BODY });
    assert.equal(outcome.kind, "unknown");
    assert.equal(arrived, 1);
    assert.equal(cutter.requests, applied, "what was on the kept connection was not taken on another one");
  }
});

test("an answer that drips is under the deadline of the whole call", async () => {
  let drip: NodeJS.Timeout | undefined;
  const dripping = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => {
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
      drip = setInterval(() => socket.write("x"), 20);
    });
    socket.on("close", () => clearInterval(drip));
  });
  await new Promise<void>((resolve) => dripping.listen(0, "127.0.0.1", resolve));
  const { port } = dripping.address() as AddressInfo;
  const outcome = await createClient({ total: 300 }).post(`http://127.0.0.1:${port}/`, { body: BODY });
  assert.equal(`${outcome.kind} ${outcome.stop} ${outcome.attempts.length}`, "unknown deadline 1");
  await new Promise((resolve) => dripping.close(resolve));
});
