/**
 * Operations by name: the key is made once and kept until the outcome is known.
 *
 * A second send while one is under way joins it. After an unknown outcome, a reload or a click in another tab, the same name
 * sends the same key. A key never goes out with other bytes, and not after it has expired.
 */

import type { CallResult } from "./call.js";
import { uuid } from "./digest.js";
import { speaksForTheKey } from "./heard.js";
import { outcomeOf } from "./outcome.js";
import type { Finished, Outcome, ResolveOptions } from "./outcome.js";
import { fix } from "./request.js";
import type { FixedRequest } from "./request.js";
import { Sender } from "./sender.js";
import type { SendOptions } from "./sender.js";
import { isOver } from "./stores.js";
import type { OperationStore } from "./stores.js";

export interface OperationOptions {
  /**
   * Keeps the key of an applied operation until it expires, so that whoever sends it later, in another tab or after a
   * reload, gets the first answer again. For names that stand for one thing, such as an order's number.
   */
  readonly remember?: boolean;
}

/** How long a store may take to note an outcome before its caller is told without it. */
const SETTLE_MS = 2000;

/** What operations need from their client. */
export interface Carrier {
  readonly store: OperationStore;
  /** The local clock, in milliseconds since 1970. */
  readonly wall: () => number;
  /** How long a key stands if the server does not say, in milliseconds. */
  readonly keyStands: number;
  readonly now: () => number;
  readonly onStorageError: ((error: unknown) => void) | undefined;
  carry(request: FixedRequest, key: string, options: SendOptions, known: KnownKey): Promise<CallResult>;
  /** Rejects if the work is not done before the call's time is over. */
  inTime<T>(work: Promise<T>, options: SendOptions, began: number): Promise<T>;
}

/** What is known of a key before it is sent. */
export interface KnownKey {
  /** When the caller began to wait, on the monotonic clock. */
  readonly began: number;
  readonly doubt: boolean;
  /** In milliseconds from then; nothing: for good. */
  readonly keyStands: number | undefined;
}

/** An operation under way, or one whose outcome this page does not know. */
interface Held {
  readonly key: string;
  readonly digest: string;
  expiresAt: number | null;
  applied: boolean;
}

/** One request to send under a name. */
export interface Sending {
  readonly name: string;
  readonly request: FixedRequest;
  readonly digest: string;
  readonly options: SendOptions;
  readonly remember: boolean;
  readonly began: number;
  /** Called before anybody else can begin the operation again. */
  readonly onApplied: (outcome: Outcome) => void;
}

interface Running {
  readonly sending: Promise<Sending>;
  readonly outcome: Promise<Outcome>;
}

/** The operations of one client. */
export class Operations {
  readonly #carrier: Carrier;
  readonly #running = new Map<string, Running>();
  readonly #held = new Map<string, Held>();

  constructor(carrier: Carrier) {
    this.#carrier = carrier;
  }

  now(): number {
    return this.#carrier.now();
  }

  /** Joins the send that is under way, or starts one. */
  send(name: string, sending: Promise<Sending>): Promise<Outcome> {
    return this.#join(name, sending, (ready) => this.#begin(ready));
  }

  /** Forgets an operation whose outcome the caller found out by other means. The next send is a new operation. */
  async forget(name: string): Promise<void> {
    await this.#running.get(name)?.outcome.catch(() => {});
    await this.#carrier.store.forget(name);
    this.#held.delete(name);
  }

  /** Without an await before the first send is noted: a click counts from when it is made. */
  async #join(name: string, sending: Promise<Sending>, start: (ready: Sending) => Promise<Outcome>): Promise<Outcome> {
    for (let running = this.#running.get(name); running !== undefined; running = this.#running.get(name)) {
      const own = await sending;
      const other = await running.sending.catch(() => undefined);
      if (other !== undefined) return own.digest === other.digest ? running.outcome : refusal(undefined);
      // A mistake of its caller, from which nothing came.
      await running.outcome.catch(() => {});
    }
    const outcome = sending.then(start).finally(() => this.#running.delete(name));
    this.#running.set(name, { sending, outcome });
    return outcome;
  }

