/**
 * Operations in `localStorage`, which outlives a reload.
 *
 * It has no transactions, and what one tab writes the others see a little later. Where the browser has Web Locks, tabs take
 * turns, and a fresh key is also told by the name of a lock, which every tab sees at once. Where it has none, two tabs that
 * begin the same operation in the same moment can end up with two keys. `IndexedDbStore` is safe everywhere.
 */

import { RecordStore, isRecord } from "../stores.js";
import type { Change, OperationRecord } from "../stores.js";

export interface LocalStoreOptions {
  /** The browser's own unless another one is given. */
  readonly storage?: Pick<Storage, "getItem" | "setItem" | "removeItem">;
  readonly locks?: Pick<LockManager, "request" | "query"> | undefined;
  readonly prefix?: string;
}

/** By then every tab sees what was written. */
const TOLD_FOR_MS = 2000;

export class LocalStore extends RecordStore {
  readonly #storage: NonNullable<LocalStoreOptions["storage"]>;
  readonly #locks: LocalStoreOptions["locks"];
  readonly #prefix: string;
  /** How to take back what the names of locks tell. */
  readonly #told = new Map<string, () => void>();

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
    // Encoded, so that no name looks like what a lock tells of another one.
    const place = this.#prefix + encodeURIComponent(name);
    const locks = this.#locks;
    if (locks === undefined) {
      // Without an await between reading and writing, at least this tab cannot get in its own way.
      const found = this.#read(place);
      this.#write(place, decide(found));
      return found;
    }
    const step = async (): Promise<OperationRecord | undefined> => {
      const found = this.#read(place) ?? heard(place, (await locks.query()).held ?? []);
      const change = decide(found);
      this.#write(place, change);
      if (found === undefined && typeof change === "object") await this.#tell(locks, place, change.put);
      return found;
    };
    return await locks.request(place, step);
  }

  #read(place: string): OperationRecord | undefined {
    const text = this.#storage.getItem(place);
    return text === null ? undefined : parsed(place, text);
  }

  #write(place: string, change: Change): void {
    if (change === "keep") return;
    if (change === "remove") {
      this.#told.get(place)?.();
      this.#storage.removeItem(place);
    } else {
      this.#storage.setItem(place, JSON.stringify(change.put));
    }
  }

  /** Holds a lock whose name has the record in it, until every tab sees what was written. */
  #tell(locks: Pick<LockManager, "request">, place: string, record: OperationRecord): Promise<void> {
    return new Promise((resolve, reject) => {
      const hold = (): Promise<void> =>
        new Promise((release) => {
          const takeBack = (): void => {
            clearTimeout(timer);
            if (this.#told.get(place) === takeBack) this.#told.delete(place);
            release();
          };
          const timer = setTimeout(takeBack, TOLD_FOR_MS);
          this.#told.set(place, takeBack);
          resolve();
        });
      locks.request(`${place}#${JSON.stringify(record)}`, { mode: "shared" }, hold).catch(reject);
    });
  }
}

function heard(place: string, held: readonly LockInfo[]): OperationRecord | undefined {
  const word = held.find((lock) => lock.name?.startsWith(`${place}#{`) === true)?.name;
  return word === undefined ? undefined : parsed(place, word.slice(place.length + 1));
}

function parsed(place: string, text: string): OperationRecord {
  const value: unknown = JSON.parse(text);
  // What cannot be read may stand for an effect, so it is not written over.
  if (!isRecord(value)) throw new TypeError(`read ${place}: it is no record of an operation; remove it`);
  return value;
}

function browserLocks(): LockManager | undefined {
  return (globalThis.navigator as Navigator | undefined)?.locks as LockManager | undefined;
}
