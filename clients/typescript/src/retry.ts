/**
 * When to repeat a failed attempt, when to stop, and what is known when it is over.
 *
 * Unlike a retry loop around `fetch`, this asks first how far the attempt came: a request that never left may always be
 * sent again, one that left without an answer only if a key makes the repetition harmless. What the attempts told is kept,
 * so that a late refusal never hides an early doubt. Everything here is a plain function of its inputs: time, randomness
 * and sleeping are the caller's.
 */

import { fateOf, repeatHelps, speaksForTheKey } from "./heard.js";
import type { Heard } from "./heard.js";
import { backoff } from "./schedule.js";
import type { Policy } from "./schedule.js";
import type { Fate } from "./taxonomy.js";

/** `not_sent`: provably not one byte left. `sent`: bytes left and no whole answer came. `answered`: it came whole. */
export type Phase = "not_sent" | "sent" | "answered";

/** How far an attempt came. A `sent` one with something heard is an answer that was cut off behind its head. */
export type Ended =
  | { readonly phase: "not_sent"; readonly spent?: boolean }
  | { readonly phase: "sent"; readonly heard?: Heard | undefined; readonly keyless?: boolean }
  | { readonly phase: "answered"; readonly heard: Heard; readonly keyless?: boolean };

/** Why there is no further attempt. */
export type CourseStop = "done" | "final" | "unrepeatable" | "attempts" | "expired" | "deadline" | "budget";

export type Decision =
  | { readonly kind: "wait"; readonly wait: number }
  | { readonly kind: "stop"; readonly stop: CourseStop; readonly readyIn?: number };

export type Ending = "applied" | "not_applied" | "unknown";

export interface Beginning {
  /** An earlier attempt with this key, in another page or process, may have happened. */
  readonly doubt?: boolean;
  /** How long the key is thought to stand, in milliseconds from the start, until the server says better. */
  readonly keyStands?: number | undefined;
}

/** What one attempt tells of the effect. */
export function fate(ended: Ended): Fate {
  switch (ended.phase) {
    case "not_sent":
      return "did_not_happen";
    case "answered":
      return fateOf(ended.heard);
    case "sent":
      return ended.heard !== undefined && isProof(ended.heard) ? "happened" : "unknown";
  }
}

/** Whether the head alone proves that it happened: an answer that is kept already cannot be taken back. */
function isProof(heard: Heard): boolean {
  return speaksForTheKey(heard) && fateOf(heard) === "happened";
}

/** One call, from its first attempt to its end. */
export class Course {
  readonly #policy: Policy;
  readonly #repeatable: boolean;
  #attempts = 0;
  /** Some attempt before the last may have happened, or may still be on its way. */
  #doubt: boolean;
  /** An answer that is kept said that it happened, though its end did not come. */
  #proved = false;
  #last: { readonly fate: Fate; readonly speaks: boolean } | undefined;
  #assumed: number;
  #expires: number | undefined;

  /** `repeatable`: a key makes sending it again harmless, or it changes nothing; and its bytes can be sent again. */
  constructor(policy: Policy, repeatable: boolean, beginning: Beginning = {}) {
    this.#policy = policy;
    this.#repeatable = repeatable;
    this.#doubt = beginning.doubt ?? false;
    this.#assumed = beginning.keyStands ?? Infinity;
  }

  get attempts(): number {
    return this.#attempts;
  }

  /** When the key stops standing for this call, in milliseconds from its start. */
  get expires(): number {
    return this.#expires ?? this.#assumed;
  }

  /**
   * Takes in how an attempt ended, `elapsed` after the start of the call, and decides what to do. `random` is in [0, 1);
   * `grant` asks the retry budget, and only when everything else speaks for another attempt.
   */
  after(ended: Ended, elapsed: number, random: number, grant: () => boolean): Decision {
    this.#attempts += 1;
    if (this.#last?.fate === "unknown") this.#doubt = true;
    const heard = ended.phase === "not_sent" ? undefined : ended.heard;
    const speaks = ended.phase === "answered" && speaksForTheKey(ended.heard);
    this.#last = { fate: fate(ended), speaks };
    if (this.#last.fate === "happened") this.#proved = true;
    if (heard?.expires !== undefined) {
      const stands = heard.expires === "never" ? Infinity : elapsed + heard.expires;
      this.#expires = Math.min(this.#expires ?? Infinity, stands);
    }
    const decision = this.#next(ended, this.#last.fate, elapsed, random);
    return decision.kind === "wait" && !grant() ? { kind: "stop", stop: "budget" } : decision;
  }

  /** Whether some attempt may have happened, for all that is known. */
  get inDoubt(): boolean {
    return this.#doubt || this.#last?.fate === "unknown";
  }

  /** What is known, should it be over now. */
  ending(): Ending {
    if (this.#proved) return "applied";
    if (this.#last === undefined) return this.#doubt ? "unknown" : "not_applied";
    if (this.#last.fate === "unknown") return "unknown";
    // Of an earlier attempt a refusal tells nothing, unless it is the answer that the key has for good.
    return this.#doubt && !this.#last.speaks ? "unknown" : "not_applied";
  }

  #next(ended: Ended, known: Fate, elapsed: number, random: number): Decision {
    // Of an answer that was cut off, the rest is worth another attempt even if it is known what it says.
    if (known === "happened" && ended.phase === "answered") return { kind: "stop", stop: "done" };
    const isOver = ended.phase === "not_sent" ? ended.spent : !this.#repeatable || ended.keyless;
    if (isOver === true) {
      return { kind: "stop", stop: "unrepeatable" };
    }
    if (ended.phase === "answered" && !repeatHelps(ended.heard)) return { kind: "stop", stop: "final" };
    if (this.#attempts > this.#policy.retries) return { kind: "stop", stop: "attempts" };
    const planned = backoff(this.#policy, this.#attempts, elapsed, random);
    if (planned === undefined) return { kind: "stop", stop: "attempts" };
    const asked = (ended.phase === "not_sent" ? undefined : ended.heard?.retryAfter) ?? 0;
    const wait = Math.max(planned, asked);
    if (elapsed + wait >= this.expires) return { kind: "stop", stop: "expired" };
    if (elapsed + wait > this.#policy.total) return { kind: "stop", stop: "deadline", readyIn: wait };
    return { kind: "wait", wait };
  }
}
