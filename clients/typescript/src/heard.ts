/** What an answer tells, apart from its content. */

import { parseHttpDate } from "./httpdate.js";
import { meaning } from "./taxonomy.js";
import type { Fate } from "./taxonomy.js";

/** What the server says of the key, by `Idempotency-Status`. */
export type KeyWord = "stored" | "replayed" | "freed" | "unknown";

export interface Heard {
  /** Zero for a redirect that the browser hides. */
  readonly status: number;
  readonly code?: string | undefined;
  /** The server's own word on whether repeating helps. */
  readonly retryable?: boolean | undefined;
  readonly key?: KeyWord | undefined;
  /** How long the server wants to be left alone, in milliseconds. */
  readonly retryAfter?: number | undefined;
  /** How long the key still stands, in milliseconds. */
  readonly expires?: number | "never" | undefined;
}

/** Of a longer body nothing is read: no problem needs that much to be told. */
const PROBLEM_BYTES_MAX = 64 * 1024;

/** Reads an answer. `wall` is the local clock, for servers that do not tell theirs. */
export function hear(status: number, headers: Headers, body: Uint8Array | undefined, wall: number): Heard {
  const problem = problemOf(headers, body);
  const date = headers.get("date");
  const clock = (date === null ? undefined : parseHttpDate(date, wall)) ?? wall;
  const code = problem["code"];
  const retryable = problem["retryable"];
  return {
    status,
    code: typeof code === "string" ? code : (headers.get("error_code") ?? headers.get("error-code") ?? undefined),
    retryable:
      truth(headers.get("idempotency-retryable")) ??
      truth(headers.get("stripe-should-retry")) ??
      (typeof retryable === "boolean" ? retryable : undefined),
    key: keyWord(headers),
    retryAfter: retryAfter(headers.get("retry-after"), clock, wall) ?? seconds(problem["retryAfter"]),
    expires: expires(headers.get("idempotency-expires"), clock, wall),
  };
}

/** How long to wait by a `Retry-After` value. Nothing: it is malformed, as if absent. */
export function retryAfter(value: string | null, clock: number, wall: number): number | undefined {
  if (value === null) return undefined;
  const text = value.trim();
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const at = parseHttpDate(text, wall);
  return at === undefined ? undefined : Math.max(0, at - clock);
}

/** Whether the effect came about, as far as this answer alone can tell. */
export function fateOf(heard: Heard): Fate {
  const told = meaning(heard.code)?.fate;
  if (told !== undefined) return told;
  if (heard.key === "unknown") return "unknown";
  if (heard.key === "freed") return "did_not_happen";
  const { status } = heard;
  // 303 says where the result of what was done is found.
  if ((status >= 200 && status < 300) || status === 303) return "happened";
  // 503 is how a server says that it did not begin; 307 and 308 send the request elsewhere undone.
  if ((status >= 400 && status < 500) || status === 503 || status === 307 || status === 308) return "did_not_happen";
  return "unknown";
}

/** Whether this is the answer that the key has for good, so that no other attempt can come to another end. */
export function speaksForTheKey(heard: Heard): boolean {
  return heard.key === "stored" || heard.key === "replayed";
}

const REPEATED_STATUSES: ReadonlySet<number> = new Set([408, 429, 500, 502, 503, 504]);

/** Whether repeating can help: by the server's word, else by the code, else by the status. */
export function repeatHelps(heard: Heard): boolean {
  return heard.retryable ?? meaning(heard.code)?.repeat ?? REPEATED_STATUSES.has(heard.status);
}

function keyWord(headers: Headers): KeyWord | undefined {
  const word = headers.get("idempotency-status")?.trim().toLowerCase();
  if (word === "stored" || word === "replayed" || word === "freed" || word === "unknown") return word;
  return truth(headers.get("idempotent-replayed")) === true ? "replayed" : undefined;
}

function expires(value: string | null, clock: number, wall: number): number | "never" | undefined {
  if (value === null) return undefined;
  if (value.trim().toLowerCase() === "never") return "never";
  const at = parseHttpDate(value, wall);
  return at === undefined ? undefined : Math.max(0, at - clock);
}

function truth(value: string | null): boolean | undefined {
  const word = value?.trim().toLowerCase();
  return word === "true" ? true : word === "false" ? false : undefined;
}

function seconds(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value * 1000 : undefined;
}

function problemOf(headers: Headers, body: Uint8Array | undefined): Readonly<Record<string, unknown>> {
  const type = headers.get("content-type")?.split(";")[0]?.trim().toLowerCase() ?? "";
  const isJson = type === "application/json" || type.endsWith("+json");
  if (!isJson || body === undefined || body.length > PROBLEM_BYTES_MAX) return {};
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(body));
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
