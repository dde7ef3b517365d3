/**
 * How many retries a destination is given: never more in all than `ratio × calls + reserve`, however long it stays dead.
 *
 * The reserve, which lets a quiet client retry at all, comes back over the window, and only while the destination answers
 * well. What calls have earned is good for one window, so that a healthy day does not pay for a storm. A dead destination
 * takes nothing from a healthy one.
 */

export interface BudgetLimits {
  /** Retries per call. */
  readonly ratio: number;
  /** Retries that need no calls. */
  readonly reserve: number;
  /** Milliseconds. */
  readonly window: number;
}

export const BUDGET: BudgetLimits = { ratio: 0.2, reserve: 10, window: 10_000 };

/** Parts of a retry, whole numbers, so that five fifths are one. */
const PARTS = 1_000_000;
const SLICES = 10;

/** The retries of one destination and class. `now` is monotonic, in milliseconds. */
export class Budget {
  readonly #limits: BudgetLimits;
  readonly #whole: number;
  /** What calls earned, by the slice of the window it was earned in. */
  readonly #earned = new Array<number>(SLICES).fill(0);
  #slice: number;
  #reserve: number;
  #refilled: number;
  #well = true;

  constructor(limits: BudgetLimits, now: number) {
    this.#limits = limits;
    this.#whole = Math.round(limits.reserve * PARTS);
    this.#reserve = this.#whole;
    this.#refilled = now;
    this.#slice = this.#sliceAt(now);
  }

  /** Counts a call, which earns its share of a retry. */
  call(now: number): void {
    this.#advance(now);
    const slot = this.#slice % SLICES;
    this.#earned[slot] = (this.#earned[slot] ?? 0) + Math.round(this.#limits.ratio * PARTS);
  }

  /** Takes in how an attempt ended: well, if the destination answered and repeating would not help. */
  ended(now: number, well: boolean): void {
    this.#advance(now);
    this.#well = well;
  }

  /** Takes one retry, if there is one. */
  take(now: number): boolean {
    this.#advance(now);
    if (this.#reserve + this.#earned.reduce((sum, part) => sum + part, 0) < PARTS) return false;
    let owed = PARTS;
    // The oldest first: it is the next to be lost.
    for (let age = 1; age <= SLICES; age += 1) {
      const slot = (this.#slice + age) % SLICES;
      const part = Math.min(owed, this.#earned[slot] ?? 0);
      this.#earned[slot] = (this.#earned[slot] ?? 0) - part;
      owed -= part;
    }
    this.#reserve -= owed;
    return true;
  }

  /** Whether a new one would grant nothing more. */
  isUntouched(now: number): boolean {
    this.#advance(now);
    return this.#reserve === this.#whole;
  }

  #advance(now: number): void {
    const passed = now - this.#refilled;
    if (passed <= 0) return;
    this.#refilled = now;
    const window = Math.max(1, this.#limits.window);
    if (this.#well) this.#reserve = Math.min(this.#whole, this.#reserve + Math.floor((this.#whole * passed) / window));
    const slice = this.#sliceAt(now);
    for (let lost = Math.min(SLICES, slice - this.#slice); lost > 0; lost -= 1) {
      this.#earned[(slice - lost + 1) % SLICES] = 0;
    }
    this.#slice = slice;
  }

  #sliceAt(now: number): number {
    return Math.floor(now / (Math.max(1, this.#limits.window) / SLICES));
  }
}

/** One budget for each destination and class. */
export class Budgets {
  /** Destinations with a budget of their own; the others share one, which is less for each and never more for all. */
  static readonly DESTINATIONS_MAX = 1000;
  readonly #limits: BudgetLimits;
  readonly #known = new Map<string, Budget>();
  #rest: Budget | undefined;

  constructor(limits: BudgetLimits = BUDGET) {
    this.#limits = limits;
  }

  of(origin: string, className: string, now: number): Budget {
    const name = `${className} ${origin}`;
    const found = this.#known.get(name);
    if (found !== undefined) return found;
    if (this.#known.size >= Budgets.DESTINATIONS_MAX) {
      for (const [other, budget] of this.#known) if (budget.isUntouched(now)) this.#known.delete(other);
    }
    if (this.#known.size >= Budgets.DESTINATIONS_MAX) return (this.#rest ??= new Budget(this.#limits, now));
    const budget = new Budget(this.#limits, now);
    this.#known.set(name, budget);
    return budget;
  }
}
