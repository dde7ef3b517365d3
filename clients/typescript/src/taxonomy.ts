/** What an error means, by the code that a server gave it. */

export type Fate = "happened" | "did_not_happen" | "unknown";

export interface Meaning {
  /** Whether sending the same call again can help. */
  readonly repeat: boolean;
  /** What the code alone tells of the effect; absent: the status has to tell. */
  readonly fate?: Fate;
  /** What the caller can do. */
  readonly hint: string;
}

const EXACT: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  ["IDEMPOTENCY_KEY_REQUIRED", { repeat: false, hint: "fix the input" }],
  ["IDEMPOTENCY_KEY_INVALID", { repeat: false, hint: "fix the input" }],
  ["CONFLICT.idempotency.payload_mismatch", { repeat: false, hint: "use a new key for a new operation" }],
  ["CONFLICT.idempotency.in_progress", { repeat: true, fate: "unknown", hint: "wait, then repeat with the same key" }],
  ["DEPENDENCY.timeout", { repeat: true, fate: "unknown", hint: "repeat with the same key" }],
  ["PROVIDER.duplicate", { repeat: false, fate: "happened", hint: "show the existing result" }],
  [
    "OUTCOME.replay_unavailable",
    { repeat: false, fate: "happened", hint: "it happened; its answer cannot be shown again" },
  ],
]);

const CATEGORIES: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  ["VALIDATION", { repeat: false, hint: "fix the input" }],
  ["AUTH", { repeat: false, hint: "sign in again, or ask for permission" }],
  ["CONFLICT", { repeat: false, hint: "resolve the conflict" }],
  ["RATE_LIMIT", { repeat: true, hint: "wait, then repeat" }],
  ["DEPENDENCY", { repeat: true, hint: "repeat later" }],
  ["TRANSIENT", { repeat: true, hint: "repeat" }],
  ["OUTCOME", { repeat: false, fate: "unknown", hint: "find out before doing it again" }],
  ["DEADLINE", { repeat: false, hint: "allow more time" }],
  ["BUDGET", { repeat: false, hint: "the destination is failing; try later" }],
]);

/** The meaning of a code, by its whole name or else by its category. Nothing: it is not of this taxonomy. */
export function meaning(code: string | undefined): Meaning | undefined {
  if (code === undefined) return undefined;
  const dot = code.indexOf(".");
  return EXACT.get(code) ?? (dot < 0 ? undefined : CATEGORIES.get(code.slice(0, dot)));
}
