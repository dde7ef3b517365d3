/** Operations: one key until the outcome is known, over clicks, reloads and tabs. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { LocalStore, MemoryStore, RecordStore, createClient } from "@exactly/client";
import type { Change, Client, OperationRecord, OperationStore, Outcome } from "@exactly/client";
import { Time, cut, refused, reply, still } from "./world.js";
import type { Reply, Sent } from "./world.js";

const URL_ = "http://service.test/payments";
const DAY = 24 * 3600 * 1000;

class Pages {
  readonly time = new Time();
  readonly store: OperationStore;

  constructor(store: OperationStore = new MemoryStore()) {
    this.store = store;
  }

  /** A page, or the same one after a reload: it knows nothing but what the store knows. */
  open(replies: readonly Reply[], options = {}): { client: Client; sent: Sent[] } {
    const { options: world, sent } = still(this.time, replies);
    return { client: createClient({ ...world, storage: this.store, total: 1000, ...options }), sent };
  }
}

function keys(...lists: Sent[][]): Set<string | null> {
  return new Set(lists.flat().map((one) => one.headers.get("idempotency-key")));
}

function brief(outcome: Outcome): string {
  return `${outcome.kind} ${outcome.stop} ${outcome.attempts.length}`;
}

/** A `localStorage` that several pages share. */
function storage(): Pick<Storage, "getItem" | "setItem" | "removeItem"> & { readonly items: Map<string, string> } {
  const items = new Map<string, string>();
  return {
    items,
    getItem: (name) => items.get(name) ?? null,
    setItem: (name, value) => void items.set(name, value),
    removeItem: (name) => void items.delete(name),
  };
}

test("a double click joins the first click and gets its outcome", async () => {
  const { client, sent } = new Pages().open([reply(200)]);
  const operation = client.operation("checkout-42");
  const clicks = [
    operation.post(URL_, { json: 1 }),
    operation.post(URL_, { json: 1 }),
    client.operation("checkout-42").post(URL_, { json: 1 }),
    client.post(URL_, { json: 1, operation: "checkout-42" }),
  ];
  const outcomes = await Promise.all(clicks);
  assert.equal(sent.length, 1);
  assert.equal(new Set(outcomes).size, 1, "the same outcome, not one like it");
});

test("a click on an operation in hand after it happened does not do it again", async () => {
  const { client, sent } = new Pages().open([reply(200)]);
  const operation = client.operation("checkout-42");
  const first = await operation.post(URL_, { json: 1 });
  assert.equal(await operation.post(URL_, { json: 1 }), first);
  assert.equal(brief(await operation.post(URL_, { json: 2 })), "not_applied key_reused 0");
  assert.equal(sent.length, 1);
});

test("clicks in any rhythm on an operation in hand send one key", async () => {
  for (let gap = 0; gap < 40; gap += 1) {
    const { client, sent } = new Pages().open([reply(200)]);
    const operation = client.operation("checkout-42");
    const first = operation.post(URL_, { json: 1 });
    for (let turn = 0; turn < gap; turn += 1) await Promise.resolve();
    if (gap % 4 === 3) await new Promise((resolve) => setImmediate(resolve));
    const second = operation.post(URL_, { json: 1 });
    assert.equal(await first, await second);
    assert.equal(sent.length, 1, String(gap));
  }
});

test("the key stays after an unknown outcome and goes with a known one", async () => {
  const { client, sent } = new Pages().open(["hang", reply(200), reply(200)]);
  assert.equal(brief(await client.operation("a").post(URL_)), "unknown deadline 1");
  assert.equal(brief(await client.operation("a").post(URL_)), "applied done 1");
  assert.equal(keys(sent).size, 1);
  assert.equal(brief(await client.operation("a").post(URL_)), "applied done 1");
  assert.equal(keys(sent).size, 2, "a new operation under the same name");
});

test("what did not happen frees its name", async () => {
  const { client, sent } = new Pages().open([reply(422), reply(200)]);
  assert.equal(brief(await client.operation("a").post(URL_, { json: 1 })), "not_applied final 1");
  assert.equal(brief(await client.operation("a").post(URL_, { json: 2 })), "applied done 1");
  assert.equal(keys(sent).size, 2);
});

