/**
 * Operations in `localStorage`, which outlives a reload.
 *
 * It has no transactions. Where the browser has Web Locks, tabs take turns; where it has none, two tabs that begin the same
 * operation in the same moment can end up with two keys. `IndexedDbStore` is safe everywhere.
 */

import { RecordStore, isRecord } from "../stores.js";
import type { Change, OperationRecord } from "../stores.js";

export interface LocalStoreOptions {
  /** The browser's own unless another one is given. */
  readonly storage?: Pick<Storage, "getItem" | "setItem" | "removeItem">;
  readonly locks?: Pick<LockManager, "request"> | undefined;
  readonly prefix?: string;
}

export class LocalStore extends RecordStore {
  readonly #storage: NonNullable<LocalStoreOptions["storage"]>;
  readonly #locks: LocalStoreOptions["locks"];
  readonly #prefix: string;

  constructor(options: LocalStoreOptions = {}) {
    super();
    this.#storage = options.storage ?? globalThis.localStorage;
    this.#locks = "locks" in options ? options.locks : browserLocks();
    this.#prefix = options.prefix ?? "exactly:";
  }

  protected override async change(
    name: string,
    decide: (found: OperationRecord | undefined) => Change,
  ): Promise<OperationRecord | undefined> {
    const place = this.#prefix + name;
    // Without an await between reading and writing, at least this tab cannot get in its own way.
    const step = (): OperationRecord | undefined => {
      const found = this.#read(place);
      const change = decide(found);
      if (change === "remove") this.#storage.removeItem(place);
      else if (change !== "keep") this.#storage.setItem(place, JSON.stringify(change.put));
      return found;
    };
    return this.#locks === undefined ? step() : await this.#locks.request(place, step);
  }

  #read(place: string): OperationRecord | undefined {
    const text = this.#storage.getItem(place);
    if (text === null) return undefined;
    const value: unknown = JSON.parse(text);
    // What cannot be read may stand for an effect, so it is not written over.
    if (!isRecord(value)) throw new TypeError(`read ${place}: it is no record of an operation; remove it`);
    return value;
  }
}

function browserLocks(): LockManager | undefined {
  return (globalThis.navigator as Navigator | undefined)?.locks as LockManager | undefined;
}
