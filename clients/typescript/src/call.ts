/** One call: attempts, each with a time of its own, and waits, all within one deadline. */

import type { Answer } from "./answer.js";
import { attempt } from "./attempt.js";
import type { AttemptResult, Wire } from "./attempt.js";
import type { Budgets } from "./budget.js";
import { canDigest, keyDigest } from "./digest.js";
import { repeatHelps } from "./heard.js";
import type { Attempt, Finished, Stop } from "./outcome.js";
import { isSafe } from "./request.js";
import type { FixedRequest } from "./request.js";
import { Course, fate } from "./retry.js";
import type { Decision, Ended, Phase } from "./retry.js";
import type { Policy } from "./schedule.js";
import type { Fate } from "./taxonomy.js";

/** What is told of every attempt, for logs and metrics. The key itself is a secret and is not in it. */
export interface AttemptEvent {
  /** The digits by which the gateway's logs call the key; nothing without a key, or on a page without WebCrypto. */
  readonly keyDigest: string | undefined;
  readonly class: string;
  readonly method: string;
  readonly origin: string;
  readonly attempt: number;
  readonly phase: Phase;
  readonly fate: Fate;
  readonly status?: number | undefined;
  readonly code?: string | undefined;
  /** How long the attempt took, in milliseconds. */
  readonly took: number;
  /** The wait before the next attempt, in milliseconds, if there is to be one. */
  readonly delay?: number | undefined;
  /** Why there is none. */
  readonly stop?: Stop | undefined;
}

/** What calls need from the world. */
export interface World extends Wire {
  /** Monotonic, in milliseconds. */
  readonly now: () => number;
  /** Ends after so many milliseconds, or as soon as the signal is aborted. Never rejects. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  /** In [0, 1). */
  readonly random: () => number;
  readonly budgets: Budgets | undefined;
  readonly onAttempt: ((event: AttemptEvent) => void) | undefined;
}

export interface CallOptions {
  readonly policy: Policy;
  readonly signal: AbortSignal | undefined;
  /** When the caller began to wait. */
  readonly began: number;
  /** An earlier attempt with this key may have happened. */
  readonly doubt: boolean;
  /** How long the key is thought to stand, in milliseconds from when the caller began to wait; nothing: for good. */
  readonly keyStands: number | undefined;
}

export interface CallResult extends Finished {
  /** How long the key still stands, in milliseconds, by the server's word or else by what is thought. */
  readonly keyLeft: number;
  /** Whether the same bytes may be sent again. */
  readonly repeatable: boolean;
}

/** Attempts the request until it is settled or a limit is reached. Never throws. */
export async function carry(
  world: World,
  request: FixedRequest,
  key: string | undefined,
  options: CallOptions,
): Promise<CallResult> {
  return new Call(world, request, key, options).run();
}

class Call {
  readonly #course: Course;
  readonly #began: number;
  readonly #attempts: Attempt[] = [];
  readonly #repeatable: boolean;
  /** Ends every wait when the caller gives up. */
  readonly #signal: AbortSignal;
  #last: AttemptResult | undefined;
  /** An answer that proves that it happened, though its end is missing. */
  #proof: Answer | undefined;
  #keyless = false;
  #digits: string | undefined;

