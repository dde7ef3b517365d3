/** Schedules, `Retry-After`, dates and budgets. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { BUDGET, Budget, Budgets, CLASSES, backoff, hear, parseHttpDate, retryAfter } from "@exactly/client";
import { present } from "./world.js";

const RANDOMS = [0, 0.25, 0.5, 0.999999];
const SECOND = 1000;
const WALL = Date.UTC(2026, 0, 15, 12, 0, 0);

test("user-facing waits double from 100 ms with full jitter and end at 2 s", () => {
  const bounds = [100, 200, 400, 800, 1600, 2000, 2000];
  for (const random of RANDOMS)
    bounds.forEach((least, index) => {
      const wait = present(backoff(CLASSES["user-facing"], index + 1, 0, random));
      assert.equal(wait, Math.min(least * (1 + random), 2000));
    });
});

test("background waits double from 1 s with up to a second more and end at 30 s", () => {
  const bounds = [1, 2, 4, 8, 16, 30, 30];
  for (const random of RANDOMS)
    bounds.forEach((least, index) => {
      const wait = present(backoff(CLASSES.background, index + 1, 0, random));
      assert.equal(wait, Math.min(least * SECOND + random * SECOND, 30 * SECOND));
    });
});

test("webhook attempts keep to their times after the event, a tenth around, and never leave the 24 hours", () => {
  const hours = [5 / 3600, 30 / 3600, 2 / 60, 1 / 6, 0.5, 1, 6, 12, 24];
  for (const random of RANDOMS)
    hours.forEach((offset, index) => {
      const at = offset * 3600 * SECOND;
      for (const elapsed of [0, at / 2, at * 2]) {
        const when = elapsed + present(backoff(CLASSES.webhook, index + 1, elapsed, random));
        assert.ok(when >= Math.min(elapsed, CLASSES.webhook.total) && when <= Math.max(CLASSES.webhook.total, elapsed));
        if (elapsed < at * 0.9) assert.ok(Math.abs(when - at) <= at * 0.1 + 1, `${offset} ${when}`);
      }
    });
  assert.equal(backoff(CLASSES.webhook, 10, 0, 0), undefined);
});

test("scheduled work is repeated after 30 s, 2 min and 5 min, a tenth around", () => {
  for (const random of RANDOMS)
    [30, 120, 300].forEach((delay, index) => {
      const wait = present(backoff(CLASSES.scheduled, index + 1, 0, random));
      assert.ok(wait >= delay * 900 && wait <= delay * 1100);
    });
  assert.equal(backoff(CLASSES.scheduled, 4, 0, 0), undefined);
});

test("the three forms of an HTTP date are read, and nothing else is", () => {
  const at = Date.UTC(1994, 10, 6, 8, 49, 37);
  for (const text of ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]) {
    assert.equal(parseHttpDate(text, WALL), at, text);
  }
  assert.equal(parseHttpDate("Thursday, 15-Jan-26 12:00:30 GMT", WALL), WALL + 30 * SECOND);
  assert.equal(parseHttpDate("Thu Feb 29 00:00:00 2024", WALL), Date.UTC(2024, 1, 29));
  for (const text of [
    "",
    "1994",
    "2026-01-15T12:00:00Z",
    "Sun, 06 Nov 1994 08:49:37",
    "Sun, 06 Nov 1994 08:49:37 CET",
    "Sun, 6 Nov 1994 08:49:37 GMT",
    "Xyz, 06 Nov 1994 08:49:37 GMT",
    "Mon, 06 Nov 1994 08:49:37 GMT",
    "Tue, 31 Feb 2026 08:49:37 GMT",
    "Sun, 06 Nov 1994 24:00:00 GMT",
    "Sun, 06 Nov 1994 08:60:00 GMT",
    "Sun, 06 Nov 1994 08:49:60 GMT",
    "Sun, 00 Nov 1994 08:49:37 GMT",
    "Sun Nov 6 08:49:37 1994",
    "Sun, 06 Nov 1994 08:49:37 GMT, more",
  ]) {
    assert.equal(parseHttpDate(text, WALL), undefined, text);
  }
});

test("Retry-After is seconds or a date on the server's clock, and nothing when malformed", () => {
  const cases: [string | null, number | undefined][] = [
    ["0", 0],
    ["120", 120 * SECOND],
    [" 7 ", 7 * SECOND],
    ["99999999999999999999", 99999999999999999999 * SECOND],
    ["Thu, 15 Jan 2026 12:00:30 GMT", 30 * SECOND],
    ["Thursday, 15-Jan-26 12:00:30 GMT", 30 * SECOND],
    ["Thu Jan 15 12:00:30 2026", 30 * SECOND],
    ["Thu, 15 Jan 2026 11:00:00 GMT", 0],
    ["-1", undefined],
    ["+5", undefined],
    ["1.5", undefined],
    ["1e3", undefined],
    ["soon", undefined],
    ["", undefined],
    [null, undefined],
  ];
  for (const [value, expected] of cases) assert.equal(retryAfter(value, WALL, WALL), expected, String(value));
});

test("a date is taken relative to the answer's own Date, and to the local clock without one", () => {
  const wrong = WALL + 3600 * SECOND;
  const headers = new Headers({
    "retry-after": "Thu, 15 Jan 2026 12:00:30 GMT",
    "idempotency-expires": "Fri, 16 Jan 2026 12:00:00 GMT",
    date: "Thu, 15 Jan 2026 12:00:10 GMT",
  });
  const heard = hear(503, headers, undefined, wrong);
  assert.equal(heard.retryAfter, 20 * SECOND);
  assert.equal(heard.expires, (24 * 3600 - 10) * SECOND);
  headers.delete("date");
  assert.equal(hear(503, headers, undefined, WALL).retryAfter, 30 * SECOND);
  headers.set("date", "nonsense");
  assert.equal(hear(503, headers, undefined, WALL).retryAfter, 30 * SECOND);
  assert.equal(hear(200, new Headers({ "idempotency-expires": "never" }), undefined, WALL).expires, "never");
});

test("what an answer says is read from headers first, then from its problem, and from nothing that is not JSON", () => {
  const body = new TextEncoder().encode('{"code":"RATE_LIMIT.exceeded","retryable":false,"retryAfter":7}');
  const json = { "content-type": "application/problem+json; charset=utf-8" };
  const heard = (headers: Record<string, string>): ReturnType<typeof hear> =>
    hear(429, new Headers(headers), body, WALL);
  assert.deepEqual(
    [heard(json).code, heard(json).retryable, heard(json).retryAfter],
    ["RATE_LIMIT.exceeded", false, 7 * SECOND],
  );
  assert.equal(heard({ ...json, "retry-after": "3" }).retryAfter, 3 * SECOND);
  assert.equal(heard({ ...json, "retry-after": "soon" }).retryAfter, 7 * SECOND);
  assert.equal(heard({ ...json, "stripe-should-retry": "true" }).retryable, true);
  assert.equal(heard({ ...json, "stripe-should-retry": "true", "idempotency-retryable": "false" }).retryable, false);
  assert.equal(heard({ "content-type": "text/plain", error_code: "AUTH.denied" }).code, "AUTH.denied");
  assert.equal(heard({ "content-type": "text/plain" }).code, undefined);
  assert.equal(heard({ "idempotent-replayed": "true" }).key, "replayed");
  assert.equal(heard({ "idempotency-status": "freed", "idempotent-replayed": "true" }).key, "freed");
  const long = new TextEncoder().encode(`{"code":"AUTH.denied","x":"${"x".repeat(64 * 1024)}"}`);
  assert.equal(hear(401, new Headers(json), long, WALL).code, undefined);
  assert.equal(hear(401, new Headers(json), new TextEncoder().encode("[{"), WALL).code, undefined);
});

test("a dead destination gets a fifth of its calls and ten more as retries, for hours", () => {
  const budget = new Budget(BUDGET, 0);
  let granted = 0;
  const calls = 5000;
  for (let call = 0; call < calls; call += 1) {
    const now = call * 3 * SECOND;
    budget.call(now);
    for (let retry = 0; retry < 3; retry += 1) {
      budget.ended(now + retry, false);
      if (budget.take(now + retry)) granted += 1;
    }
  }
  assert.ok(granted <= calls * 0.2 + 10, String(granted));
  assert.ok(granted >= 10);
});

test("a destination that is well again gets its reserve back within the window", () => {
  const budget = new Budget(BUDGET, 0);
  budget.ended(0, false);
  for (let taken = 0; taken < 10; taken += 1) assert.ok(budget.take(0));
  assert.ok(!budget.take(3600 * SECOND), "nothing comes back while it is dead");
  budget.ended(3600 * SECOND, true);
  assert.ok(!budget.take(3600 * SECOND));
  const later = 3610 * SECOND;
  for (let taken = 0; taken < 10; taken += 1) assert.ok(budget.take(later), String(taken));
  assert.ok(!budget.take(later));
});

test("a dead destination takes nothing from a healthy one, nor one class from another", () => {
  const budgets = new Budgets();
  const dead = budgets.of("http://dead", "user-facing", 0);
  while (dead.take(0));
  assert.ok(budgets.of("http://well", "user-facing", 0).take(0));
  assert.ok(budgets.of("http://dead", "background", 0).take(0));
  assert.equal(budgets.of("http://dead", "user-facing", 0), dead);
});

test("destinations beyond the limit share one budget", () => {
  const budgets = new Budgets();
  for (let index = 0; index < Budgets.DESTINATIONS_MAX; index += 1) budgets.of(`http://${index}`, "x", 0).take(0);
  assert.equal(budgets.of("http://one-more", "x", 0), budgets.of("http://another", "x", 0));
});