test("a reload sends the same key, and remembers that there is a doubt", async () => {
  for (const pages of [new Pages(), new Pages(new LocalStore({ storage: storage(), locks: undefined }))]) {
    const before = pages.open(["hang"]);
    void before.client.operation("a").post(URL_, { json: 1 });
    while (before.sent.length === 0) await new Promise((resolve) => setImmediate(resolve));
    // With more time, because the page that was left waits on, and time passes with it.
    const after = pages.open([reply(401), reply(201)], { total: 10_000 });
    // A 401 says nothing about what the page before it sent.
    assert.equal(brief(await after.client.operation("a").post(URL_, { json: 1 })), "unknown final 1");
    const last = pages.open([reply(201)], { total: 10_000 });
    assert.equal(brief(await last.client.operation("a").post(URL_, { json: 1 })), "applied done 1");
    assert.equal(keys(before.sent, after.sent, last.sent).size, 1);
  }
});

test("after a reload an operation is not sent on to where its key must not go", async () => {
  const away = reply(308, { location: "http://other.test/" });
  const pages = new Pages();
  await pages.open(["hang"]).client.operation("a").post(URL_);
  const after = pages.open([away, reply(200)]);
  assert.equal(brief(await after.client.operation("a").post(URL_)), "unknown final 1");
  assert.equal(after.sent.length, 1);
  // What changes nothing may go wherever it is sent.
  await pages.open(["hang"]).client.operation("b").get(URL_);
  const read = pages.open([away, reply(200)]);
  assert.equal(brief(await read.client.operation("b").get(URL_)), "applied done 1");
  assert.equal(read.sent[1]?.headers.get("idempotency-key"), null);
});

test("an abort before the first byte after a reload leaves the doubt as it was", async () => {
  const pages = new Pages();
  await pages.open(["hang"]).client.operation("a").post(URL_);
  const { client, sent } = pages.open([reply(200)]);
  const outcome = await client.operation("a").post(URL_, { signal: AbortSignal.abort() });
  assert.equal(brief(outcome), "unknown aborted 0");
  assert.equal(sent.length, 0);
});

test("an abort before the first byte of a new operation is not applied", async () => {
  const { client, sent } = new Pages().open([reply(200)]);
  const outcome = await client.operation("a").post(URL_, { signal: AbortSignal.abort() });
  assert.equal(brief(outcome), "not_applied aborted 0");
  assert.equal(sent.length, 0);
});

test("other bytes under the same name are refused before sending, after a reload too", async () => {
  const pages = new Pages();
  const one = pages.open(["hang", reply(200)]);
  assert.equal((await one.client.operation("a").post(URL_, { json: 1 })).kind, "unknown");
  const other = pages.open([reply(200)]);
  const refusal = await other.client.operation("a").post(URL_, { json: 2 });
  assert.equal(brief(refusal), "not_applied key_reused 0");
  assert.equal(other.sent.length, 0);
  assert.equal(brief(await one.client.operation("a").post(URL_, { json: 1 })), "applied done 1");
  assert.equal(keys(one.sent).size, 1, "the refusal took nothing away");
});

test("other bytes are refused while a click is under way", async () => {
  const { client, sent } = new Pages().open([reply(200)]);
  const outcomes = await Promise.all([1, 2].map((json) => client.operation("a").post(URL_, { json })));
  assert.deepEqual(outcomes.map((outcome) => outcome.kind).sort(), ["applied", "not_applied"]);
  assert.equal(sent.length, 1);
});

test("a form is the same request after a reload, whatever its boundary", async () => {
  const pages = new Pages();
  const form = (): FormData => {
    const made = new FormData();
    made.set("amount", "1");
    made.set("file", new File(["bytes"], "f.txt"));
    return made;
  };
  const before = pages.open(["hang"]);
  await before.client.operation("a").post(URL_, { body: form() });
  const after = pages.open([reply(200)]);
  assert.equal(brief(await after.client.operation("a").post(URL_, { body: form() })), "applied done 1");
  assert.equal(keys(before.sent, after.sent).size, 1);
});

test("two tabs that begin at once have one key", async () => {
  const shared = storage();
  for (const store of [new MemoryStore(), new LocalStore({ storage: shared, locks: undefined })]) {
    const pages = new Pages(store);
    const tabs = Array.from({ length: 5 }, () => pages.open([reply(200)]));
    await Promise.all(tabs.map((tab) => tab.client.operation("a", { remember: true }).post(URL_, { json: 1 })));
    assert.equal(keys(...tabs.map((tab) => tab.sent)).size, 1);
  }
});