  constructor(
    readonly world: World,
    readonly request: FixedRequest,
    readonly key: string | undefined,
    readonly options: CallOptions,
  ) {
    const carriesStream = request.body instanceof ReadableStream;
    this.#repeatable = !carriesStream && (key !== undefined || isSafe(request.method));
    this.#course = new Course(options.policy, this.#repeatable, {
      doubt: options.doubt,
      keyStands: key === undefined ? undefined : options.keyStands,
    });
    this.#signal = options.signal ?? new AbortController().signal;
    this.#began = options.began;
  }

  async run(): Promise<CallResult> {
    const { world, options, request } = this;
    if (world.onAttempt !== undefined && this.key !== undefined && canDigest()) {
      this.#digits = await keyDigest(this.key);
    }
    const budget = world.budgets?.of(request.url.origin, options.policy.class, world.now());
    budget?.call(world.now());
    for (let waited = 0; ;) {
      const obstacle = this.#obstacle();
      if (obstacle !== undefined) return this.#finish(obstacle);
      const result = await this.#attempt(waited);
      const { ended } = result;
      budget?.ended(world.now(), ended.phase === "answered" && !repeatHelps(ended.heard));
      // What was aborted asks for no retry, and takes none.
      const grant = (): boolean => this.#signal.aborted || (budget?.take(world.now()) ?? true);
      const took = this.#attempts.at(-1)?.took ?? 0;
      const decision = this.#course.after(counted(ended, took), this.#elapsed(), world.random(), grant);
      const stop = this.#stop(decision, result);
      this.#tell(decision, stop);
      if (stop !== undefined || decision.kind === "stop") {
        return this.#finish(stop ?? "final", decision.kind === "stop" ? decision.readyIn : undefined);
      }
      waited = decision.wait;
      await world.sleep(waited, this.#signal);
    }
  }

  #elapsed(): number {
    return this.world.now() - this.#began;
  }

  #left(): number {
    return this.options.policy.total - this.#elapsed();
  }

  /** What has come up by the time an attempt would begin. */
  #obstacle(): Stop | undefined {
    if (this.#signal.aborted) return "aborted";
    if (this.#elapsed() >= this.#course.expires) return "expired";
    return this.#left() <= 0 ? "deadline" : undefined;
  }

  /** What comes first of all that ends an attempt. */
  #limit(): { readonly ms: number; readonly told: string } {
    const { attempt: own } = this.options.policy;
    // What arrives after the key has expired is a new operation.
    const stands = this.#course.expires - this.#elapsed();
    const left = this.#left();
    if (stands < Math.min(left, own)) return { ms: stands, told: "the key does not stand for the call any longer" };
    if (own < left) return { ms: own, told: "the time for the attempt is over" };
    return { ms: left, told: "the time for the call is over" };
  }

  async #attempt(waited: number): Promise<AttemptResult> {
    const { world, request, key } = this;
    const began = world.now();
    const breaker = new AbortController();
    const over = new AbortController();
    const giveUp = (): void => breaker.abort(this.#signal.reason);
    this.#signal.addEventListener("abort", giveUp, { once: true });
    const limit = this.#limit();
    void world.sleep(limit.ms, over.signal).then(() => {
      if (!over.signal.aborted) breaker.abort(new DOMException(limit.told, "TimeoutError"));
    });
    const isBound = this.#course.inDoubt && !isSafe(request.method);
    const result = await attempt(world, { request, key, isBound }, () => this.#left(), breaker.signal);
    over.abort();
    this.#signal.removeEventListener("abort", giveUp);
    const { ended } = result;
    const heard = ended.phase === "not_sent" ? undefined : ended.heard;
    this.#last = result;
    this.#attempts.push({
      number: this.#attempts.length + 1,
      waited,
      took: world.now() - began,
      phase: ended.phase,
      fate: fate(ended),
      status: heard?.status,
      code: heard?.code,
    });
    if (fate(ended) === "happened") this.#proof = result.answer;
    if (ended.phase !== "not_sent" && ended.keyless === true) this.#keyless = true;
    return result;
  }

  #stop(decision: Decision, { ended }: AttemptResult): Stop | undefined {
    const hidden = ended.phase === "answered" && ended.heard.status === 0;
    if (decision.kind === "stop" && ended.phase === "answered") return hidden ? "redirect" : decision.stop;
    if (this.#signal.aborted) return "aborted";
    return decision.kind === "stop" ? decision.stop : undefined;
  }

  #tell(decision: Decision, stop: Stop | undefined): void {
    const { world, request, options } = this;
    const last = this.#attempts.at(-1);
    if (world.onAttempt === undefined || last === undefined) return;
    const { number, phase, fate: known, status, code, took } = last;
    try {
      world.onAttempt({
        keyDigest: this.#digits,
        class: options.policy.class,
        method: request.method,
        origin: request.url.origin,
        attempt: number,
        phase,
        fate: known,
        status,
        code,
        took,
        delay: decision.kind === "wait" && stop === undefined ? decision.wait : undefined,
        stop,
      });
    } catch {
      // Whoever watches must not change what happens.
    }
  }

  #finish(stop: Stop, readyIn?: number): CallResult {
    const ending = this.#course.ending();
    return {
      ending,
      stop,
      key: this.key,
      attempts: this.#attempts,
      answer: ending === "applied" ? this.#proof : this.#last?.answer,
      error: this.#last?.error,
      readyIn,
      keyLeft: this.#course.expires - this.#elapsed(),
      repeatable: this.#repeatable && !this.#keyless,
    };
  }
}

/** Dates have whole seconds. */
const ROUNDED_MS = 1000;

/**
 * Counts the expiry that an answer tells from the start of its attempt instead of from its arrival, so that no key is relied
 * on for too long.
 */
function counted(ended: Ended, took: number): Ended {
  if (ended.phase === "not_sent" || typeof ended.heard?.expires !== "number") return ended;
  const expires = Math.max(0, ended.heard.expires - took - ROUNDED_MS);
  return { ...ended, heard: { ...ended.heard, expires } };
}
