/** The client: what its options say, and keys of the caller's own. */

import { BUDGET, Budgets } from "./budget.js";
import type { BudgetLimits } from "./budget.js";
import { carry } from "./call.js";
import type { AttemptEvent, CallResult, World } from "./call.js";
import { uuid } from "./digest.js";
import { Operation, Operations } from "./operations.js";
import type { KnownKey, OperationOptions } from "./operations.js";
import { outcomeOf } from "./outcome.js";
import type { Outcome, ResolveOptions } from "./outcome.js";
import { fix, isSafe } from "./request.js";
import type { FetchOptions, FixedRequest } from "./request.js";
import { CLASSES } from "./schedule.js";
import type { ClassName, Policy } from "./schedule.js";
import { Sender } from "./sender.js";
import type { SendOptions } from "./sender.js";
import type { OperationStore } from "./stores.js";
import { MemoryStore } from "./stores/memory.js";

export interface ClientOptions {
  /** One that does not repeat requests by itself. */
  readonly fetch?: typeof globalThis.fetch;
  /** `user-facing` unless said otherwise. */
  readonly class?: ClassName | Policy;
  /** The time for everything, in milliseconds; the class's own unless said otherwise. */
  readonly total?: number;
  /** The time for one attempt, in milliseconds; the class's own unless said otherwise. */
  readonly attempt?: number;
  readonly headers?: HeadersInit;
  readonly fetchOptions?: FetchOptions;
  /** Where the keys of operations are kept: in memory unless said otherwise. */
  readonly storage?: OperationStore;
  /** How long a key stands, named or not, if the server does not say, in milliseconds: 24 hours. */
  readonly keyStands?: number;
  /** Retries per destination; false: no limit. */
  readonly budget?: Partial<BudgetLimits> | false;
  /** Bytes of an answer that are kept: 10 MiB. */
  readonly answerMax?: number;
  /** Headers that are not passed on when a redirect leads to another origin, beside the key and credentials. */
  readonly sensitive?: readonly string[];
  /** The header that carries the milliseconds left: `X-Request-Timeout`; false: none. */
  readonly timeoutHeader?: string | false;
  /** Told of every attempt. It never sees a key. */
  readonly onAttempt?: (event: AttemptEvent) => void;
  /** Told when a settled operation could not be removed from the store. */
  readonly onStorageError?: (error: unknown) => void;
  /** Monotonic time in milliseconds. */
  readonly now?: () => number;
  /** The local clock, in milliseconds since 1970. */
  readonly wall?: () => number;
  /** Ends after so many milliseconds, or as soon as the signal is aborted. */
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** In [0, 1). */
  readonly random?: () => number;
}

export interface ClientSendOptions extends SendOptions {
  /** The name of the operation whose key this request uses. */
  readonly operation?: string | undefined;
}

const ANSWER_BYTES_MAX = 10 * 1024 * 1024;
const KEY_STANDS_MS = 24 * 60 * 60 * 1000;
/** How many keys of the caller's own are remembered with what they were used for. */
const KEYS_MAX = 10_000;

export function createClient(options: ClientOptions = {}): Client {
  return new Client(options);
}

export class Client extends Sender<ClientSendOptions> {
  readonly #options: ClientOptions;
  readonly #world: World;
  readonly #keyStands: number;
  readonly #operations: Operations;
  readonly #digests = new Map<string, string>();

