/** The whole decision table, against an oracle that is written in another shape than the engine. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { CLASSES, Course, fate, meaning, repeatHelps } from "@exactly/client";
import type { Decision, Ended, Fate, Heard, KeyWord, Policy } from "@exactly/client";

const STATUSES = [
  0, 200, 201, 204, 301, 302, 303, 307, 308, 400, 401, 403, 404, 408, 409, 410, 412, 422, 425, 429, 500, 501, 502, 503,
  504, 507,
];
/** Code, whether to repeat, fate: `-` where the status decides. */
const CODES = `
  -                                      - -
  VALIDATION.amount                      n -
  IDEMPOTENCY_KEY_REQUIRED               n -
  IDEMPOTENCY_KEY_INVALID                n -
  AUTH.denied                            n -
  CONFLICT.idempotency.payload_mismatch  n -
  CONFLICT.idempotency.in_progress       y unknown
  CONFLICT.state                         n -
  RATE_LIMIT.exceeded                    y -
  DEPENDENCY.timeout                     y unknown
  DEPENDENCY.unavailable                 y -
  DEPENDENCY.other                       y -
  TRANSIENT.overloaded                   y -
  PROVIDER.duplicate                     n happened
  PROVIDER.other                         - -
  OUTCOME.replay_unavailable             n happened
  OUTCOME.unknown                        n unknown
  OUTCOME.other                          n unknown
  DEADLINE.exceeded                      n -
  BUDGET.exhausted                       n -
  SOMETHING.else                         - -
  VALIDATION                             - -
  validation.amount                      - -
`
  .trim()
  .split("\n")
  .map((line) => line.trim().split(/\s+/) as [string, string, string]);
const WORDS: (KeyWord | undefined)[] = [undefined, "stored", "replayed", "freed", "unknown"];
const HAPPENED = [200, 201, 204, 303];
const DID_NOT = [307, 308, 400, 401, 403, 404, 408, 409, 410, 412, 422, 425, 429, 503];
const REPEATED = [408, 429, 500, 502, 503, 504];

interface Row {
  readonly heard: Heard;
  readonly fate: Fate;
  readonly repeat: boolean;
}

function rows(): Row[] {
  const made: Row[] = [];
  for (const status of STATUSES)
    for (const [text, repeated, told] of CODES)
      for (const retryable of [undefined, true, false])
        for (const key of WORDS) {
          const code = text === "-" ? undefined : text;
          const byStatus = HAPPENED.includes(status)
            ? "happened"
            : DID_NOT.includes(status)
              ? "did_not_happen"
              : "unknown";
          const byWord = key === "unknown" ? "unknown" : key === "freed" ? "did_not_happen" : byStatus;
          const known = told === "-" ? byWord : (told as Fate);
          const repeat = retryable ?? (repeated === "-" ? REPEATED.includes(status) : repeated === "y");
          made.push({ heard: { status, code, retryable, key }, fate: known, repeat });
        }
  return made;
}

const ENOUGH: Policy = {
  class: "test",
  retries: 1,
  total: 1000,
  attempt: 1000,
  schedule: { kind: "delays", delays: [0] },
};
const yes = (): boolean => true;

function stopOf(decision: Decision): string {
  return decision.kind === "wait" ? "wait" : decision.stop;
}

test("the fate of every answer and whether it is repeated are as the table has it", () => {
  for (const row of rows()) {
    const ended: Ended = { phase: "answered", heard: row.heard };
    const where = JSON.stringify(row.heard);
    assert.equal(fate(ended), row.fate, where);
    assert.equal(repeatHelps(row.heard), row.repeat, where);
    for (const repeatable of [true, false])
      for (const doubt of [true, false]) {
        const course = new Course(ENOUGH, repeatable, { doubt });
        const expected =
          row.fate === "happened" ? "done" : !repeatable ? "unrepeatable" : row.repeat ? "wait" : "final";
        assert.equal(stopOf(course.after(ended, 0, 0, yes)), expected, where);
        const kept = row.heard.key === "stored" || row.heard.key === "replayed";
        const refused = doubt && !kept ? "unknown" : "not_applied";
        const ending = row.fate === "happened" ? "applied" : row.fate === "unknown" ? "unknown" : refused;
        assert.equal(course.ending(), ending, where);
      }
  }
});