test("a tab whose attempts came to nothing does not speak for another tab that has the same key", async () => {
  const pages = new Pages();
  const sure = pages.open([refused()]);
  const other = pages.open(["hang", reply(200)], { total: 5000 });
  const first = sure.client.operation("a").post(URL_);
  const second = other.client.operation("a").post(URL_);
  assert.equal((await first).kind, "unknown", "the other tab may have done it");
  assert.equal((await second).kind, "unknown");
  await other.client.operation("a").post(URL_);
  assert.equal(keys(sure.sent, other.sent).size, 1);
});

test("an unknown outcome is resolved with its own key, whatever became of the name meanwhile", async () => {
  const pages = new Pages();
  const one = pages.open(["hang", reply(200)]);
  const lost = await one.client.operation("a").post(URL_);
  const two = pages.open([reply(200)]);
  await two.client.operation("a").post(URL_);
  assert.ok(lost.kind === "unknown");
  assert.equal(brief(await lost.resolve()), "applied done 1");
  assert.equal(keys(one.sent, two.sent).size, 1);
});

test("a doubt outlives its key: it is held until somebody says what came of it", async () => {
  const pages = new Pages();
  const before = pages.open(["hang"]);
  await before.client.operation("a").post(URL_);
  pages.time.pass(DAY);
  const after = pages.open([reply(200)]);
  const operation = after.client.operation("a");
  assert.equal(brief(await operation.post(URL_)), "unknown expired 0");
  assert.equal(after.sent.length, 0);
  await operation.forget();
  assert.equal(brief(await operation.post(URL_)), "applied done 1");
  assert.equal(keys(before.sent, after.sent).size, 2);
});

test("the server's word on when the key expires replaces the assumption, both ways", async () => {
  for (const [stands, expected] of [
    [2 * DAY, "applied done 1"],
    [DAY / 2, "unknown expired 0"],
    ["never", "applied done 1"],
  ] as const) {
    const pages = new Pages();
    const date = stands === "never" ? "never" : new Date(stands).toUTCString();
    const doubt = (): Response => reply(500, { "idempotency-expires": date, "idempotency-retryable": "false" });
    assert.equal((await pages.open([doubt]).client.operation("a").post(URL_)).kind, "unknown");
    pages.time.pass(DAY + 1);
    assert.equal(
      brief(
        await pages
          .open([reply(200)])
          .client.operation("a")
          .post(URL_),
      ),
      expected,
      String(stands),
    );
  }
});

test("a remembered operation sends its key again until it expires, and is then a new one", async () => {
  const pages = new Pages();
  const one = pages.open([reply(200)]);
  const two = pages.open([reply(200)]);
  const remembered = (client: Client): Promise<Outcome> => client.operation("order-7", { remember: true }).post(URL_);
  await remembered(one.client);
  await remembered(one.client);
  await remembered(two.client);
  assert.equal(keys(one.sent, two.sent).size, 1);
  pages.time.pass(DAY);
  await remembered(one.client);
  await remembered(pages.open([reply(200)]).client);
  assert.equal(keys(one.sent, two.sent).size, 2);
});

test("a store that fails lets nothing out, and one that fails afterwards does not hide what happened", async () => {
  class Failing extends RecordStore {
    constructor(readonly after: number) {
      super();
    }
    steps = 0;
    protected override change(_: string, decide: (found: OperationRecord | undefined) => Change): Promise<undefined> {
      this.steps += 1;
      if (this.steps > this.after) return Promise.reject(new Error("quota exceeded"));
      decide(undefined);
      return Promise.resolve(undefined);
    }
  }
  const shut = new Pages(new Failing(0)).open([reply(200)]);
  const refusal = await shut.client.operation("a").post(URL_);
  assert.equal(brief(refusal), "unknown storage 0", "an earlier page may have sent it");
  assert.match(String(refusal.error), /quota/);
  assert.equal(shut.sent.length, 0);
  const errors: unknown[] = [];
  const full = new Pages(new Failing(1)).open([reply(200)], { onStorageError: (error: unknown) => errors.push(error) });
  assert.equal(brief(await full.client.operation("a").post(URL_)), "applied done 1");
  assert.equal(errors.length, 1);
});