  async #begin(sending: Sending): Promise<Outcome> {
    const { name, request, digest } = sending;
    const { store, wall, keyStands } = this.#carrier;
    let held = this.#held.get(name);
    if (held !== undefined && isOver(held, wall())) held = undefined;
    let doubt = held !== undefined;
    if (held === undefined) {
      const key = request.key ?? uuid();
      const expiresAt = wall() + keyStands;
      try {
        const fresh = { key, digest, expiresAt, joined: false, applied: false };
        const record = await this.#carrier.inTime(store.claim(name, fresh, wall()), sending.options, sending.began);
        doubt = record.joined;
        held = { key: record.key, digest: record.digest, expiresAt: record.expiresAt, applied: record.applied };
      } catch (error) {
        return this.#unclaimed(sending, error);
      }
    }
    const otherKey = request.key !== undefined && request.key !== held.key;
    if (held.digest !== digest || otherKey) return refusal(held.key);
    this.#held.set(name, held);
    return this.#carry(sending, held, doubt);
  }

  /** Nothing is sent under a key that a reload would not find again. What an earlier page sent could not be asked. */
  #unclaimed(sending: Sending, error: unknown): Outcome {
    return outcomeOf({ ending: "unknown", stop: "storage", key: undefined, attempts: [], error }, (options) =>
      this.send(sending.name, Promise.resolve(this.#again(sending, options))),
    );
  }

  #again(sending: Sending, { signal, total }: ResolveOptions): Sending {
    const options = { ...sending.options, signal, total: total ?? sending.options.total };
    return { ...sending, options, began: this.#carrier.now() };
  }

  async #carry(sending: Sending, held: Held, doubt: boolean): Promise<Outcome> {
    const { request, options, began } = sending;
    const { wall, now } = this.#carrier;
    const keyStands = held.expiresAt === null ? undefined : held.expiresAt - wall() + now() - began;
    const result = await this.#carrier.carry(request, held.key, options, { began, doubt, keyStands });
    const ending = await this.#settle(sending, held, result);
    const again = (more: ResolveOptions): Promise<Outcome> => {
      const anew = this.#again(sending, more);
      return this.#join(sending.name, Promise.resolve(anew), () => this.#carry(anew, held, true));
    };
    const outcome = outcomeOf({ ...result, ending }, result.repeatable ? again : undefined);
    if (outcome.kind === "applied") sending.onApplied(outcome);
    return outcome;
  }

  /** Notes what is known. What the store then fails to do leaves a key that is sent again, which does no harm. */
  async #settle({ name, remember, options }: Sending, held: Held, result: CallResult): Promise<Finished["ending"]> {
    const { store, wall, onStorageError } = this.#carrier;
    const { ending, keyLeft, answer } = result;
    held.expiresAt = Number.isFinite(keyLeft) ? wall() + keyLeft : null;
    held.applied = ending === "applied";
    // What is known is not kept from the caller by a store that hangs.
    const inTime = <T>(work: Promise<T>): Promise<T> =>
      this.#carrier.inTime(work, { ...options, total: SETTLE_MS }, this.#carrier.now());
    // Nothing came of our attempts, but another tab may have sent the key too.
    const certain = held.applied || (answer !== undefined && speaksForTheKey(answer.heard));
    try {
      if (ending === "unknown" || (held.applied && remember)) {
        await inTime(store.note(name, held.key, held));
        return ending;
      }
      const gone = await inTime(store.remove(name, held.key, !certain));
      if (gone) this.#held.delete(name);
      return gone ? ending : "unknown";
    } catch (error) {
      onStorageError?.(error);
      // Whether another tab has it could not be asked.
      return certain ? ending : "unknown";
    }
  }
}

/** An operation in the caller's hand. */
export class Operation extends Sender {
  readonly #operations: Operations;
  readonly #remember: boolean;
  readonly #complete: (options: SendOptions) => SendOptions;
  /** What this operation came to, once it happened: sending it again does not do it again. */
  #applied: { readonly digest: string; readonly outcome: Outcome } | undefined;

  constructor(
    operations: Operations,
    readonly name: string,
    options: OperationOptions,
    complete: (options: SendOptions) => SendOptions,
  ) {
    super();
    this.#operations = operations;
    this.#complete = complete;
    this.#remember = options.remember ?? false;
  }

  override async send(method: string, url: string | URL, options: SendOptions = {}): Promise<Outcome> {
    const sending = this.#prepare(method, url, options, this.#operations.now());
    if (this.#applied === undefined) return this.#operations.send(this.name, sending);
    const { digest, outcome } = this.#applied;
    return (await sending).digest === digest ? outcome : refusal(outcome.key);
  }

  /** Forgets an operation whose outcome the caller found out by other means. The next send is a new operation. */
  async forget(): Promise<void> {
    await this.#operations.forget(this.name);
    this.#applied = undefined;
  }

  async #prepare(method: string, url: string | URL, options: SendOptions, began: number): Promise<Sending> {
    const request = await fix(method, url, this.#complete(options));
    const digest = await request.digest();
    const onApplied = (outcome: Outcome): void => {
      this.#applied = { digest, outcome };
    };
    return { name: this.name, request, digest, options, remember: this.#remember, began, onApplied };
  }
}

function refusal(key: string | undefined): Outcome {
  return outcomeOf({ ending: "not_applied", stop: "key_reused", key, attempts: [] }, undefined);
}
