/** Operations in memory: they outlive a click, not a reload. */

import { RecordStore } from "../stores.js";
import type { Change, OperationRecord } from "../stores.js";

export class MemoryStore extends RecordStore {
  readonly #records = new Map<string, OperationRecord>();

  protected override change(
    name: string,
    decide: (found: OperationRecord | undefined) => Change,
  ): Promise<OperationRecord | undefined> {
    const found = this.#records.get(name);
    const change = decide(found);
    if (change === "remove") this.#records.delete(name);
    else if (change !== "keep") this.#records.set(name, change.put);
    return Promise.resolve(found);
  }
}