test("where the store cannot say whether another tab has the key, nothing is said to be undone", async () => {
  class Unclosable extends MemoryStore {
    fault: Promise<never> | undefined;
    override remove(name: string, key: string, unlessJoined: boolean): Promise<boolean> {
      return this.fault ?? super.remove(name, key, unlessJoined);
    }
  }
  for (const fault of [Promise.reject(new Error("quota exceeded")), new Promise<never>(() => {})]) {
    fault.catch(() => {});
    const store = new Unclosable();
    store.fault = fault;
    const errors: unknown[] = [];
    const onStorageError = (error: unknown): unknown => errors.push(error);
    const { client, sent } = new Pages(store).open([reply(422), reply(201)], { onStorageError });
    const refusal = await client.operation("a").post(URL_);
    assert.equal(brief(refusal), "unknown final 1");
    assert.equal(errors.length, 1);
    store.fault = undefined;
    assert.ok(refusal.kind === "unknown");
    assert.equal(brief(await refusal.resolve()), "applied done 1");
    assert.equal(keys(sent).size, 1);
    store.fault = fault;
    for (const word of ["stored", "replayed"]) {
      const told = new Pages(store).open([reply(422, { "idempotency-status": word })]);
      assert.equal(brief(await told.client.operation(word).post(URL_)), "not_applied final 1", "the key's own answer");
    }
  }
});

test("a store that hangs is under the deadline, and lets nothing out", async () => {
  class Hanging extends MemoryStore {
    hangs = true;
    protected override change(name: string, decide: (found: OperationRecord | undefined) => Change) {
      return this.hangs ? new Promise<undefined>(() => {}) : super.change(name, decide);
    }
  }
  const store = new Hanging();
  const { client, sent } = new Pages(store).open([reply(200)]);
  const stuck = await client.operation("a").post(URL_);
  assert.equal(brief(stuck), "unknown storage 0");
  assert.equal(sent.length, 0);
  store.hangs = false;
  assert.ok(stuck.kind === "unknown");
  assert.equal(brief(await stuck.resolve()), "applied done 1");
});

test("a damaged record is not written over", async () => {
  const shared = storage();
  shared.items.set("exactly:a", '{"key":1}');
  const { client, sent } = new Pages(new LocalStore({ storage: shared, locks: undefined })).open([reply(200)]);
  assert.equal(brief(await client.operation("a").post(URL_)), "unknown storage 0");
  assert.equal(sent.length, 0);
});

test("a settled operation leaves nothing behind", async () => {
  const shared = storage();
  const { client } = new Pages(new LocalStore({ storage: shared, locks: undefined })).open([cut(), reply(200)]);
  await client.operation("a").post(URL_);
  assert.equal(shared.items.size, 0);
});

/** Web Locks that several pages share. */
function webLocks(): LockManager & { readonly held: Set<string> } {
  const held = new Set<string>();
  const turns = new Map<string, Promise<unknown>>();
  const request = async (name: string, ...rest: unknown[]): Promise<unknown> => {
    const step = rest.at(-1) as () => Promise<unknown>;
    const run = async (): Promise<unknown> => {
      held.add(name);
      return step().finally(() => held.delete(name));
    };
    const turn = (turns.get(name) ?? Promise.resolve()).then(run);
    turns.set(
      name,
      turn.catch(() => {}),
    );
    return turn;
  };
  const query = (): Promise<LockManagerSnapshot> =>
    Promise.resolve({ held: [...held].map((name) => ({ name, mode: "exclusive", clientId: "" })) });
  return { held, request, query } as unknown as LockManager & { readonly held: Set<string> };
}

test("tabs take turns through Web Locks, and one that does not see yet what was written is told the key", async () => {
  const locks = webLocks();
  const pages = [storage(), storage()].map((late) => new Pages(new LocalStore({ storage: late, locks })));
  const tabs = pages.map((page) => page.open(["hang"]));
  await Promise.all(tabs.map((tab) => tab.client.operation("a").post(URL_)));
  assert.equal(keys(...tabs.map((tab) => tab.sent)).size, 1);
});

test("what a lock tells is taken back when the operation is settled", async () => {
  const locks = webLocks();
  const { client } = new Pages(new LocalStore({ storage: storage(), locks })).open([reply(200)]);
  assert.equal((await client.operation("a").post(URL_)).kind, "applied");
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([...locks.held], []);
});

test("a stream cannot be an operation", async () => {
  const { client, sent } = new Pages().open([reply(200)]);
  const body = new Blob(["once"]).stream() as ReadableStream<Uint8Array>;
  await assert.rejects(client.operation("a").post(URL_, { body }), TypeError);
  assert.equal(sent.length, 0);
});
