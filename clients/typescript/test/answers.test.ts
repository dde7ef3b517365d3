/** What is read from an answer, row by row of a table that was written by hand for every client. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { hear, meaning } from "@exactly/client";

interface Row {
  readonly what: string;
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string | null;
  /** Seconds since 1970. */
  readonly now: number;
  readonly heard: {
    readonly code: string | null;
    readonly category: string | null;
    readonly retryable: boolean | null;
    readonly key: string | null;
    readonly retry_after_ms: number | "forever" | null;
    readonly expires_ms: number | "never" | null;
  };
}

const FOREVER = 2 ** 53;

function table(name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(new URL(`../../../${name}`, import.meta.url), "utf8")) as Record<string, unknown>;
}

/** The name of a meaning by its hint, which no other one has. */
function categories(): ReadonlyMap<string, string> {
  const { columns, rows } = table("decisions.json")["codes"] as { columns: string[]; rows: (string | null)[][] };
  const named = rows.map((row) => [row[columns.indexOf("hint")], row[columns.indexOf("meaning")]] as [string, string]);
  return new Map(named.filter(([, name]) => name !== null));
}

test("every answer is read as the table says", () => {
  const named = categories();
  assert.equal(new Set(named.values()).size, named.size);
  const rows = table("answers.json")["answers"] as Row[];
  assert.ok(rows.length >= 100);
  const wrong: unknown[] = [];
  for (const row of rows) {
    const headers = new Headers();
    for (const [name, value] of row.headers) headers.append(name, value);
    const body = row.body === null ? undefined : new TextEncoder().encode(row.body);
    const heard = hear(row.status, headers, body, row.now * 1000);
    const known = meaning(heard.code);
    const wait = heard.retryAfter ?? null;
    const read: Row["heard"] = {
      code: heard.code ?? null,
      category: known === undefined ? null : (named.get(known.hint) ?? "a meaning without a name"),
      retryable: heard.retryable ?? null,
      key: heard.key ?? null,
      retry_after_ms: wait !== null && wait >= FOREVER ? "forever" : wait,
      expires_ms: heard.expires ?? null,
    };
    try {
      assert.equal(heard.status, row.status);
      assert.deepEqual(read, row.heard);
    } catch {
      wrong.push({ row, read });
    }
  }
  assert.deepEqual(wrong, []);
});