  constructor(options: ClientOptions) {
    super();
    this.#options = options;
    this.#world = world(options);
    this.#keyStands = options.keyStands ?? KEY_STANDS_MS;
    this.#operations = new Operations({
      store: options.storage ?? new MemoryStore(),
      wall: this.#world.wall,
      keyStands: this.#keyStands,
      onStorageError: options.onStorageError,
      now: this.#world.now,
      carry: (request, key, sending, known) => this.#carry(request, key, sending, known),
      inTime: (work, sending, began) => this.#inTime(work, sending, began),
    });
  }

  /** The operation of that name: one key until its outcome is known. */
  operation(name: string, options: OperationOptions = {}): Operation {
    const complete = (sending: SendOptions): SendOptions => this.#complete(sending);
    return new Operation(this.#operations, name, options, complete);
  }

  override async send(method: string, url: string | URL, options: ClientSendOptions = {}): Promise<Outcome> {
    if (options.operation !== undefined) return this.operation(options.operation).send(method, url, options);
    const began = this.#world.now();
    const request = await fix(method, url, this.#complete(options));
    if (request.key !== undefined && !(await this.#isFor(request.key, request))) {
      return outcomeOf({ ending: "not_applied", stop: "key_reused", key: request.key, attempts: [] }, undefined);
    }
    const key = request.key ?? (isSafe(request.method) ? undefined : uuid());
    return this.#finish(request, key, options, { began, doubt: false, keyStands: this.#keyStands });
  }

  async #finish(
    request: FixedRequest,
    key: string | undefined,
    options: SendOptions,
    known: KnownKey,
  ): Promise<Outcome> {
    const { now } = this.#world;
    const result = await this.#carry(request, key, options, known);
    const ended = now();
    const again = ({ signal, total }: ResolveOptions): Promise<Outcome> => {
      const keyStands = result.keyLeft - (now() - ended);
      const anew: SendOptions = { ...options, signal, total: total ?? options.total };
      return this.#finish(request, key, anew, { began: now(), doubt: true, keyStands });
    };
    return outcomeOf(result, result.repeatable ? again : undefined);
  }

  #carry(request: FixedRequest, key: string | undefined, options: SendOptions, known: KnownKey): Promise<CallResult> {
    return carry(this.#world, request, key, { ...known, policy: this.#policy(options), signal: options.signal });
  }

  #policy(options: SendOptions): Policy {
    const named = options.class ?? this.#options.class ?? "user-facing";
    const policy = typeof named === "string" ? CLASSES[named] : named;
    return {
      ...policy,
      total: options.total ?? this.#options.total ?? policy.total,
      attempt: options.attempt ?? this.#options.attempt ?? policy.attempt,
    };
  }

  /** Rejects if the work is not done before the call's time is over. */
  async #inTime<T>(work: Promise<T>, options: SendOptions, began: number): Promise<T> {
    const { now, sleep } = this.#world;
    const ready = new AbortController();
    const left = this.#policy(options).total - (now() - began);
    const over = sleep(Math.max(0, left), ready.signal).then(() => {
      throw new DOMException("the time for the call is over", "TimeoutError");
    });
    try {
      return await Promise.race([work, over]);
    } finally {
      ready.abort();
    }
  }

  /** The options of one request over those of the client. */
  #complete(options: SendOptions): SendOptions {
    const headers = new Headers(this.#options.headers);
    new Headers(options.headers).forEach((value, name) => headers.set(name, value));
    return { ...options, headers, fetchOptions: { ...this.#options.fetchOptions, ...options.fetchOptions } };
  }

  /** Whether the caller's key was not used for another request before. */
  async #isFor(key: string, request: FixedRequest): Promise<boolean> {
    // What is read once cannot be compared, and the server compares it anyway.
    if (request.body instanceof ReadableStream) return true;
    const digest = await request.digest();
    // Two services, or two operations of one, may be given the same key.
    const { method, url } = request;
    const use = JSON.stringify([key, method, url.origin, url.pathname]);
    const known = this.#digests.get(use);
    if (known !== undefined) return known === digest;
    const oldest = this.#digests.keys().next();
    if (this.#digests.size >= KEYS_MAX && oldest.done !== true) this.#digests.delete(oldest.value);
    this.#digests.set(use, digest);
    return true;
  }
}

function world(options: ClientOptions): World {
  const now = options.now ?? (() => performance.now());
  const limits = options.budget === false ? undefined : { ...BUDGET, ...options.budget };
  return {
    fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
    now,
    wall: options.wall ?? (() => Date.now()),
    sleep: options.sleep ?? ((ms, signal) => sleep(ms, signal, now)),
    random: options.random ?? Math.random,
    budgets: limits === undefined ? undefined : new Budgets(limits),
    answerMax: options.answerMax ?? ANSWER_BYTES_MAX,
    sensitive: options.sensitive ?? [],
    timeoutHeader: options.timeoutHeader ?? "X-Request-Timeout",
    onAttempt: options.onAttempt,
  };
}

/** A longer timer would fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

async function sleep(ms: number, signal: AbortSignal, now: () => number): Promise<void> {
  const until = now() + ms;
  // A timer can fire a little early, and a wait that a server asked for must not be shorter.
  for (let left = ms; left > 0 && !signal.aborted; left = until - now()) {
    await new Promise<void>((resolve) => {
      const woken = (): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", woken);
        resolve();
      };
      const timer = setTimeout(woken, Math.min(Math.ceil(left), TIMER_MS_MAX));
      signal.addEventListener("abort", woken, { once: true });
    });
  }
}
