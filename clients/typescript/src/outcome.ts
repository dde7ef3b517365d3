/** How a call ended, and what was done on the way. */

import type { Answer } from "./answer.js";
import type { CourseStop, Phase } from "./retry.js";
import { meaning } from "./taxonomy.js";
import type { Fate } from "./taxonomy.js";

/**
 * Why there was no further attempt. Beside what the engine decides: the caller aborted it, the browser hid a redirect, the
 * key belongs to a request with other bytes, or the store of keys failed before anything was sent: then it is unknown too,
 * because it could not be asked what was sent before.
 */
export type Stop = CourseStop | "aborted" | "redirect" | "key_reused" | "storage";

/** One attempt, as it went. Times in milliseconds. */
export interface Attempt {
  readonly number: number;
  /** The wait before it. */
  readonly waited: number;
  readonly took: number;
  readonly phase: Phase;
  readonly fate: Fate;
  readonly status?: number | undefined;
  readonly code?: string | undefined;
}

/** What a call came to. */
export interface Finished {
  readonly ending: "applied" | "not_applied" | "unknown";
  readonly stop: Stop;
  readonly key: string | undefined;
  readonly attempts: readonly Attempt[];
  readonly answer?: Answer | undefined;
  readonly error?: unknown;
  readonly readyIn?: number | undefined;
}

interface Ended {
  /** The operation's key. Nothing for a request that needs none. */
  readonly key: string | undefined;
  readonly attempts: readonly Attempt[];
  readonly stop: Stop;
  /** What the caller can do about it, if the server named its error. */
  readonly hint?: string | undefined;
  /** The last error of the network, if there was no answer. */
  readonly error?: unknown;
  /** This outcome if it is an applied one; throws a `NotAppliedError` or an `UnknownOutcomeError` otherwise. */
  orThrow(): Applied;
}

/** It happened, once. */
export interface Applied extends Ended {
  readonly kind: "applied";
  readonly answer: Answer;
}

/** It did not happen, and will not. */
export interface NotApplied extends Ended {
  readonly kind: "not_applied";
  readonly answer?: Answer | undefined;
  /** When it could be tried again, in milliseconds from the end, if the time for it was not there. */
  readonly readyIn?: number | undefined;
}

/** It may have happened, or may yet. Only the same key may be sent again. */
export interface Unknown extends Ended {
  readonly kind: "unknown";
  readonly answer?: Answer | undefined;
  readonly readyIn?: number | undefined;
  /** Sends the same key and the same bytes again, with fresh time. What cannot be sent again stays as it is. */
  resolve(options?: ResolveOptions): Promise<Outcome>;
}

export interface ResolveOptions {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds. */
  readonly total?: number | undefined;
}

export type Outcome = Applied | NotApplied | Unknown;

export class NotAppliedError extends Error {
  override readonly name = "NotAppliedError";
  constructor(readonly outcome: NotApplied) {
    super(`not applied (${outcome.stop})${told(outcome)}`, { cause: outcome.error });
  }
}

export class UnknownOutcomeError extends Error {
  override readonly name = "UnknownOutcomeError";
  constructor(readonly outcome: Unknown) {
    super(`outcome unknown (${outcome.stop})${told(outcome)}`, { cause: outcome.error });
  }
}

/** Dresses what came of a call for its caller. */
export function outcomeOf(
  finished: Finished,
  again: ((options: ResolveOptions) => Promise<Outcome>) | undefined,
): Outcome {
  const { key, attempts, stop, answer, error, readyIn } = finished;
  const shared = { key, attempts, stop, hint: meaning(answer?.heard.code)?.hint, error };
  if (finished.ending === "applied" && answer !== undefined) {
    const applied: Applied = { ...shared, kind: "applied", answer, orThrow: () => applied };
    return applied;
  }
  if (finished.ending === "not_applied") {
    const refuse = (): never => {
      throw new NotAppliedError(refused);
    };
    const refused: NotApplied = { ...shared, kind: "not_applied", answer, readyIn, orThrow: refuse };
    return refused;
  }
  const doubt = (): never => {
    throw new UnknownOutcomeError(unknown);
  };
  const unknown: Unknown = {
    ...shared,
    kind: "unknown",
    answer,
    readyIn,
    orThrow: doubt,
    resolve: (options = {}) => again?.(options) ?? Promise.resolve(unknown),
  };
  return unknown;
}

function told(outcome: NotApplied | Unknown): string {
  const status = outcome.answer === undefined ? "" : `: status ${outcome.answer.status}`;
  return outcome.hint === undefined ? status : `${status}: ${outcome.hint}`;
}
