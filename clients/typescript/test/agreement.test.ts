/** The same decisions as the Rust engine, row by row of the table that it writes. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CLASSES, Course, backoff, fate, meaning, parseHttpDate, retryAfter } from "@exactly/client";
import type { ClassName, Ended, Heard } from "@exactly/client";

type Value = string | number | boolean | null;

interface Section {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Value[])[];
}

const TABLE = JSON.parse(readFileSync(new URL("../../../decisions.json", import.meta.url), "utf8")) as Record<
  string,
  Section
>;
const FOREVER = 2 ** 53;
const yes = (): boolean => true;

/** The rows of a section by the names of their columns; never none. */
function rows<Row>(name: string, least: number): Row[] {
  const section = TABLE[name];
  assert.ok(section !== undefined && section.rows.length >= least, `the table has its section ${name}`);
  const named = (row: readonly Value[]): object =>
    Object.fromEntries(section.columns.map((column, index) => [column, row[index]]));
  return section.rows.map((row) => named(row) as Row);
}

interface DecisionRow {
  phase: "not_sent" | "sent" | "cut_off" | "answered";
  status: number | null;
  code: string | null;
  word: boolean | null;
  key: Heard["key"] | null;
  repeatable: boolean;
  fate: string;
  decision: string;
  ending: string;
  ending_in_doubt: string;
}

function endedAs(row: DecisionRow): Ended {
  if (row.phase === "not_sent" || row.phase === "sent") return { phase: row.phase };
  const { code, word, key } = row;
  const heard: Heard = {
    status: Number(row.status),
    code: code ?? undefined,
    retryable: word ?? undefined,
    key: key ?? undefined,
  };
  return { phase: row.phase === "answered" ? "answered" : "sent", heard };
}

test("both engines decide every attempt alike", () => {
  for (const row of rows<DecisionRow>("decisions", 3000)) {
    const ended = endedAs(row);
    const where = JSON.stringify(row);
    assert.equal(fate(ended), row.fate, where);
    for (const doubt of [false, true]) {
      const course = new Course(CLASSES["user-facing"], row.repeatable, { doubt });
      const decision = course.after(ended, 0, 0, yes);
      assert.equal(decision.kind === "wait" ? "wait" : decision.stop, row.decision, where);
      assert.equal(course.ending(), doubt ? row.ending_in_doubt : row.ending, where);
    }
  }
});

interface LimitRow {
  class: ClassName;
  retries_used: number;
  elapsed: number;
  retry_after: number | null;
  expires_in: number | null;
  budget: boolean;
  decision: string;
  wait: number | null;
}

test("both engines keep to the same limits", () => {
  for (const row of rows<LimitRow>("limits", 500)) {
    const course = new Course(CLASSES[row.class], true);
    for (let used = 0; used < row.retries_used; used += 1) course.after({ phase: "not_sent" }, 0, 0, yes);
    const heard: Heard = {
      status: 503,
      retryAfter: row.retry_after ?? undefined,
      expires: row.expires_in ?? undefined,
    };
    const decision = course.after({ phase: "answered", heard }, row.elapsed, 0, () => row.budget);
    const where = JSON.stringify(row);
    assert.equal(decision.kind === "wait" ? "wait" : decision.stop, row.decision, where);
    const wait = decision.kind === "wait" ? decision.wait : decision.readyIn;
    assert.equal(wait ?? null, row.wait, where);
  }
});

interface ScheduleRow {
  class: ClassName;
  retry: number;
  elapsed: number;
  random: string;
  wait: number | null;
}

test("both engines wait alike", () => {
  for (const row of rows<ScheduleRow>("schedules", 300)) {
    const random = Number(BigInt(`0x${row.random}`)) / 2 ** 64;
    const wait = backoff(CLASSES[row.class], row.retry, row.elapsed, random);
    const where = `${JSON.stringify(row)} ${wait}`;
    if (row.wait === null) assert.equal(wait, undefined, where);
    else assert.ok(wait !== undefined && Math.abs(wait - row.wait) <= 0.001, where);
  }
});

test("both engines read Retry-After alike", () => {
  for (const row of rows<{ value: string; date: string | null; now: number; wait: Value }>("retry_after", 50)) {
    const wall = row.now * 1000;
    const clock = (row.date === null ? undefined : parseHttpDate(row.date, wall)) ?? wall;
    const wait = retryAfter(row.value, clock, wall) ?? null;
    assert.equal(wait !== null && wait >= FOREVER ? "forever" : wait, row.wait, JSON.stringify(row));
  }
});

interface CodeRow {
  text: string;
  meaning: string | null;
  repeat: boolean | null;
  fate: string | null;
  hint: string | null;
}

test("both engines take the same codes for the same", () => {
  for (const row of rows<CodeRow>("codes", 30)) {
    const known = meaning(row.text);
    const told = known === undefined ? null : (known.fate ?? "by_status");
    assert.deepEqual([known?.repeat ?? null, told, known?.hint ?? null], [row.repeat, row.fate, row.hint], row.text);
  }
});
