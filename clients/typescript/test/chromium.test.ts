/** The client in a browser, against the real gateway: double clicks, reloads, tabs and cut connections. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import type { Browser, BrowserContext, Page } from "playwright-core";
import type { Client, Outcome } from "@exactly/client";
import { BadLine, Gateway, PaymentService } from "./service.js";
import type { Payment } from "./service.js";

const CHROMIUM_VARIABLE = "EXACTLY_CHROMIUM";
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const STORES = ["indexeddb", "local"] as const;
type StoreName = (typeof STORES)[number];

/** What the page offers. */
interface Exposed {
  client: Client;
  post(url: string, payment: Payment, options?: object): Promise<Told>;
  told(outcome: Outcome): Told;
  lost: Outcome | undefined;
}
declare global {
  var exactly: Exposed;
}

/** An outcome without its functions, as it can leave the page. */
interface Told {
  readonly kind: Outcome["kind"];
  readonly stop: string;
  readonly key: string | undefined;
  readonly phases: readonly string[];
  readonly word: string | undefined;
  readonly expires: number | "never" | undefined;
  readonly body: string | undefined;
}

const PAGE = `<!doctype html><title>shop</title><button>pay</button><script type="module">
import { IndexedDbStore, LocalStore, createClient } from "/client/index.js";
const store = new URLSearchParams(location.search).get("store");
const storage = store === "local" ? new LocalStore() : new IndexedDbStore();
const schedule = { kind: "doubling", base: 20, jitter: "full", cap: 200 };
const policy = { class: "page", retries: 3, total: 8000, attempt: 8000, schedule };
const client = createClient({ storage, budget: false, class: policy });
const told = (outcome) => ({
  kind: outcome.kind, stop: outcome.stop, key: outcome.key,
  phases: outcome.attempts.map((attempt) => attempt.phase),
  word: outcome.answer?.heard.key, expires: outcome.answer?.heard.expires, body: outcome.answer?.text(),
});
const post = async (url, payment, options = {}) => {
  const outcome = await client.post(url, { json: payment, ...options });
  globalThis.exactly.lost = outcome;
  return told(outcome);
};
globalThis.exactly = { client, post, told };
</script>`;

/** Serves the page and the client, and passes the rest on to the gateway, so that there is also a shop of one origin. */
class Shop {
  readonly #server: Server;
  url = "";

  constructor(readonly behind: () => string) {
    this.#server = createServer((request, response) => this.#serve(request, response));
  }

  async listen(): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url?.split("?")[0] ?? "/";
    const script = /^\/client\/([a-z/]+\.js)$/.exec(path)?.[1];
    response.setHeader("cache-control", "no-store");
    if (path === "/shop") return void response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
    if (script !== undefined) {
      const text = readFileSync(new URL(`../src/${script}`, import.meta.url));
      return void response.writeHead(200, { "content-type": "text/javascript" }).end(text);
    }
    if (path.startsWith("/payments") || path === "/moved") return this.#pass(request, response);
    response.writeHead(404).end();
  }

  #pass(request: IncomingMessage, response: ServerResponse): void {
    const { method, headers, url } = request;
    const onward = httpRequest(`${this.behind()}${url ?? ""}`, { method: method ?? "GET", headers, agent: false });
    // A connection that breaks on one side breaks on the other.
    onward.on("error", () => response.destroy());
    onward.on("response", (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.on("error", () => response.destroy());
      answer.pipe(response);
    });
    response.on("close", () => onward.destroy());
    request.pipe(onward);
  }
}

const service = new PaymentService();
let gateway: Gateway;
let line: BadLine;
let browser: Browser;
const shop = new Shop(() => line.url);

before(async () => {
  const executablePath = process.env[CHROMIUM_VARIABLE];
  assert.ok(executablePath !== undefined, `${CHROMIUM_VARIABLE} names the browser; cargo xtask test sets it`);
  await service.listen();
  gateway = await Gateway.start(service.url);
  line = new BadLine(gateway.url);
  await line.listen();
  await shop.listen();
  service.allowed = shop.url;
  browser = await chromium.launch({ executablePath, args: FLAGS });
});

after(async () => {
  await browser?.close();
  shop.close();
  line.close();
  await gateway.stop();
  service.close();
});

