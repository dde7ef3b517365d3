/** How often, how long and how soon a call is repeated. */

export type ClassName = "user-facing" | "background" | "webhook" | "scheduled";

/** Times in milliseconds. */
export type Schedule =
  /** Doubles from `base` on with something at random on top, never above `cap`: up to itself, or up to `jitter`. */
  | { readonly kind: "doubling"; readonly base: number; readonly jitter: "full" | number; readonly cap: number }
  /** These waits, one per retry, each a tenth longer or shorter at random. */
  | { readonly kind: "delays"; readonly delays: readonly number[] }
  /** Attempts at these times after the start of the call, each a tenth earlier or later at random. */
  | { readonly kind: "offsets"; readonly offsets: readonly number[] };

export interface Policy {
  readonly class: string;
  /** Attempts after the first one. */
  readonly retries: number;
  /** From the start to the end of the last attempt, with every wait between; milliseconds. */
  readonly total: number;
  /** How long one attempt may take, so that a server that says nothing does not use up the time of all; milliseconds. */
  readonly attempt: number;
  readonly schedule: Schedule;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** 100–200 ms, 200–400 ms, 400–800 ms, 800–1600 ms, then up to 2 s. */
export const PLAYBOOK: Schedule = { kind: "doubling", base: 100, jitter: "full", cap: 2 * SECOND };
/** 1–2 s, 2–3 s, 4–5 s, 8–9 s, and so on, up to 30 s. */
export const DOUBLING_SECONDS: Schedule = { kind: "doubling", base: SECOND, jitter: SECOND, cap: 30 * SECOND };
const WEBHOOK_SECONDS = [5, 30, 120, 600, 1800, 3600, 6 * 3600, 12 * 3600, 24 * 3600];
const WEBHOOK: Schedule = { kind: "offsets", offsets: WEBHOOK_SECONDS.map((offset) => offset * SECOND) };
const SCHEDULED: Schedule = { kind: "delays", delays: [30 * SECOND, 2 * MINUTE, 5 * MINUTE] };

export const CLASSES: Readonly<Record<ClassName, Policy>> = {
  "user-facing": { class: "user-facing", retries: 3, total: 10 * SECOND, attempt: 5 * SECOND, schedule: PLAYBOOK },
  background: {
    class: "background",
    retries: 5,
    total: 5 * MINUTE,
    attempt: 30 * SECOND,
    schedule: DOUBLING_SECONDS,
  },
  webhook: { class: "webhook", retries: 9, total: 24 * HOUR, attempt: 30 * SECOND, schedule: WEBHOOK },
  scheduled: { class: "scheduled", retries: 3, total: HOUR, attempt: MINUTE, schedule: SCHEDULED },
};

/**
 * The wait before retry number `retry`, counted from 1, of a call that began `elapsed` ago. `random` is in [0, 1).
 * Nothing: there is no such retry.
 */
export function backoff(policy: Policy, retry: number, elapsed: number, random: number): number | undefined {
  const { schedule } = policy;
  switch (schedule.kind) {
    case "doubling": {
      const wait = schedule.base * 2 ** (retry - 1);
      const most = schedule.jitter === "full" ? wait : schedule.jitter;
      return Math.min(wait + random * most, schedule.cap);
    }
    case "delays": {
      const delay = schedule.delays[retry - 1];
      return delay === undefined ? undefined : about(delay, Infinity, random);
    }
    case "offsets": {
      const offset = schedule.offsets[retry - 1];
      // The last attempt begins before the time is up.
      return offset === undefined ? undefined : Math.max(0, about(offset, policy.total, random) - elapsed);
    }
  }
}

/** A tenth more or less, and below `limit`. */
function about(duration: number, limit: number, random: number): number {
  const least = Math.min(duration * 0.9, limit);
  const most = Math.min(duration * 1.1, limit);
  return least + (most - least) * random;
}
