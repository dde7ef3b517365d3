/** Operations in IndexedDB, which outlives a reload and lets one tab at a time write. */

import { RecordStore, isRecord } from "../stores.js";
import type { Change, OperationRecord } from "../stores.js";

export interface IndexedDbStoreOptions {
  /** The name of the database. */
  readonly database?: string;
  readonly factory?: IDBFactory;
}

const OPERATIONS = "operations";

export class IndexedDbStore extends RecordStore {
  readonly #name: string;
  readonly #factory: IDBFactory;
  #opened: Promise<IDBDatabase> | undefined;

  constructor(options: IndexedDbStoreOptions = {}) {
    super();
    this.#name = options.database ?? "exactly";
    this.#factory = options.factory ?? globalThis.indexedDB;
  }

  protected override async change(
    name: string,
    decide: (found: OperationRecord | undefined) => Change,
  ): Promise<OperationRecord | undefined> {
    const database = await this.#database();
    return new Promise((resolve, reject) => {
      // Writing transactions of one store run one after the other, in all tabs. Strict: it is on the disk when it is done.
      const transaction = database.transaction(OPERATIONS, "readwrite", { durability: "strict" });
      const operations = transaction.objectStore(OPERATIONS);
      let found: OperationRecord | undefined;
      let fault: unknown;
      const reading = operations.get(name);
      reading.onsuccess = () => {
        try {
          found = checked(name, reading.result);
          const change = decide(found);
          if (change === "remove") operations.delete(name);
          else if (change !== "keep" && found === undefined) operations.add(change.put, name);
          else if (change !== "keep") operations.put(change.put, name);
        } catch (error) {
          fault = error;
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(found);
      transaction.onabort = () => reject(fault ?? transaction.error ?? new Error(`keep operation ${name}: aborted`));
    });
  }

  #database(): Promise<IDBDatabase> {
    this.#opened ??= this.#open().catch((error: unknown) => {
      // The next operation tries again.
      this.#opened = undefined;
      throw error;
    });
    return this.#opened;
  }

  #open(): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
      const opening = this.#factory.open(this.#name, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(OPERATIONS);
      opening.onerror = () => reject(opening.error ?? new Error(`open database ${this.#name}`));
      opening.onsuccess = () => {
        const database = opening.result;
        const reopen = (): void => {
          database.close();
          this.#opened = undefined;
        };
        // Another tab wants to delete or change it, or the browser took it away.
        database.onversionchange = reopen;
        database.onclose = reopen;
        resolve(database);
      };
    });
  }
}

function checked(name: string, value: unknown): OperationRecord | undefined {
  if (value === undefined || isRecord(value)) return value;
  // What cannot be read may stand for an effect, so it is not written over.
  throw new TypeError(`read operation ${name}: it is no record of an operation; remove it`);
}