async function open(context: BrowserContext, store: StoreName): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${shop.url}/shop?store=${store}`);
  await page.waitForFunction(() => globalThis.exactly !== undefined);
  return page;
}

async function withPage(store: StoreName, run: (page: Page, context: BrowserContext) => Promise<void>): Promise<void> {
  const context = await browser.newContext();
  try {
    await run(await open(context, store), context);
  } finally {
    line.fault = () => undefined;
    await context.close();
  }
}

/** Both origins that a page can ask: its own, and the gateway's. */
const origins = (): readonly (readonly [string, string])[] => [
  ["the same origin", `${shop.url}/payments`],
  ["another origin", `${line.url}/payments`],
];

let number = 0;
/** An order that no other test pays. */
function order(name: string): string {
  number += 1;
  return `${name}-${number}`;
}

/** Waits for what the page sets off, and not for ever. */
async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; !condition(); tries += 1) {
    assert.ok(tries < 6000, "the service was not asked within half a minute");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test("a page sees what the gateway says, on its own origin and over CORS", async () => {
  await withPage("indexeddb", async (page) => {
    for (const [where, url] of origins()) {
      const payment = { order: order("plain") };
      const told = await page.evaluate(([at, what]) => exactly.post(at, what), [url, payment] as const);
      assert.equal(`${told.kind} ${told.word}`, "applied stored", where);
      assert.ok(typeof told.expires === "number" && told.expires > 23 * 3600 * 1000, where);
      assert.equal(service.paid(payment.order), 1);
      assert.deepEqual(service.keys.get(payment.order), new Set([told.key]));
    }
  });
});

test("a busy service is asked again with the same key, on its own origin and over CORS, and pays once", async () => {
  await withPage("indexeddb", async (page) => {
    for (const [where, url] of origins()) {
      const payment = { order: order("retry"), busy: 1 };
      const told = await page.evaluate(([at, what]) => exactly.post(at, what), [url, payment] as const);
      assert.equal(told.kind, "applied", where);
      assert.equal(service.paid(payment.order), 1);
      assert.equal(service.keys.get(payment.order)?.size, 1);
    }
  });
});

for (const store of STORES) {
  describe(`with ${store}`, () => {
    test("a double click pays once", async () => {
      await withPage(store, async (page) => {
        const payment = { order: order("double"), slow: 200 };
        const url = `${shop.url}/payments`;
        await page.evaluate(
          ([at, what]) => {
            const clicks: Promise<Outcome>[] = [];
            Object.assign(globalThis, { clicks });
            document.querySelector("button")?.addEventListener("click", () => {
              clicks.push(exactly.client.operation(`pay-${what.order}`).post(at, { json: what }));
            });
          },
          [url, payment] as const,
        );
        await page.dblclick("button");
        const all = await page.evaluate(async () => {
          const { clicks } = globalThis as unknown as { clicks: Promise<Outcome>[] };
          return (await Promise.all(clicks)).map((outcome) => exactly.told(outcome));
        });
        assert.deepEqual(
          all.map((told) => told.kind),
          ["applied", "applied"],
        );
        assert.equal(service.paid(payment.order), 1);
        assert.equal(service.keys.get(payment.order)?.size, 1);
      });
    });

    test("a reload in the middle sends the same key and pays once", async () => {
      await withPage(store, async (page) => {
        for (const [where, url] of origins()) {
          const payment = { order: order("reload"), slow: 300 };
          const operation = `pay-${payment.order}`;
          await page.evaluate(([at, what, name]) => void exactly.post(at, what, { operation: name }), [
            url,
            payment,
            operation,
          ] as const);
          await until(() => service.paid(payment.order) === 1);
          await page.reload();
          await page.waitForFunction(() => globalThis.exactly !== undefined);
          const told = await page.evaluate(([at, what, name]) => exactly.post(at, what, { operation: name }), [
            url,
            payment,
            operation,
          ] as const);
          assert.equal(told.kind, "applied", where);
          assert.deepEqual(JSON.parse(told.body ?? ""), { order: payment.order, paid: 1 });
          assert.deepEqual(service.keys.get(payment.order), new Set([told.key]));
          assert.equal(service.paid(payment.order), 1, where);
        }
      });
    });

    test("two tabs that pay at once pay once", async () => {
      await withPage(store, async (first, context) => {
        const tabs = [first, await open(context, store), await open(context, store)];
        for (let round = 0; round < 5; round += 1) {
          const payment = { order: order("tabs"), slow: 100 };
          const all = await Promise.all(
            tabs.map((tab) =>
              tab.evaluate(
                ([at, what]) =>
                  exactly.client
                    .operation(`pay-${what.order}`, { remember: true })
                    .post(at, { json: what })
                    .then((outcome) => exactly.told(outcome)),
                [`${shop.url}/payments`, payment] as const,
              ),
            ),
          );
          assert.deepEqual(
            all.map((told) => told.kind),
            ["applied", "applied", "applied"],
          );
          assert.equal(new Set(all.map((told) => told.key)).size, 1);
          assert.equal(service.paid(payment.order), 1);
        }
      });
    });

    test("a settled operation leaves no key behind, and other bytes are refused before that", async () => {
      await withPage(store, async (page) => {
        const url = `${shop.url}/payments`;
        const payment = { order: order("settled") };
        line.fault = () => ({ answer: 0 });
        const lost = await page.evaluate(([at, what]) => exactly.post(at, what, { operation: "pay", total: 500 }), [
          url,
          payment,
        ] as const);
        assert.equal(lost.kind, "unknown");
        await page.reload();
        await page.waitForFunction(() => globalThis.exactly !== undefined);
        const other = await page.evaluate((at) => exactly.post(at, { order: "another" }, { operation: "pay" }), url);
        assert.equal(`${other.kind} ${other.stop}`, "not_applied key_reused");
        line.fault = () => undefined;
        const again = await page.evaluate(([at, what]) => exactly.post(at, what, { operation: "pay" }), [
          url,
          payment,
        ] as const);
        assert.equal(`${again.kind} ${again.key === lost.key}`, "applied true");
        const next = await page.evaluate((at) => exactly.post(at, { order: "another" }, { operation: "pay" }), url);
        assert.equal(next.kind, "applied");
        assert.equal(service.paid(payment.order), 1);
      });
    });
  });
}

test("a cut connection is unknown, and resolving it brings the answer of the one effect", async () => {
  await withPage("indexeddb", async (page) => {
    for (const [where, url] of origins()) {
      const payment = { order: order("cut") };
      line.fault = () => ({ answer: 0 });
      await line.hangUp();
      const lost = await page.evaluate(([at, what]) => exactly.post(at, what), [url, payment] as const);
      assert.equal(lost.kind, "unknown", where);
      assert.deepEqual(new Set(lost.phases), new Set(["sent"]), "a browser never knows that nothing left");
      line.fault = () => undefined;
      const resolved = await page.evaluate(async () => {
        const { lost: outcome } = exactly;
        if (outcome?.kind !== "unknown") throw new Error("it is not unknown");
        return exactly.told(await outcome.resolve());
      });
      assert.equal(`${resolved.kind} ${resolved.key === lost.key}`, "applied true", where);
      assert.equal(service.paid(payment.order), 1, where);
    }
  });
});

test("nobody listening is unknown in a browser", async () => {
  await withPage("local", async (page) => {
    const told = await page.evaluate(() => exactly.post("http://127.0.0.1:9/payments", { order: "nobody" }));
    assert.equal(told.kind, "unknown");
    assert.ok(told.phases.every((phase) => phase === "sent"));
  });
});

test("a redirect that the browser hides is unknown, and the key went nowhere else", async () => {
  await withPage("local", async (page) => {
    const payment = { order: order("moved") };
    const told = await page.evaluate(([at, what]) => exactly.post(at, what), [`${shop.url}/moved`, payment] as const);
    assert.equal(`${told.kind} ${told.stop} ${told.phases.length}`, "unknown redirect 1");
    assert.equal(service.paid(payment.order), 0);
  });
});

test("an abort in flight is unknown, and leaves the effect as it is", async () => {
  await withPage("local", async (page) => {
    const payment = { order: order("abort"), slow: 1000 };
    const told = page.evaluate(
      ([at, what]) => {
        const controller = new AbortController();
        Object.assign(globalThis, { controller });
        return exactly.post(at, what, { signal: controller.signal });
      },
      [`${shop.url}/payments`, payment] as const,
    );
    await until(() => service.paid(payment.order) === 1);
    await page.evaluate(() => (globalThis as unknown as { controller: AbortController }).controller.abort());
    assert.equal(`${(await told).kind} ${(await told).stop}`, "unknown aborted");
    assert.equal(service.paid(payment.order), 1);
  });
});