test("an attempt without an answer is repeated with a key, and without one only if nothing left", () => {
  for (const [ended, known, alone] of [
    [{ phase: "not_sent" }, "not_applied", "wait"],
    [{ phase: "sent" }, "unknown", "unrepeatable"],
  ] as const)
    for (const doubt of [true, false]) {
      const keyed = new Course(ENOUGH, true, { doubt });
      assert.equal(stopOf(keyed.after(ended, 0, 0, yes)), "wait");
      assert.equal(keyed.ending(), doubt ? "unknown" : known);
      const bare = new Course(ENOUGH, false, { doubt });
      assert.equal(stopOf(bare.after(ended, 0, 0, yes)), alone);
    }
});

test("an answer that was cut off is asked for again, and is believed only if its head proves that it happened", () => {
  for (const row of rows()) {
    const ended: Ended = { phase: "sent", heard: row.heard };
    const kept = row.heard.key === "stored" || row.heard.key === "replayed";
    const proves = kept && row.fate === "happened";
    assert.equal(fate(ended), proves ? "happened" : "unknown");
    const course = new Course(ENOUGH, true);
    assert.equal(stopOf(course.after(ended, 0, 0, yes)), "wait");
    assert.equal(course.ending(), proves ? "applied" : "unknown");
  }
});

test("a proof that it happened outlives every later attempt", () => {
  const proof: Ended = { phase: "sent", heard: { status: 201, key: "stored" } };
  for (const later of [
    { phase: "not_sent" },
    { phase: "sent" },
    { phase: "answered", heard: { status: 401 } },
  ] as const) {
    const course = new Course(ENOUGH, true);
    course.after(proof, 0, 0, yes);
    course.after(later, 1, 0, yes);
    assert.equal(course.ending(), "applied", JSON.stringify(later));
  }
});

test("a refusal after a doubt settles nothing, unless it is the answer that the key has for good", () => {
  for (const [key, ending] of [
    [undefined, "unknown"],
    ["freed", "unknown"],
    ["stored", "not_applied"],
    ["replayed", "not_applied"],
  ] as const) {
    const course = new Course(ENOUGH, true);
    course.after({ phase: "sent" }, 0, 0, yes);
    course.after({ phase: "answered", heard: { status: 422, key } }, 1, 0, yes);
    assert.equal(course.ending(), ending, key);
  }
});

test("limits count in their order, for every class, phase and time left", () => {
  const ends: Ended[] = [
    { phase: "not_sent" },
    { phase: "sent" },
    { phase: "answered", heard: { status: 503 } },
    { phase: "answered", heard: { status: 429, retryAfter: 5000 } },
    { phase: "answered", heard: { status: 503, retryAfter: 1e12 } },
  ];
  for (const policy of Object.values(CLASSES))
    for (const ended of ends)
      for (const left of [0, 1, 99, 100, 101, 5000, 5001, policy.total])
        for (const stands of [0, 5000, 5001, Infinity])
          for (const used of [0, policy.retries])
            for (const granted of [true, false]) {
              const elapsed = policy.total - left;
              const course = new Course(policy, true, { keyStands: elapsed + stands });
              for (let count = 0; count < used; count += 1) course.after({ phase: "not_sent" }, 0, 0, yes);
              const decision = course.after(ended, elapsed, 0, () => granted);
              const asked = (ended.phase === "answered" ? ended.heard.retryAfter : 0) ?? 0;
              const wait = Math.max(leastWait(policy, elapsed), asked);
              const where = JSON.stringify([policy.class, ended, left, stands, used, granted]);
              if (used === policy.retries) assert.equal(stopOf(decision), "attempts", where);
              else if (wait >= stands) assert.equal(stopOf(decision), "expired", where);
              else if (wait > left)
                assert.deepEqual(decision, { kind: "stop", stop: "deadline", readyIn: wait }, where);
              else if (!granted) assert.equal(stopOf(decision), "budget", where);
              else assert.deepEqual(decision, { kind: "wait", wait }, where);
            }
});

/** Before the first retry, by the words of the contract. */
function leastWait(policy: Policy, elapsed: number): number {
  switch (policy.class) {
    case "user-facing":
      return 100;
    case "background":
      return 1000;
    case "webhook":
      return Math.max(0, 4500 - elapsed);
    default:
      return 27_000;
  }
}

test("a hop to another origin takes the key away, so what was sent there is not sent again", () => {
  const course = new Course(ENOUGH, true);
  assert.equal(stopOf(course.after({ phase: "sent", keyless: true }, 0, 0, yes)), "unrepeatable");
  assert.equal(course.ending(), "unknown");
});

test("every code of the taxonomy has a hint", () => {
  for (const [code, repeat] of CODES) if (repeat !== "-") assert.ok(meaning(code)?.hint, code);
});
