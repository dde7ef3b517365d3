/** Where the keys of unsettled operations are kept, so that a reload or another tab sends the same one. */

/** What is kept of one operation. */
export interface OperationRecord {
  readonly key: string;
  /** Of the request: the same key never goes out with other bytes. */
  readonly digest: string;
  /** When the key stops standing for the operation, in milliseconds since 1970; null: never. */
  readonly expiresAt: number | null;
  /** Somebody else, perhaps another tab, uses the key too. */
  readonly joined: boolean;
  /** It happened, and is remembered until it expires. */
  readonly applied: boolean;
}

/**
 * Every step is atomic, also between tabs. A failure is thrown: nothing is sent without its key being kept.
 */
export interface OperationStore {
  /**
   * Puts the record there, unless there is one: then that one is marked as joined and returned. Only what happened and has
   * expired by `wall` is written over; what may have happened is not.
   */
  claim(name: string, fresh: OperationRecord, wall: number): Promise<OperationRecord>;
  /** Notes when the key expires and whether it happened, if the operation still has this key. */
  note(name: string, key: string, known: Pick<OperationRecord, "expiresAt" | "applied">): Promise<void>;
  /** Removes the record, if it still has this key, and if nobody joined where that counts. True: it is not there. */
  remove(name: string, key: string, unlessJoined: boolean): Promise<boolean>;
  /** Removes the record, whatever it is. */
  forget(name: string): Promise<void>;
}

/** What becomes of a name's record. */
export type Change = { readonly put: OperationRecord } | "remove" | "keep";

/** The steps of a store, over one that can change a single record atomically. */
export abstract class RecordStore implements OperationStore {
  /** Reads the record and writes what `decide` makes of it, with nobody in between. */
  protected abstract change(
    name: string,
    decide: (found: OperationRecord | undefined) => Change,
  ): Promise<OperationRecord | undefined>;

  async claim(name: string, fresh: OperationRecord, wall: number): Promise<OperationRecord> {
    const claimed = (there: OperationRecord | undefined): OperationRecord =>
      there === undefined || isOver(there, wall) ? fresh : { ...there, joined: true };
    return claimed(await this.change(name, (there) => ({ put: claimed(there) })));
  }

  async note(name: string, key: string, known: Pick<OperationRecord, "expiresAt" | "applied">): Promise<void> {
    const { expiresAt, applied } = known;
    await this.change(name, (there) => (there?.key === key ? { put: { ...there, expiresAt, applied } } : "keep"));
  }

  async remove(name: string, key: string, unlessJoined: boolean): Promise<boolean> {
    const held = (there: OperationRecord | undefined): boolean => there?.key === key && unlessJoined && there.joined;
    const found = await this.change(name, (there) => (there?.key !== key || held(there) ? "keep" : "remove"));
    return !held(found);
  }

  async forget(name: string): Promise<void> {
    await this.change(name, () => "remove");
  }
}

/** Whether it happened and need not be remembered any longer. */
export function isOver(record: Pick<OperationRecord, "expiresAt" | "applied">, wall: number): boolean {
  return record.applied && record.expiresAt !== null && record.expiresAt <= wall;
}

/** Whether something that was read from outside is a record. */
export function isRecord(value: unknown): value is OperationRecord {
  if (typeof value !== "object" || value === null) return false;
  const { key, digest, expiresAt, joined, applied } = value as Partial<Record<keyof OperationRecord, unknown>>;
  const texts = typeof key === "string" && typeof digest === "string";
  const expires = expiresAt === null || typeof expiresAt === "number";
  return texts && expires && typeof joined === "boolean" && typeof applied === "boolean";
}
